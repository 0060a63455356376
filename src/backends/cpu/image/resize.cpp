// SPDX-License-Identifier: Apache-2.0
// Nearest-neighbour resizing by whole factors, as between the maps of a detector: repetition forwards, sums backwards, plane
// by plane, in dense and in blocked layouts.
#include "ops/image/resize.h"

#include <cstring>

#include "backends/cpu/planes.h"
#include "base/parallel.h"
#include "ops/catalog.h"

namespace cairn::cpu {
namespace {

struct Factors {
  int64_t height, width, down, across;  // of the smaller picture; how often each pixel stands
};
// `small` and `large`: picture types. Null unless the factors are whole.
std::optional<Factors> factors(const Shape& small, const Shape& large) {
  if (large[2] % small[2] != 0 || large[3] % small[3] != 0) return std::nullopt;
  return Factors{small[2], small[3], large[2] / small[2], large[3] / small[3]};
}
bool shrinks(const KernelRequest& r) { return &r.op == &ops::resize2d_grad_op; }

OfferResult offer(const KernelRequest& r) {
  if (std::string why = unless_f32(r); !why.empty()) return Refusal{std::move(why)};
  if (r.params.as<ops::ResizeParams>().mode != "nearest") return Refusal{"takes mode nearest"};
  const TensorType &small = shrinks(r) ? r.out[0] : r.in[0], &large = shrinks(r) ? r.in[0] : r.out[0];
  if (large.numel() == 0 || !factors(small.shape, large.shape)) return Refusal{"enlarges by whole factors"};
  const Layout layout = common_layout(r, r.in[0].shape, [&](const Layout& l) { return Planes::of(r.in[0].shape, l).has_value(); });
  return KernelOffer{{layout}, {layout}};
}

// One row of the large picture from one of the small, each pixel of `block` floats `across` times.
void repeat(const float* from, float* to, int64_t width, int64_t across, int block) {
  for (int64_t x = 0; x < width; ++x, from += block)
    for (int64_t k = 0; k < across; ++k, to += block) std::memcpy(to, from, size_t(block) * sizeof(float));
}
// Adds one row of the large picture to one of the small. A block that is known beforehand makes vectors of the inner loop.
[[gnu::always_inline]] inline void gather(const float* from, float* to, int64_t width, int64_t across, int block) {
  for (int64_t x = 0; x < width; ++x, to += block)
    for (int64_t k = 0; k < across; ++k, from += block)
      for (int c = 0; c < block; ++c) to[c] += from[c];
}

class Resize : public PreparedKernel {
 public:
  Resize(const Planes& planes, const Factors& f, bool shrinks) : planes_(planes), f_(f), shrinks_(shrinks) {}
  void run(const void* const* in, void* const* out, void*) const override {
    const auto* from = static_cast<const float*>(in[0]);
    auto* to = static_cast<float*>(out[0]);
    const int64_t narrow = f_.width * planes_.block, wide = narrow * f_.across;
    parallel_for(planes_.n * planes_.blocks * f_.height, 1 + (1 << 14) / (wide * f_.down), [&](int64_t begin, int64_t end) {
      for (int64_t y = begin; y < end; ++y) {
        if (!shrinks_) {
          float* row = to + y * f_.down * wide;
          repeat(from + y * narrow, row, f_.width, f_.across, planes_.block);
          for (int64_t k = 1; k < f_.down; ++k) std::memcpy(row + k * wide, row, size_t(wide) * sizeof(float));
          continue;
        }
        float* row = to + y * narrow;
        std::memset(row, 0, size_t(narrow) * sizeof(float));
        for (int64_t k = 0; k < f_.down; ++k) add(from + (y * f_.down + k) * wide, row);
      }
    });
  }

 private:
  void add(const float* from, float* to) const {
    switch (planes_.block) {
      case 1: return gather(from, to, f_.width, f_.across, 1);
      case 8: return gather(from, to, f_.width, f_.across, 8);
      case 16: return gather(from, to, f_.width, f_.across, 16);
      default: return gather(from, to, f_.width, f_.across, planes_.block);
    }
  }
  Planes planes_;
  Factors f_;
  bool shrinks_;
};

std::unique_ptr<PreparedKernel> prepare(const KernelRequest& r, const KernelOffer& o) {
  const Shape &small = shrinks(r) ? r.out[0].shape : r.in[0].shape, &large = shrinks(r) ? r.in[0].shape : r.out[0].shape;
  return std::make_unique<Resize>(*Planes::of(r.in[0].shape, o.in[0]), *factors(small, large), shrinks(r));
}

}  // namespace

extern const Kernel resize2d_kernel{&ops::resize2d_op, "cpu.planes", offer, prepare};
extern const Kernel resize2d_grad_kernel{&ops::resize2d_grad_op, "cpu.planes", offer, prepare};

}  // namespace cairn::cpu
