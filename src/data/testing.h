// SPDX-License-Identifier: Apache-2.0
// For the tests of this folder: a folder of its own for each test, and pictures good and bad.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/random.h"
#include "data/decode.h"

namespace cairn::data::testing {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "cairn_data_XXXXXX").native();
    path_ = ::mkdtemp(name.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(std::string_view inner) const { return path_ + "/" + std::string(inner); }
  const std::string& path() const { return path_; }
  // Writes a file, making its folders.
  void put(std::string_view inner, std::string_view bytes) const {
    const std::filesystem::path file = *this / inner;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
  }

 private:
  std::string path_;
};

// Smooth shapes over a little noise, different for each seed.
inline Picture sample(int width, int height, int channels, uint64_t seed = 1) {
  Picture p(width, height, channels);
  Random random(seed);
  const double a = random.uniform(0.02, 0.2), b = random.uniform(0.02, 0.2);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c)
        p.row(y)[x * channels + c] =
            uint8_t(128 + 60 * std::sin(a * x + c) + 50 * std::cos(b * y - c) + int(random.below(16)) - 8);
  return p;
}

inline bool equal(const Picture& a, const Picture& b) {
  return a.size() == b.size() && a.channels() == b.channels() &&
         std::equal(a.row(0), a.row(0) + a.bytes(), b.row(0));
}

// The largest difference of any byte; 256 when the forms differ.
inline int difference(const Picture& a, const Picture& b) {
  if (a.size() != b.size() || a.channels() != b.channels()) return 256;
  int most = 0;
  for (size_t i = 0; i < a.bytes(); ++i) most = std::max(most, std::abs(int(a.row(0)[i]) - int(b.row(0)[i])));
  return most;
}

}  // namespace cairn::data::testing
