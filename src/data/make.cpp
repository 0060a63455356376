// SPDX-License-Identifier: Apache-2.0
#include "data/make.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <thread>

#include "base/file.h"
#include "base/random.h"
#include "data/check.h"
#include "data/source.h"

namespace fs = std::filesystem;

namespace cairn::data {
namespace {

// Brightness, 1 is as bright as a sound cell gets. Lengths are given for a side of 300 and scaled.
class Cell {
 public:
  Cell(int side, bool poly, Random& random) : n_(side), unit_(side / 300.0), random_(random), light_(size_t(side) * size_t(side), 0.72f) {
    poly ? grains() : wafer();
  }

  // Bars run across; fingers, thin and many, run down between them.
  void contacts() {
    const int bars = 2 + int(random_.below(3));
    for (int b = 0; b < bars; ++b) bars_.push_back(n_ * (b + 0.5) / bars + random_.uniform(-4, 4) * unit_);
    const double period = random_.uniform(4.2, 6.0) * unit_, depth = random_.uniform(0.015, 0.05);
    for (int x = 0; x < n_; ++x) {
      const float f = float(1 - depth * (0.5 + 0.5 * std::cos(2 * std::numbers::pi * x / period)));
      for (int y = 0; y < n_; ++y) at(x, y) *= f;
    }
  }
  void draw_bars() {
    const double half = random_.uniform(2.2, 4.2) * unit_, dark = random_.uniform(0.25, 0.45);
    for (double bar : bars_)
      for (int y = std::max(0, int(bar - half - 2)); y < std::min<int>(n_, int(bar + half + 3)); ++y) {
        const double edge = std::clamp(half + 0.5 - std::abs(y - bar), 0.0, 1.0);
        for (int x = 0; x < n_; ++x) at(x, y) *= float(1 - edge * (1 - dark));
      }
  }

  // Dark strips along fingers, from somewhere to the next bar or rim.
  void broken_fingers(int count, double faint, double strong) {
    for (int i = 0; i < count; ++i) {
      const double x = random_.uniform(8, 292) * unit_, half = random_.uniform(1.0, 3.5) * unit_;
      const auto [top, bottom] = band(random_.uniform(0, n_));
      const double cut = random_.uniform(top, bottom), keep = random_.uniform(strong, faint);
      const bool up = random_.below(2);
      shade_box(x - half, x + half, up ? top : cut, up ? cut : bottom, keep, 1.2 * unit_);
    }
  }

  // A jagged line from a rim or from inside, sometimes forked. Returns its points.
  std::vector<std::pair<double, double>> crack(double keep, double width, int depth = 0, double x = -1, double y = -1, double angle = 0) {
    if (depth == 0) {
      x = random_.uniform(15, 285) * unit_, y = random_.uniform(15, 285) * unit_;
      angle = random_.uniform(0, 2 * std::numbers::pi);
      if (random_.below(2)) {  // from a rim inwards
        const int side = int(random_.below(4));
        (side < 2 ? x : y) = (side % 2 ? 296 : 4) * unit_;
        angle = std::atan2(n_ / 2.0 - y, n_ / 2.0 - x) + random_.uniform(-0.7, 0.7);
      }
    }
    std::vector<std::pair<double, double>> points{{x, y}};
    const int steps = int(random_.uniform(9, depth ? 18 : 34));
    double drift = 0;
    for (int s = 0; s < steps; ++s) {
      drift = 0.7 * drift + random_.uniform(-0.22, 0.22);
      angle += drift;
      const double length = random_.uniform(4, 9) * unit_, jag = angle + random_.uniform(-0.5, 0.5);
      x += length * std::cos(jag), y += length * std::sin(jag);
      if (x < 2 || y < 2 || x > n_ - 3 || y > n_ - 3) break;
      points.emplace_back(x, y);
      if (depth < 2 && random_.uniform() < 0.05)
        crack(keep, width * 0.8, depth + 1, x, y, angle + (random_.below(2) ? 1 : -1) * random_.uniform(0.5, 1.2));
    }
    for (size_t i = 1; i < points.size(); ++i) shade_line(points[i - 1], points[i], width, keep);
    return points;
  }

  // What a crack cuts off from the bar: the region between them goes dark.
  void cut_off(const std::vector<std::pair<double, double>>& points, double keep) {
    if (points.size() < 4) return;
    const auto [low, high] = std::minmax_element(points.begin(), points.end());
    const auto [top, bottom] = band(points[points.size() / 2].second);
    const double target = random_.below(2) ? top : bottom;
    for (int x = std::max(0, int(low->first)); x < std::min<int>(n_, int(high->first) + 1); ++x)
      for (size_t i = 1; i < points.size(); ++i) {
        auto a = points[i - 1], b = points[i];
        if (a.first > b.first) std::swap(a, b);
        if (x < a.first || x >= b.first) continue;
        const double y = a.second + (b.second - a.second) * (x - a.first) / (b.first - a.first);
        for (int v = int(std::max(0.0, std::min(y, target))); v < int(std::min<double>(n_, std::max(y, target))); ++v) at(x, v) *= float(keep);
        break;
      }
  }

  // An area without contact: a stretch between two bars, or a corner.
  void dead_area(double keep) {
    if (random_.below(3)) {
      const auto [top, bottom] = band(random_.uniform(0, n_));
      const double x = random_.uniform(-10, 240) * unit_, w = random_.uniform(25, 110) * unit_;
      const double y = random_.uniform(0, 0.5) * (bottom - top) * double(random_.below(2));
      shade_box(x, x + w, top + y, bottom, keep, random_.uniform(1, 5) * unit_);
    } else {
      const bool right = random_.below(2), low = random_.below(2);
      const double reach = random_.uniform(45, 130) * unit_, slope = random_.uniform(0.5, 2);
      for (int y = 0; y < n_; ++y)
        for (int x = 0; x < n_; ++x) {
          const double d = reach - (right ? n_ - x : x) - (low ? n_ - y : y) * slope;
          if (d > 0) at(x, y) *= float(1 - (1 - keep) * std::min(1.0, d / (6 * unit_)));
        }
    }
  }

  void spots(int count) {
    for (int i = 0; i < count; ++i) {
      const double cx = random_.uniform(0, n_), cy = random_.uniform(0, n_), r = random_.uniform(2, 11) * unit_;
      const double keep = random_.uniform(0.6, 0.93);
      for (int y = std::max(0, int(cy - 3 * r)); y < std::min<int>(n_, int(cy + 3 * r)); ++y)
        for (int x = std::max(0, int(cx - 3 * r)); x < std::min<int>(n_, int(cx + 3 * r)); ++x)
          at(x, y) *= float(1 - (1 - keep) * std::exp(-((x - cx) * (x - cx) + (y - cy) * (y - cy)) / (r * r)));
    }
  }
  void scratch() {  // straight and bright or faint: no crack
    const double x = random_.uniform(20, 280) * unit_, y = random_.uniform(20, 280) * unit_;
    const double a = random_.uniform(0, std::numbers::pi), l = random_.uniform(20, 90) * unit_;
    shade_line({x, y}, {x + l * std::cos(a), y + l * std::sin(a)}, 0.8 * unit_, random_.uniform(0.88, 1.12));
  }

  // Uneven light, the optics' blur, the sensor's noise and gain.
  Picture expose() {
    const double ax = random_.uniform(-0.16, 0.16), ay = random_.uniform(-0.16, 0.16), vignette = random_.uniform(0, 0.25);
    const double gain = random_.uniform(0.6, 1.15), noise = random_.uniform(0.008, 0.03);
    blur(random_.uniform(0.5, 1.1) * unit_);
    Picture out(n_, n_, 1);
    for (int y = 0; y < n_; ++y)
      for (int x = 0; x < n_; ++x) {
        const double u = 2.0 * x / n_ - 1, v = 2.0 * y / n_ - 1;
        const double light = at(x, y) * gain * (1 + ax * u + ay * v - vignette * (u * u + v * v) / 2);
        // Twelve uniforms would be normal; four are enough for noise, from one Philox block.
        double sum = -2;
        for (int k = 0; k < 4; ++k) sum += random_.next() * 0x1p-32;
        out.row(y)[x] = uint8_t(std::clamp(255 * (light + noise * std::sqrt(0.25 + light) * sum * 1.7), 0.0, 255.0));
      }
    return out;
  }

 private:
  float& at(int x, int y) { return light_[size_t(y) * size_t(n_) + size_t(x)]; }

  // The strip between bars (or rims) that row y lies in.
  std::pair<double, double> band(double y) const {
    double top = 0, bottom = n_;
    for (double bar : bars_) bar <= y ? top = std::max(top, bar) : bottom = std::min(bottom, bar);
    return {top, bottom};
  }

  // A smooth random field in about [-1, 1] whose features are `length` wide.
  std::vector<float> field(double length) {
    const int cells = std::max(2, int(n_ / length) + 2);
    std::vector<float> knots(size_t(cells + 1) * size_t(cells + 1)), out(light_.size());
    for (float& k : knots) k = float(random_.uniform(-1, 1));
    const auto smooth = [](double t) { return t * t * (3 - 2 * t); };
    for (int y = 0; y < n_; ++y)
      for (int x = 0; x < n_; ++x) {
        const double u = double(x) / n_ * (cells - 1), v = double(y) / n_ * (cells - 1);
        const int i = int(u), j = int(v);
        const double s = smooth(u - i), t = smooth(v - j);
        const float* k = &knots[size_t(j) * size_t(cells + 1) + size_t(i)];
        out[size_t(y) * size_t(n_) + size_t(x)] =
            float((k[0] * (1 - s) + k[1] * s) * (1 - t) + (k[cells + 1] * (1 - s) + k[cells + 2] * s) * t);
      }
    return out;
  }

  // Monocrystalline: even, with cut corners.
  void wafer() {
    const auto cloud = field(90 * unit_);
    const double corner = random_.uniform(18, 42) * unit_;
    for (int y = 0; y < n_; ++y)
      for (int x = 0; x < n_; ++x) {
        at(x, y) *= 1 + 0.07f * cloud[size_t(y) * size_t(n_) + size_t(x)];
        const double d = corner - std::min(x, n_ - 1 - x) - std::min(y, n_ - 1 - y);
        if (d > 0) at(x, y) *= float(std::max(0.06, 1 - d / (3 * unit_)));
      }
  }

  // Polycrystalline: grains of different brightness with ragged bounds, and dark clusters of dislocations.
  void grains() {
    const double pitch = random_.uniform(16, 34) * unit_, contrast = random_.uniform(0.05, 0.13);
    const auto bend_x = field(14 * unit_), bend_y = field(14 * unit_), cluster = field(30 * unit_), lobes = field(11 * unit_), fine = field(5 * unit_);
    // Each square of a grid holds one grain's centre; bends reach less than one square beyond the cell.
    struct Grain {
      float x, y, tone;
    };
    const int squares = int(n_ / pitch) + 6;
    std::vector<Grain> grain(size_t(squares) * size_t(squares));
    for (Grain& g : grain) g = {float(random_.uniform()), float(random_.uniform()), float(random_.uniform(-1, 1))};
    const double clusters = random_.uniform(0.25, 0.6);
    for (int y = 0; y < n_; ++y)
      for (int x = 0; x < n_; ++x) {
        const size_t i = size_t(y) * size_t(n_) + size_t(x);
        const float u = float((x + 7 * unit_ * bend_x[i]) / pitch + 2), v = float((y + 7 * unit_ * bend_y[i]) / pitch + 2);
        float best = 1e9f, second = 1e9f, tone = 0;
        for (int b = int(v) - 1; b <= int(v) + 1; ++b)
          for (int a = int(u) - 1; a <= int(u) + 1; ++a) {
            const Grain& g = grain[size_t(b) * size_t(squares) + size_t(a)];
            const float dx = float(a) + g.x - u, dy = float(b) + g.y - v, d = dx * dx + dy * dy;
            if (d < best) second = best, best = d, tone = g.tone;
            else second = std::min(second, d);
          }
        const double bound = std::sqrt(second) - std::sqrt(best) < 0.06 ? 0.96 : 1.0;
        const double dark = std::clamp((0.8 * cluster[i] + 0.4 * lobes[i] - clusters) * 1.6, 0.0, 0.5) * (0.6 + 0.4 * fine[i]);
        at(x, y) *= float((1 + contrast * tone) * bound * (1 - dark));
      }
  }

  void shade_box(double x0, double x1, double y0, double y1, double keep, double soft) {
    for (int y = std::max(0, int(y0 - soft)); y < std::min<int>(n_, int(y1 + soft) + 1); ++y)
      for (int x = std::max(0, int(x0 - soft)); x < std::min<int>(n_, int(x1 + soft) + 1); ++x) {
        const double inside = std::min(std::min(x - x0, x1 - x), std::min(y - y0, y1 - y));
        at(x, y) *= float(1 - (1 - keep) * std::clamp(inside / soft + 0.5, 0.0, 1.0));
      }
  }

  void shade_line(std::pair<double, double> a, std::pair<double, double> b, double width, double keep) {
    const double dx = b.first - a.first, dy = b.second - a.second, square = std::max(1e-9, dx * dx + dy * dy);
    const double reach = width + 1;
    for (int y = std::max(0, int(std::min(a.second, b.second) - reach)); y <= std::min<int>(n_ - 1, int(std::max(a.second, b.second) + reach)); ++y)
      for (int x = std::max(0, int(std::min(a.first, b.first) - reach)); x <= std::min<int>(n_ - 1, int(std::max(a.first, b.first) + reach)); ++x) {
        const double t = std::clamp(((x - a.first) * dx + (y - a.second) * dy) / square, 0.0, 1.0);
        const double d = std::hypot(x - a.first - t * dx, y - a.second - t * dy);
        at(x, y) *= float(1 - (1 - keep) * std::clamp(width - d + 0.5, 0.0, 1.0));
      }
  }

  void blur(double sigma) {
    const int r = std::max(1, int(std::ceil(2.5 * sigma)));
    std::vector<float> kernel, line(static_cast<size_t>(n_));
    float sum = 0;
    for (int k = -r; k <= r; ++k) kernel.push_back(float(std::exp(-k * k / (2 * sigma * sigma)))), sum += kernel.back();
    const auto pass = [&](size_t start, size_t step) {
      for (int i = 0; i < n_; ++i) {
        float total = 0;
        for (int k = -r; k <= r; ++k) total += kernel[size_t(k + r)] * light_[start + step * size_t(std::clamp(i + k, 0, n_ - 1))];
        line[size_t(i)] = total / sum;
      }
      for (int i = 0; i < n_; ++i) light_[start + step * size_t(i)] = line[size_t(i)];
    };
    for (int i = 0; i < n_; ++i) pass(size_t(i) * size_t(n_), 1);
    for (int i = 0; i < n_; ++i) pass(size_t(i), size_t(n_));
  }

  int n_;
  double unit_;
  Random& random_;
  std::vector<float> light_;
  std::vector<double> bars_;
};

// The classes are spread evenly over the indices, whatever the count.
bool chosen(int64_t index, double share, double offset) {
  return std::floor((double(index) + 1) * share + offset) > std::floor(double(index) * share + offset);
}

}  // namespace

DrawnCell draw_cell(const MakeOptions& options, int64_t index) {
  constexpr uint64_t kMake = hash("make solar cell");
  Random random(mix(options.seed, kMake), uint64_t(index));
  DrawnCell out;
  out.defective = chosen(index, options.defective, 0);
  out.poly = uniform_float(random.next()) < options.poly;
  Cell cell(options.size, out.poly, random);
  cell.contacts();
  if (out.defective) {
    const double kind = random.uniform(), unit = options.size / 300.0;
    if (kind < 0.65) {
      const int cracks = 1 + int(random.below(kind < 0.15 ? 4 : 2));
      for (int i = 0; i < cracks; ++i) {
        const auto points = cell.crack(random.uniform(0.25, 0.72), random.uniform(0.7, 1.7) * unit);
        if (random.uniform() < 0.4) cell.cut_off(points, random.uniform(0.3, 0.8));
      }
    } else if (kind < 0.85) {
      cell.dead_area(random.uniform(0.2, 0.68));
    } else {
      cell.broken_fingers(7 + int(random.below(10)), 0.75, 0.35);
    }
  }
  cell.broken_fingers(int(random.below(4)), 0.95, 0.72);
  cell.spots(int(random.below(5)));
  if (random.below(3) == 0) cell.scratch();
  cell.draw_bars();
  out.picture = cell.expose();
  return out;
}

void make_solar_cells(const std::string& folder, const MakeOptions& options, const std::function<void(int64_t)>& progress) {
  if (options.count < 1 || options.count > 10'000'000)
    fail(ErrorCode::invalid_argument, fmt::format("data make: count: got {}, expected 1 to 10000000", options.count));
  if (options.size < 32 || options.size > 4096)
    fail(ErrorCode::invalid_argument, fmt::format("data make: size: got {}, expected 32 to 4096", options.size));
  for (double share : {options.defective, options.poly})
    if (!(share >= 0 && share <= 1)) fail(ErrorCode::invalid_argument, fmt::format("data make: share: got {}, expected 0 to 1", share));
  std::string name = folder;
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  std::error_code error;
  if (fs::exists(fs::symlink_status(name, error)) && !(fs::is_directory(name, error) && fs::is_empty(name, error)))
    fail(ErrorCode::invalid_argument, fmt::format("data make: {} is there already", printable(folder)),
         "Give a new folder; Cairn does not write over pictures");
  const fs::path parent = fs::path(name).has_parent_path() ? fs::path(name).parent_path() : fs::path(".");
  const fs::path work = parent / fmt::format(".cairn_make.{}.tmp", ::getpid());
  const auto check = [&](const std::error_code& e) {
    if (e) fail(ErrorCode::io, fmt::format("data make: cannot write {}: {}", printable(folder), e.message()));
  };
  fs::create_directories(work / "functional", error);
  check(error);
  try {
    fs::create_directories(work / "defective", error);
    check(error);
    std::vector<std::string> rows(static_cast<size_t>(options.count));
    std::atomic<int64_t> done{0};
    for_each_on_workers(options.count, worker_count(int(std::thread::hardware_concurrency())), [&](int64_t i) {
      const DrawnCell cell = draw_cell(options, i);
      const char* label = cell.defective ? "defective" : "functional";
      const std::string path = fmt::format("{}/{:05}.png", label, i + 1);
      const std::string bytes = encode_png(cell.picture, 1);  // noise hardly packs
      std::ofstream out(work / path, std::ios::binary);  // not synced each: the folder is renamed at the end
      out.write(bytes.data(), std::streamsize(bytes.size()));
      out.close();
      if (!out) fail(ErrorCode::io, fmt::format("data make: cannot write {}", printable(work / path)));
      rows[size_t(i)] = fmt::format("{},{},{}\n", path, label, cell.poly ? "poly" : "mono");
      if (progress) progress(++done);
    });
    write_file(work / kListName, fmt::format("path,label,type\n{}", fmt::join(rows, "")));
    fs::rename(work, name, error);
    check(error);
  } catch (...) {
    fs::remove_all(work, error);
    throw;
  }
}

}  // namespace cairn::data
