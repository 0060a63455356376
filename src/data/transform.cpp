// SPDX-License-Identifier: Apache-2.0
#include "data/transform.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numbers>
#include <type_traits>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace cairn::data {
namespace {

// --- resize: weights in 10.22 fixed point, so that sums are exact in 32 bits ---

constexpr int kWeightBits = 22;
// For SSE2, which multiplies 16 bits: w = high · 2^15 + low, summed apart, exact up to this many taps.
constexpr int kLowBits = 15, kMaxSplitTaps = 256;

struct Taps {
  int count = 0;                 // weights kept for each output: a multiple of 8, zeros behind those used
  std::vector<int> first, used;  // first input, and how many, for each output
  std::vector<int32_t> weights;  // [output][count]
  std::vector<int16_t> low, high;
};

double filter_value(Filter filter, double x) {
  x = std::abs(x);
  if (filter == Filter::bilinear) return x < 1 ? 1 - x : 0;
  constexpr double a = -0.5;
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

Taps make_taps(int in, int out, Filter filter) {
  const double scale = double(in) / out, stretch = std::max(scale, 1.0);
  const double support = (filter == Filter::bilinear ? 1.0 : 2.0) * stretch;
  Taps taps;
  taps.count = (int(std::ceil(support)) * 2 + 1 + 7) / 8 * 8;
  taps.first.resize(size_t(out));
  taps.used.resize(size_t(out));
  taps.weights.assign(size_t(out) * size_t(taps.count), 0);
  std::vector<double> weights(size_t(taps.count), 0.0);
  for (int i = 0; i < out; ++i) {
    const double center = (i + 0.5) * scale;
    const int first = std::max(0, int(center - support + 0.5));
    const int used = std::min(in, int(center + support + 0.5)) - first;
    double sum = 0;
    for (int k = 0; k < used; ++k)
      sum += weights[size_t(k)] = filter_value(filter, (k + first - center + 0.5) * (1.0 / stretch));
    for (int k = 0; k < used; ++k) {
      const double w = weights[size_t(k)] / sum * (1 << kWeightBits);
      taps.weights[size_t(i) * size_t(taps.count) + size_t(k)] = int32_t(w < 0 ? w - 0.5 : w + 0.5);
    }
    taps.first[size_t(i)] = first;
    taps.used[size_t(i)] = used;
  }
  for (const int32_t w : taps.weights) {
    taps.low.push_back(int16_t(w & ((1 << kLowBits) - 1)));
    taps.high.push_back(int16_t(w >> kLowBits));
  }
  return taps;
}

uint8_t to_byte(int32_t sum) { return uint8_t(std::clamp(sum >> kWeightBits, 0, 255)); }

// One row across: output i is the weighted sum of the pixels from first[i] on.
template <int C>
void resize_across_plain(const uint8_t* in, uint8_t* out, const Taps& taps) {
  const int32_t* w = taps.weights.data();
  for (size_t i = 0; i < taps.first.size(); ++i, w += taps.count, out += C) {
    const uint8_t* from = in + taps.first[i] * C;
    int32_t sum[C];
    for (int c = 0; c < C; ++c) sum[c] = 1 << (kWeightBits - 1);
    for (int k = 0; k < taps.used[i]; ++k, from += C)
      for (int c = 0; c < C; ++c) sum[c] += from[c] * w[k];
    for (int c = 0; c < C; ++c) out[c] = to_byte(sum[c]);
  }
}

// One row down: the weighted sum of `used` whole rows. row(k) is the address of the k-th.
template <class Row>
void resize_down_plain(const Row& row, uint8_t* out, size_t width, const Taps& taps, size_t i) {
  const int32_t* w = &taps.weights[i * size_t(taps.count)];
  std::vector<int32_t> sums(width, 1 << (kWeightBits - 1));
  for (int k = 0; k < taps.used[i]; ++k) {
    const uint8_t* line = row(k);
    for (size_t x = 0; x < width; ++x) sums[x] += line[x] * w[k];
  }
  for (size_t x = 0; x < width; ++x) out[x] = to_byte(sums[x]);
}

#ifdef __SSE2__
// These read and write a little beyond the row's end, which Picture::kSlack allows.
static_assert(Picture::kSlack >= 16);

__m128i load(const void* at) { return _mm_loadu_si128(static_cast<const __m128i*>(at)); }
__m128i load_half(const void* at) { return _mm_loadl_epi64(static_cast<const __m128i*>(at)); }
__m128i total(__m128i low, __m128i high) {
  return _mm_add_epi32(_mm_slli_epi32(high, kLowBits), low);
}

void resize_across(const uint8_t* in, uint8_t* out, const Taps& taps, std::integral_constant<int, 1>) {
  const __m128i zero = _mm_setzero_si128();
  const int16_t *l = taps.low.data(), *h = taps.high.data();
  for (size_t i = 0; i < taps.first.size(); ++i, l += taps.count, h += taps.count) {
    const uint8_t* from = in + taps.first[i];
    __m128i low = zero, high = zero;
    for (int k = 0; k < taps.used[i]; k += 8) {  // eight neighbours at once
      const __m128i p = _mm_unpacklo_epi8(load_half(from + k), zero);
      low = _mm_add_epi32(low, _mm_madd_epi16(p, load(l + k)));
      high = _mm_add_epi32(high, _mm_madd_epi16(p, load(h + k)));
    }
    __m128i sum = total(low, high);
    sum = _mm_add_epi32(sum, _mm_srli_si128(sum, 8));
    sum = _mm_add_epi32(sum, _mm_srli_si128(sum, 4));
    out[i] = to_byte(_mm_cvtsi128_si32(sum) + (1 << (kWeightBits - 1)));
  }
}

void resize_across(const uint8_t* in, uint8_t* out, const Taps& taps, std::integral_constant<int, 3>) {
  const __m128i zero = _mm_setzero_si128(), half = _mm_set1_epi32(1 << (kWeightBits - 1));
  const int16_t *l = taps.low.data(), *h = taps.high.data();
  const auto pair = [](const int16_t* at) {
    int32_t both;
    std::memcpy(&both, at, 4);
    return _mm_set1_epi32(both);
  };
  for (size_t i = 0; i < taps.first.size(); ++i, l += taps.count, h += taps.count, out += 3) {
    const uint8_t* from = in + taps.first[i] * 3;
    __m128i low = half, high = zero;
    for (int k = 0; k < taps.used[i]; k += 2, from += 6) {  // two neighbours: r r g g b b
      const __m128i p = load_half(from);
      const __m128i both = _mm_unpacklo_epi8(_mm_unpacklo_epi8(p, _mm_srli_si128(p, 3)), zero);
      low = _mm_add_epi32(low, _mm_madd_epi16(both, pair(l + k)));
      high = _mm_add_epi32(high, _mm_madd_epi16(both, pair(h + k)));
    }
    const __m128i sum = _mm_srai_epi32(total(low, high), kWeightBits);
    const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(_mm_packs_epi32(sum, sum), zero));
    std::memcpy(out, &bytes, 4);  // the fourth byte is overwritten next
  }
}

template <class Row>
void resize_down(const Row& row, uint8_t* out, size_t width, const Taps& taps, size_t i) {
  const __m128i zero = _mm_setzero_si128(), half = _mm_set1_epi32(1 << (kWeightBits - 1));
  const size_t at = i * size_t(taps.count);
  const int used = taps.used[i];
  for (size_t x = 0; x < width; x += 16) {
    __m128i low[4] = {half, half, half, half}, high[4] = {zero, zero, zero, zero};
    for (int k = 0; k < used; k += 2) {  // two rows at once
      const __m128i a = load(row(k) + x), b = load(row(k + 1 < used ? k + 1 : k) + x);
      int32_t l, h;
      std::memcpy(&l, &taps.low[at + size_t(k)], 4);
      std::memcpy(&h, &taps.high[at + size_t(k)], 4);
      const __m128i wl = _mm_set1_epi32(l), wh = _mm_set1_epi32(h);
      const __m128i left = _mm_unpacklo_epi8(a, b), right = _mm_unpackhi_epi8(a, b);
      const __m128i p[4] = {_mm_unpacklo_epi8(left, zero), _mm_unpackhi_epi8(left, zero),
                            _mm_unpacklo_epi8(right, zero), _mm_unpackhi_epi8(right, zero)};
      for (int q = 0; q < 4; ++q) {
        low[q] = _mm_add_epi32(low[q], _mm_madd_epi16(p[q], wl));
        high[q] = _mm_add_epi32(high[q], _mm_madd_epi16(p[q], wh));
      }
    }
    __m128i sum[4];
    for (int q = 0; q < 4; ++q) sum[q] = _mm_srai_epi32(total(low[q], high[q]), kWeightBits);
    const __m128i bytes = _mm_packus_epi16(_mm_packs_epi32(sum[0], sum[1]), _mm_packs_epi32(sum[2], sum[3]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + x), bytes);
  }
}
#endif

template <int C>
void across(const uint8_t* in, uint8_t* out, const Taps& taps) {
#ifdef __SSE2__
  if (taps.count <= kMaxSplitTaps) return resize_across(in, out, taps, std::integral_constant<int, C>());
#endif
  resize_across_plain<C>(in, out, taps);
}

template <class Row>
void down(const Row& row, uint8_t* out, size_t width, const Taps& taps, size_t i) {
#ifdef __SSE2__
  if (taps.count <= kMaxSplitTaps) return resize_down(row, out, width, taps, i);
#endif
  resize_down_plain(row, out, width, taps, i);
}

// --- reading and printing recipes ---

std::string number(double v) { return fmt::format("{}", v); }

// One step of a recipe as text: name=a:b:c. Every complaint names the step.
class Arguments {
 public:
  explicit Arguments(std::string_view text) : text_(text) {
    const size_t equals = text.find('=');
    name_ = text.substr(0, equals);
    if (equals == text.npos) return;
    for (std::string_view rest = text.substr(equals + 1);;) {
      const size_t colon = rest.find(':');
      items_.push_back(rest.substr(0, colon));
      if (colon == rest.npos) break;
      rest.remove_prefix(colon + 1);
    }
  }
  std::string_view name() const { return name_; }
  bool next_is(std::string_view word) const { return at_ < items_.size() && items_[at_] == word; }

  double number(double low, double high, std::optional<double> otherwise = {}) {
    if (at_ == items_.size() && otherwise) return *otherwise;
    return read(take(), low, high);
  }
  void range(double (&to)[2], double low, double high) {  // "A-B"; `to` holds the default
    if (at_ == items_.size() || items_[at_] == "bicubic") return;
    const std::string_view item = take();
    const size_t dash = item.find('-');
    if (dash == item.npos) bad("expected a range such as 0.5-1");
    to[0] = read(item.substr(0, dash), low, high);
    to[1] = read(item.substr(dash + 1), low, high);
    if (to[0] > to[1]) bad("a range goes from low to high");
  }
  std::vector<double> list(double low, double high) {  // "a/b/c"
    std::vector<double> out;
    for (std::string_view rest = take();;) {
      const size_t slash = rest.find('/');
      out.push_back(read(rest.substr(0, slash), low, high));
      if (slash == rest.npos) return out;
      rest.remove_prefix(slash + 1);
    }
  }
  Size size() {
    const std::string_view item = take();
    const size_t x = item.find('x');
    const int width = side(item.substr(0, x));
    return {width, x == item.npos ? width : side(item.substr(x + 1))};
  }
  int side() { return side(take()); }
  Filter filter() {
    if (at_ == items_.size()) return Filter::bilinear;
    const std::string_view item = take();
    if (item == "bicubic") return Filter::bicubic;
    if (item != "bilinear") bad("the filter is bilinear or bicubic");
    return Filter::bilinear;
  }
  void done() const {
    if (at_ != items_.size()) bad("too many values");
  }
  [[noreturn]] void bad(std::string_view why) const {
    fail(ErrorCode::parse, fmt::format("transform: \"{}\": {}", text_, why),
         "E.g. \"grey,resize=128,hflip,normalize=0.5:0.25\"; docs/guide/train-your-own.md lists the steps and their values");
  }

 private:
  std::string_view take() {
    if (at_ == items_.size()) bad("a value is missing");
    return items_[at_++];
  }
  double read(std::string_view item, double low, double high) const {
    double v = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), v);
    if (error != std::errc() || end != item.data() + item.size() || !std::isfinite(v))
      bad(fmt::format("got \"{}\", expected a number", item));
    if (v < low || v > high) bad(fmt::format("got {}, expected {} to {}", v, low, high));
    return v;
  }
  int side(std::string_view item) const {
    int v = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), v);
    if (error != std::errc() || end != item.data() + item.size() || v < 1 || v > 16384)
      bad(fmt::format("got \"{}\", expected a side of 1 to 16384 pixels", item));
    return v;
  }
  std::string_view text_, name_;
  std::vector<std::string_view> items_;
  size_t at_ = 0;
};

std::string print(Size s) {
  return s.width == s.height ? fmt::format("{}", s.width) : fmt::format("{}x{}", s.width, s.height);
}
std::string print(Filter f) { return f == Filter::bicubic ? ":bicubic" : ""; }
std::string print(const ResizeStep& s) { return "resize=" + print(s.to) + print(s.filter); }
std::string print(const ResizeShortStep& s) { return fmt::format("resize_short={}{}", s.shorter, print(s.filter)); }
std::string print(const CenterCropStep& s) { return "center_crop=" + print(s.to); }
std::string print(const RandomResizedCropStep& s) {
  return fmt::format("random_resized_crop={}:{}-{}:{}-{}{}", print(s.to), number(s.area[0]), number(s.area[1]),
                     number(s.ratio[0]), number(s.ratio[1]), print(s.filter));
}
std::string print(const FlipStep& s) {
  return fmt::format("{}={}", s.horizontal ? "hflip" : "vflip", number(s.probability));
}
std::string print(const QuarterTurnStep&) { return "rot90"; }
std::string print(const AffineStep& s) {
  return fmt::format("affine={}:{}:{}-{}:{}", number(s.degrees), number(s.translate), number(s.scale[0]),
                     number(s.scale[1]), number(s.shear));
}
std::string print(const JitterStep& s) {
  return fmt::format("jitter={}:{}:{}", number(s.brightness), number(s.contrast), number(s.saturation));
}

bool draws_lots(const Step& step) {
  return !std::holds_alternative<ResizeStep>(step) && !std::holds_alternative<ResizeShortStep>(step) &&
         !std::holds_alternative<CenterCropStep>(step);
}

std::optional<Step> parse_step(Arguments& a) {
  if (a.name() == "resize") {
    const Size to = a.size();
    return ResizeStep{to, a.filter()};
  }
  if (a.name() == "resize_short") {
    const int shorter = a.side();
    return ResizeShortStep{shorter, a.filter()};
  }
  if (a.name() == "center_crop") return CenterCropStep{a.size()};
  if (a.name() == "random_resized_crop") {
    RandomResizedCropStep s{a.size(), {0.08, 1}, {0.75, 1.3333}, Filter::bilinear};
    a.range(s.area, 1e-4, 1);
    a.range(s.ratio, 0.01, 100);
    s.filter = a.filter();
    return s;
  }
  if (a.name() == "hflip" || a.name() == "vflip") return FlipStep{a.name() == "hflip", a.number(0, 1, 0.5)};
  if (a.name() == "rot90") return QuarterTurnStep{};
  if (a.name() == "affine") {
    AffineStep s{a.number(0, 180), a.number(0, 1, 0.0), {1, 1}, 0};
    a.range(s.scale, 0.1, 10);
    s.shear = a.number(0, 45, 0.0);
    return s;
  }
  if (a.name() == "jitter") {
    const double b = a.number(0, 1), c = a.number(0, 1, 0.0), s = a.number(0, 1, 0.0);
    return JitterStep{b, c, s};
  }
  return {};
}

void finish(Transform::Plan& plan) {
  const size_t channels = plan.color == Color::grey ? 1 : 3;
  plan.recipe = plan.color == Color::grey ? "grey" : "rgb";
  for (const Step& step : plan.steps) {
    plan.recipe += ',';
    plan.recipe += std::visit([](const auto& s) { return print(s); }, step);
  }
  plan.fixed_steps = 0;
  while (plan.fixed_steps < plan.steps.size() && !draws_lots(plan.steps[plan.fixed_steps])) ++plan.fixed_steps;
  if (plan.normalized) plan.recipe += fmt::format(",normalize={}:{}", fmt::join(plan.mean, "/"), fmt::join(plan.spread, "/"));
  plan.table.resize(channels * 256);
  for (size_t c = 0; c < channels; ++c)
    for (size_t v = 0; v < 256; ++v) {
      const double mean = plan.normalized ? plan.mean[plan.mean.size() == 1 ? 0 : c] : 0;
      const double spread = plan.normalized ? plan.spread[plan.spread.size() == 1 ? 0 : c] : 1;
      plan.table[c * 256 + v] = float((double(v) / 255.0 - mean) / spread);
    }
}

std::shared_ptr<const Transform::Plan> parse(std::string_view recipe) {
  auto plan = std::make_shared<Transform::Plan>();
  for (size_t index = 0; !recipe.empty(); ++index) {
    const size_t comma = recipe.find(',');
    Arguments a(recipe.substr(0, comma));
    recipe = comma == recipe.npos ? "" : recipe.substr(comma + 1);
    if (plan->normalized) a.bad("nothing can follow normalize");
    const size_t channels = plan->color == Color::grey ? 1 : 3;
    if (a.name() == "rgb" || a.name() == "grey") {
      if (index != 0) a.bad("the colour comes first");
      plan->color = a.name() == "grey" ? Color::grey : Color::rgb;
    } else if (a.name() == "normalize") {
      plan->mean = a.list(-10, 10);
      plan->spread = a.list(1e-6, 1e6);
      for (const auto& list : {plan->mean, plan->spread})
        if (list.size() != 1 && list.size() != channels)
          a.bad(fmt::format("got {} values, expected 1 or {}", list.size(), channels));
      plan->normalized = true;
    } else if (auto step = parse_step(a)) {
      plan->steps.push_back(*step);
    } else {
      a.bad("there is no such step");
    }
    a.done();
  }
  finish(*plan);
  return plan;
}

// --- what each step does ---

Size shortened(Size in, int shorter) {
  const auto other = [&](int longer, int side) {
    return std::clamp(int(std::lround(double(longer) * shorter / side)), 1, 1 << 20);
  };
  return in.width <= in.height ? Size{shorter, other(in.height, in.width)} : Size{other(in.width, in.height), shorter};
}

Picture resized(const Picture& p, Size to, Filter filter) {
  return resize(p, {0, 0, p.width(), p.height()}, to, filter);
}

// A part of the picture by area and proportions; after ten tries that do not fit, the largest middle part.
Box draw_box(const RandomResizedCropStep& s, Size in, Random& random) {
  const double area = double(in.width) * in.height;
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * random.uniform(s.area[0], s.area[1]);
    const double ratio = std::exp(random.uniform(std::log(s.ratio[0]), std::log(s.ratio[1])));
    const auto width = std::lround(std::sqrt(target * ratio)), height = std::lround(std::sqrt(target / ratio));
    if (width < 1 || height < 1 || width > in.width || height > in.height) continue;
    const int x = int(random.below(uint32_t(in.width - width + 1)));
    const int y = int(random.below(uint32_t(in.height - height + 1)));
    return {x, y, int(width), int(height)};
  }
  const double ratio = std::clamp(double(in.width) / in.height, s.ratio[0], s.ratio[1]);
  const int width = std::clamp(int(std::lround(in.height * ratio)), 1, in.width);
  const int height = std::clamp(int(std::lround(in.width / ratio)), 1, in.height);
  return {(in.width - width) / 2, (in.height - height) / 2, width, height};
}

Picture run(const ResizeStep& s, Picture p, Random*) {
  if (p.size() == s.to) return p;
  return resized(p, s.to, s.filter);
}
Picture run(const ResizeShortStep& s, Picture p, Random*) {
  const Size to = shortened(p.size(), s.shorter);
  if (p.size() == to) return p;
  return resized(p, to, s.filter);
}
Picture run(const CenterCropStep& s, Picture p, Random*) {
  if (p.width() < s.to.width || p.height() < s.to.height)
    fail(ErrorCode::shape_mismatch,
         fmt::format("transform: center_crop={} on a picture of {} x {}", print(s.to), p.width(), p.height()),
         "Put resize=… or resize_short=… before it");
  return crop(p, {(p.width() - s.to.width) / 2, (p.height() - s.to.height) / 2, s.to.width, s.to.height});
}
Picture run(const RandomResizedCropStep& s, Picture p, Random* random) {
  return resize(p, draw_box(s, p.size(), *random), s.to, s.filter);
}
Picture run(const FlipStep& s, Picture p, Random* random) {
  if (random->uniform() < s.probability) s.horizontal ? flip_horizontal(p) : flip_vertical(p);
  return p;
}
Picture run(const QuarterTurnStep&, Picture p, Random* random) {
  const int quarters = int(random->below(4));
  if (quarters == 0) return p;
  return turn(p, quarters);
}
Picture run(const AffineStep& s, Picture p, Random* random) {
  AffineMap map;
  map.degrees = random->uniform(-s.degrees, s.degrees);
  map.dx = random->uniform(-s.translate, s.translate) * p.width();
  map.dy = random->uniform(-s.translate, s.translate) * p.height();
  map.scale = std::exp(random->uniform(std::log(s.scale[0]), std::log(s.scale[1])));
  map.shear_degrees = random->uniform(-s.shear, s.shear);
  return warp(p, map);
}
Picture run(const JitterStep& s, Picture p, Random* random) {
  const double b = random->uniform(1 - s.brightness, 1 + s.brightness);
  const double c = random->uniform(1 - s.contrast, 1 + s.contrast);
  const double d = random->uniform(1 - s.saturation, 1 + s.saturation);
  adjust_color(p, b, c, d);
  return p;
}

Picture run(const Step& step, Picture p, Random* random) {
  return std::visit([&](const auto& s) { return run(s, std::move(p), random); }, step);
}

Size size_after(const Step& step, Size in) {
  if (auto* s = std::get_if<ResizeStep>(&step)) return s->to;
  if (auto* s = std::get_if<ResizeShortStep>(&step)) return shortened(in, s->shorter);
  if (auto* s = std::get_if<CenterCropStep>(&step)) return s->to;
  if (auto* s = std::get_if<RandomResizedCropStep>(&step)) return s->to;
  return in;  // a quarter turn of what is not square has no one size; loaders find that out
}

bool fixes_size(const Step& step) { return size_after(step, {1, 2}) == size_after(step, {7, 5}); }

}  // namespace

// --- pixel operations ---

Picture resize(const Picture& in, Box from, Size to, Filter filter) {
  CAIRN_CHECK(from.x >= 0 && from.y >= 0 && from.width > 0 && from.height > 0 &&
                  from.x + from.width <= in.width() && from.y + from.height <= in.height(), "resize box");
  const int c = in.channels();
  const bool wider = to.width != from.width, taller = to.height != from.height;
  if (!wider && !taller) return crop(in, from);
  const auto line = [&](int y) { return in.row(from.y + y) + size_t(from.x) * size_t(c); };
  Picture middle;  // (from.height, to.width); not made when the width stays
  if (wider) {
    const Taps taps = make_taps(from.width, to.width, filter);
    middle = Picture(to.width, from.height, c);
    for (int y = 0; y < from.height; ++y)
      c == 1 ? across<1>(line(y), middle.row(y), taps) : across<3>(line(y), middle.row(y), taps);
    if (!taller) return middle;
  }
  const Taps taps = make_taps(from.height, to.height, filter);
  Picture out(to.width, to.height, c);
  for (int y = 0; y < to.height; ++y) {
    const int first = taps.first[size_t(y)];
    const auto row = [&](int k) { return wider ? middle.row(first + k) : line(first + k); };
    down(row, out.row(y), out.stride(), taps, size_t(y));
  }
  return out;
}

Picture crop(const Picture& in, Box box) {
  CAIRN_CHECK(box.x >= 0 && box.y >= 0 && box.x + box.width <= in.width() && box.y + box.height <= in.height(),
              "crop box");
  Picture out(box.width, box.height, in.channels());
  for (int y = 0; y < box.height; ++y)
    std::memcpy(out.row(y), in.row(box.y + y) + size_t(box.x) * size_t(in.channels()), out.stride());
  return out;
}

Picture turn(const Picture& in, int quarters) {
  static constexpr int kOrientation[] = {1, 6, 3, 8};
  return apply_orientation(in.copy(), kOrientation[quarters & 3]);
}

void flip_horizontal(Picture& p) {
  const size_t c = size_t(p.channels());
  for (int y = 0; y < p.height(); ++y) {
    uint8_t* row = p.row(y);
    if (c == 1) {
      std::reverse(row, row + p.width());
    } else {
      for (uint8_t *a = row, *b = row + p.stride() - c; a < b; a += c, b -= c) std::swap_ranges(a, a + c, b);
    }
  }
}

void flip_vertical(Picture& p) {
  for (int a = 0, b = p.height() - 1; a < b; ++a, --b) std::swap_ranges(p.row(a), p.row(a) + p.stride(), p.row(b));
}

Picture warp(const Picture& in, const AffineMap& map) {
  constexpr double kRadians = std::numbers::pi / 180;
  const double a = map.degrees * kRadians, shear = std::tan(map.shear_degrees * kRadians);
  const double cos = std::cos(a), sin = std::sin(a);
  // Forward matrix scale · shear · rotation, inverted.
  const double m00 = map.scale * (cos + shear * sin), m01 = map.scale * (-sin + shear * cos);
  const double m10 = map.scale * sin, m11 = map.scale * cos;
  const double det = m00 * m11 - m01 * m10;
  const double i00 = m11 / det, i01 = -m01 / det, i10 = -m10 / det, i11 = m00 / det;
  const int w = in.width(), h = in.height(), c = in.channels();
  const double cx = (w - 1) / 2.0, cy = (h - 1) / 2.0;
  Picture out(w, h, c);
  for (int y = 0; y < h; ++y) {
    uint8_t* to = out.row(y);
    for (int x = 0; x < w; ++x, to += c) {
      const double dx = x - cx - map.dx, dy = y - cy - map.dy;
      const double sx = std::clamp(i00 * dx + i01 * dy + cx, 0.0, double(w - 1));
      const double sy = std::clamp(i10 * dx + i11 * dy + cy, 0.0, double(h - 1));
      const int x0 = int(sx), y0 = int(sy), x1 = std::min(x0 + 1, w - 1), y1 = std::min(y0 + 1, h - 1);
      const int fx = int((sx - x0) * 256 + 0.5), fy = int((sy - y0) * 256 + 0.5);
      const uint8_t *top = in.row(y0), *bottom = in.row(y1);
      for (int k = 0; k < c; ++k) {
        const int upper = top[x0 * c + k] * (256 - fx) + top[x1 * c + k] * fx;
        const int lower = bottom[x0 * c + k] * (256 - fx) + bottom[x1 * c + k] * fx;
        to[k] = uint8_t((upper * (256 - fy) + lower * fy + 32768) >> 16);
      }
    }
  }
  return out;
}

void adjust_color(Picture& p, double brightness, double contrast, double saturation) {
  uint8_t* v = p.row(0);
  const size_t count = p.bytes(), c = size_t(p.channels());
  const auto grey = [&](const uint8_t* at) {
    return c == 1 ? at[0] : (19595u * at[0] + 38470u * at[1] + 7471u * at[2] + 32768u) >> 16;
  };
  const auto byte = [](double x) { return uint8_t(std::clamp(std::lround(x), 0L, 255L)); };
  const auto through_table = [&](auto&& f) {
    uint8_t table[256];
    for (int i = 0; i < 256; ++i) table[i] = byte(f(i));
    for (size_t i = 0; i < count; ++i) v[i] = table[v[i]];
  };
  if (brightness != 1) through_table([&](int i) { return i * brightness; });
  if (contrast != 1) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i += c) sum += grey(v + i);
    const double mean = std::round(double(sum) / double(count / c));
    through_table([&](int i) { return mean + (i - mean) * contrast; });
  }
  if (saturation != 1 && c == 3)
    for (size_t i = 0; i < count; i += 3) {
      const double g = grey(v + i);
      for (size_t k = 0; k < 3; ++k) v[i + k] = byte(g + (v[i + k] - g) * saturation);
    }
}

// --- Transform ---

Transform::Transform(std::string_view recipe) : plan_(parse(recipe)) {}
const std::string& Transform::recipe() const { return plan_->recipe; }
int Transform::channels() const { return plan_->color == Color::grey ? 1 : 3; }
bool Transform::random() const { return plan_->fixed_steps < plan_->steps.size(); }

Transform Transform::eval() const {
  auto plan = std::make_shared<Plan>(*plan_);
  plan->steps.clear();
  for (const Step& step : plan_->steps) {
    if (auto* s = std::get_if<RandomResizedCropStep>(&step)) plan->steps.push_back(ResizeStep{s->to, s->filter});
    else if (!draws_lots(step)) plan->steps.push_back(step);
  }
  finish(*plan);
  Transform out = *this;
  out.plan_ = std::move(plan);
  return out;
}

Size Transform::output_size(Size input) const {
  for (const Step& step : plan_->steps) input = size_after(step, input);
  return input;
}

std::optional<Size> Transform::output_size() const {
  for (const Step& step : plan_->steps)
    if (fixes_size(step)) {
      // A turn behind it keeps the size only when it is square.
      return output_size({1, 1});
    }
  return {};
}

Transform resize(int size) { return fmt::format("rgb,resize={},normalize=0.5:0.25", size); }
Transform augment(int size) {
  return fmt::format("rgb,random_resized_crop={}:0.5-1:0.75-1.3333,hflip=0.5,vflip=0.5,jitter=0.2:0.2:0.2,normalize=0.5:0.25", size);
}

Picture apply_fixed(const Transform& transform, Picture picture) {
  const auto& plan = transform.plan();
  for (size_t i = 0; i < plan.fixed_steps; ++i) picture = run(plan.steps[i], std::move(picture), nullptr);
  return picture;
}

Picture apply_random(const Transform& transform, Picture picture, const Draw& draw) {
  const auto& plan = transform.plan();
  constexpr uint64_t kTransform = hash("transform");
  Random random(mix(mix(draw.seed, kTransform), uint64_t(draw.epoch)), uint64_t(draw.element));
  for (size_t i = plan.fixed_steps; i < plan.steps.size(); ++i)
    picture = run(plan.steps[i], std::move(picture), &random);
  return picture;
}

void write_planes(const Transform& transform, const Picture& picture, float* out) {
  const auto& plan = transform.plan();
  const size_t count = size_t(picture.width()) * size_t(picture.height()), c = size_t(picture.channels());
  CAIRN_CHECK(plan.table.size() == c * 256, "the picture has another colour than the transform");
  for (size_t k = 0; k < c; ++k) {
    const float* table = plan.table.data() + k * 256;
    const uint8_t* from = picture.row(0) + k;
    for (size_t i = 0; i < count; ++i) *out++ = table[from[i * c]];
  }
}

}  // namespace cairn::data
