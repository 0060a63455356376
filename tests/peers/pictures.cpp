// SPDX-License-Identifier: Apache-2.0
// For pictures.py: decodes and resizes what standard input asks for, one request a line, tab-separated.
//   decode <tab> color <tab> in <tab> out            →  "W H C [note …]" or "error kind message"
//   resize <tab> in <tab> W <tab> H <tab> filter <tab> x <tab> y <tab> w <tab> h <tab> out
//   time   <tab> recipe <tab> in                     →  milliseconds of decoding and of the transform
// `out` gets raw bytes, rows of pixels.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "data/decode.h"
#include "data/transform.h"

using namespace cairn;
using namespace cairn::data;

namespace {

std::string put(const Picture& p, const std::string& out) {
  write_file(out, {reinterpret_cast<const char*>(p.row(0)), p.bytes()});
  return fmt::format("{} {} {}", p.width(), p.height(), p.channels());
}

double best_ms(int rounds, const std::function<void()>& body) {
  double best = 1e9;
  for (int i = 0; i < rounds; ++i) {
    const std::clock_t begin = std::clock();  // processor time: others may be busy
    body();
    best = std::min(best, 1000.0 * double(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return best;
}

std::string answer(const std::vector<std::string>& a) {
  if (a[0] == "decode" && a.size() == 4) {
    const Color color = a[1] == "grey" ? Color::grey : a[1] == "rgb" ? Color::rgb : Color::stored;
    const Decoded d = decode_file(a[2], color);
    std::string text = put(d.picture, a[3]);
    for (const Note& n : d.notes) text += " " + n.kind;
    return text;
  }
  if (a[0] == "resize" && a.size() == 10) {
    const Picture p = decode_file(a[1]).picture;
    const Box box{std::stoi(a[5]), std::stoi(a[6]), std::stoi(a[7]), std::stoi(a[8])};
    return put(resize(p, box, {std::stoi(a[2]), std::stoi(a[3])}, a[4] == "bicubic" ? Filter::bicubic : Filter::bilinear), a[9]);
  }
  if (a[0] == "time" && a.size() == 3) {
    const Transform transform(a[1]);
    const std::string bytes = read_file(a[2]);
    Picture picture;
    const double decoding = best_ms(7, [&] { picture = decode(bytes, transform.plan().color).picture; });
    std::vector<float> out;
    const double rest = best_ms(7, [&] {
      const Picture ready = apply_random(transform, apply_fixed(transform, picture.copy()), {});
      out.resize(ready.bytes());
      write_planes(transform, ready, out.data());
    });
    return fmt::format("{:.3f} {:.3f}", decoding, rest);
  }
  return "error request " + a[0];
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<std::string> arguments;
    std::istringstream in(line);
    for (std::string a; std::getline(in, a, '\t');) arguments.push_back(a);
    try {
      std::cout << answer(arguments) << std::endl;
    } catch (const DecodeError& e) {
      std::cout << "error " << e.kind() << " " << e.message() << std::endl;
    } catch (const std::exception& e) {
      std::cout << "error other " << e.what() << std::endl;
    }
  }
}
