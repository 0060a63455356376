// SPDX-License-Identifier: Apache-2.0
// Winograd's convolution with 3 × 3 filters, F(4 × 4, 3 × 3) in f32: a quarter of the
// multiplications of the direct way. (Lavin and Gray 2015, arXiv:1509.09308)
//
// Pictures are cut into tiles of 4 × 4 outputs, each made from 6 × 6 inputs. Both, and the filters,
// are transformed to 36 numbers ("points"), between which no sum is taken: at each point one small
// matrix product over the channels is left (transforms.h has the formulas, micro_kernel.h the
// products).
//   forward           input → V, weights → U, M = Σ_c U V, M → output
//   gradient of x     the same, of dy with the filters turned round and transposed
//   gradient of w     input → V, dy → Z, S = Σ_tiles V Z, S → dw
// A block of tiles goes through all steps while it is in the cache. Layouts are oneDNN's blocked
// ones (aBcd8b and ABcd8b8a, or 16), so neighbours need no reorder; in V, M, Z the channels of a
// block are innermost too, so nothing is ever packed.
//
// Rounding errors are larger than those of direct sums: up to 2e-5 of the standard deviation of the
// outputs for random data (direct: 8e-6). A NaN or infinity in the input makes the whole 4 × 4 tile
// NaN, as 0 · ∞ is no number. Every output is summed in one fixed order, whatever the threads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "backends/cpu/backend.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/nn/conv.h"
#include "backends/cpu/winograd/micro_kernel.h"
#include "backends/cpu/winograd/transforms.h"
#include "base/parallel.h"
#include "ops/catalog.h"

namespace cairn::cpu {
namespace winograd {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Planes of points start a cache line further than their size says: at a power of two apart, all
// 36 would compete for the same lines of the first-level cache.
constexpr int64_t kLine = 16;  // elements
// As many tiles as are stored for `tiles`: twice an odd number, so that blocks of channels spread
// over that cache as well.
int64_t tile_stride(int64_t tiles) { return (tiles + 1) / 4 * 4 + 2; }

// [36][blocks of channels][tiles][lanes] elements of V, M or Z.
struct Buffer {
  int64_t blocks, stride, lanes;  // stride: tiles from block to block
  int64_t plane() const { return blocks * stride * lanes + kLine; }
  int64_t elements() const { return kPoints * plane(); }
  Points<float> block(float* data, int64_t b) const {
    return {data + b * stride * lanes, plane()};
  }
};

// [36][panels][rows][two vectors] elements of U or S; of an odd number of blocks of columns the
// last panel is one vector wide.
struct Panels {
  int64_t rows, blocks, lanes;  // blocks of columns
  int64_t count() const { return ceil_div(blocks, 2); }
  int vectors(int64_t panel) const { return 2 * panel + 1 < blocks ? 2 : 1; }
  int64_t plane() const { return rows * blocks * lanes + kLine; }
  int64_t elements() const { return kPoints * plane(); }
  int64_t offset(int64_t panel) const { return panel * rows * 2 * lanes; }
  int64_t step(int64_t panel) const { return vectors(panel) * lanes; }  // from row to row
  // The square of rows [row, row + lanes) and block b of the columns.
  Points<float> square(float* data, int64_t row, int64_t b) const {
    return {data + offset(b / 2) + row * step(b / 2) + b % 2 * lanes, plane()};
  }
};

// ---- forward and gradient of the input ----

struct Blocking {
  int64_t blocks;  // of tiles, of about equal size
  int64_t chunk;   // panels of output channels at a time, so that M stays small
  bool shared;     // all threads work on the same block, each on its output channels
};
Blocking blocking(int64_t tiles, int64_t c, int64_t k, int lanes, int workers) {
  int64_t block = std::max<int64_t>(24, 2600 / (c + 64)), chunk = 64 / (2 * lanes);
  bool shared = workers > 1 && (tiles < 48 * workers || c * k * kPoints > (2 << 20));
  if (const char* e = std::getenv("WINO")) {
    long b, ch; int s;
    sscanf(e, "%ld,%ld,%d", &b, &ch, &s);
    block = b, chunk = ch / (2 * lanes), shared = s;
  }
  int64_t blocks = ceil_div(tiles, block);
  if (!shared) blocks = ceil_div(blocks, workers) * workers;
  return {std::min(blocks, tiles), chunk, shared};
}

struct Sides {  // what the products sum over, and what they make
  Tiling tiling;
  int64_t from, to;  // channels
};

class Conv : public PreparedKernel {
 public:
  Conv(const ConvProblem& p, const Epilogue& epilogue, int workers)
      : turned_(p.direction == Direction::input_gradient),
        bias_(p.bias),
        residual_(p.residual),
        epilogue_(epilogue),
        workers_(workers),
        transforms_(transforms()),
        kernels_(micro_kernels(transforms_.lanes)) {
    const auto& z = p.z;
    const Tiling::Size x{z.h, z.w}, y{z.y, z.x};
    tiling_ = turned_ ? Tiling{z.n, y, x, 2 - z.vertical.before, 2 - z.horizontal.before}
                      : Tiling{z.n, x, y, z.vertical.before, z.horizontal.before};
    const int64_t from = turned_ ? z.k : z.c, to = turned_ ? z.c : z.k, lanes = transforms_.lanes;
    blocking_ = blocking(tiling_.tiles(), from, to, int(lanes), workers);
    const int64_t stride = tile_stride(ceil_div(tiling_.tiles(), blocking_.blocks));
    u_ = {from, to / lanes, lanes};
    blocking_.chunk = std::min(blocking_.chunk, u_.count());
    v_ = {from / lanes, stride, lanes};
    m_ = {2 * blocking_.chunk, stride, lanes};
  }
  size_t workspace_bytes() const {
    const int64_t inputs = blocking_.shared ? 1 : workers_;
    return size_t((filters_ ? 0 : u_.elements()) + inputs * v_.elements() +
                  workers_ * m_.elements()) *
           sizeof(float);
  }
  // Transforms the filters once and for all.
  void keep_filters(const float* weight) {
    filters_ = Storage::allocate(size_t(u_.elements()) * sizeof(float));
    transform_filters(weight, reinterpret_cast<float*>(filters_->data()));
  }

  void run(const void* const* in, void* const* out, void* workspace) const override {
    const float* x = static_cast<const float*>(in[0]);
    Job job{bias_ ? static_cast<const float*>(in[2]) : nullptr,
            residual_ >= 0 ? static_cast<const float*>(in[residual_]) : nullptr,
            static_cast<float*>(out[0])};
    float* free = static_cast<float*>(workspace);
    if (filters_) {
      job.u = reinterpret_cast<const float*>(filters_->data());
    } else {
      transform_filters(static_cast<const float*>(in[1]), free);
      job.u = free;
      free += u_.elements();
    }
    float* const v = free;
    float* const m = v + (blocking_.shared ? 1 : workers_) * v_.elements();
    if (!blocking_.shared) {
      parallel_for(workers_, 1, [&](int64_t first, int64_t last) {
        for (int64_t w = first; w < last; ++w)
          for (int64_t b = share(blocking_.blocks, w); b < share(blocking_.blocks, w + 1); ++b) {
            float* mine = v + w * v_.elements();
            transform_input(x, range(b), 0, v_.blocks, mine);
            multiply(job, range(b), 0, u_.count(), mine, m + w * m_.elements());
          }
      });
      return;
    }
    for (int64_t b = 0; b < blocking_.blocks; ++b) {
      parallel_for(v_.blocks, 1, [&](int64_t first, int64_t last) {
        transform_input(x, range(b), first, last, v);
      });
      parallel_for(workers_, 1, [&](int64_t first, int64_t last) {
        for (int64_t w = first; w < last; ++w)
          multiply(job, range(b), share(u_.count(), w), share(u_.count(), w + 1), v,
                   m + w * m_.elements());
      });
    }
  }

 private:
  struct Job {  // a run
    const float *bias, *residual;
    float* y;
    const float* u = nullptr;
  };
  int64_t share(int64_t count, int64_t worker) const { return count * worker / workers_; }
  TileRange range(int64_t block) const {
    const int64_t first = tiling_.tiles() * block / blocking_.blocks;
    return {first, tiling_.tiles() * (block + 1) / blocking_.blocks - first};
  }

  void transform_filters(const float* weight, float* u) const {
    const int64_t lanes = u_.lanes, rows = u_.rows / lanes, square = 9 * lanes * lanes;
    parallel_for(u_.count() * rows, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t panel = i / rows, row = i % rows;
        for (int64_t b = 2 * panel; b < 2 * panel + u_.vectors(panel); ++b)
          if (turned_)  // the weight's blocks are [k][c]
            transforms_.turned_filter(weight + (row * u_.blocks + b) * square,
                                      u_.square(u, row * lanes, b), u_.step(panel));
          else
            transforms_.filter(weight + (b * rows + row) * square, u_.square(u, row * lanes, b),
                               u_.step(panel));
      }
    });
  }

  void transform_input(const float* x, TileRange tiles, int64_t first, int64_t last,
                       float* v) const {
    const int64_t plane = tiling_.in.height * tiling_.in.width * v_.lanes;
    for (int64_t b = first; b < last; ++b)
      transforms_.input(tiling_, tiles, {x + b * plane, v_.blocks * plane}, v_.block(v, b));
  }

  // Panels [first, last) of the output of a block of tiles.
  void multiply(const Job& job, TileRange tiles, int64_t first, int64_t last, const float* v,
                float* m) const {
    const int64_t plane = tiling_.out.height * tiling_.out.width * u_.lanes;
    for (int64_t begin = first; begin < last; begin += blocking_.chunk) {
      const int64_t end = std::min(begin + blocking_.chunk, last);
      for (int64_t point = 0; point < kPoints; ++point)
        for (int64_t panel = begin; panel < end; ++panel) {
          const bool wraps = panel + 1 == end;
          const float* next = job.u + std::min<int64_t>(point + wraps, kPoints - 1) * u_.plane() +
                              u_.offset(wraps ? begin : panel + 1);
          multiply_panel(tiles.count, v + point * v_.plane(),
                         job.u + point * u_.plane() + u_.offset(panel), next,
                         u_.vectors(panel),
                         m_.block(m, 2 * (panel - begin)).data + point * m_.plane());
        }
      for (int64_t b = 2 * begin; b < std::min(2 * end, u_.blocks); ++b) {
        const Channels<const float> residual{job.residual ? job.residual + b * plane : nullptr,
                                             u_.blocks * plane};
        const Points<float> sums = m_.block(m, b - 2 * begin);
        transforms_.output(tiling_, tiles, {sums.data, sums.plane},
                           job.bias ? job.bias + b * u_.lanes : nullptr, residual, epilogue_,
                           {job.y + b * plane, u_.blocks * plane});
      }
    }
  }
  // All tiles, in groups of about the same size: 62 as 2 × 6 + 10 × 5, never 10 × 6 + 2.
  void multiply_panel(int64_t tiles, const float* v, const float* u, const float* next, int vectors,
                      float* m) const {
    const int64_t groups = ceil_div(tiles, kernels_.max_rows), stride = v_.stride * v_.lanes;
    const int64_t quarter = u_.rows * vectors * u_.lanes / 4;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = tiles * g / groups, rows = tiles * (g + 1) / groups - first;
      kernels_.products[vectors - 1][rows - 1](v + first * v_.lanes, u, m + first * v_.lanes,
                                               v_.blocks, stride * int64_t(sizeof(float)),
                                               next + g % 4 * quarter);
    }
  }

  bool turned_, bias_;
  int residual_;
  Epilogue epilogue_;
  int64_t workers_;
  const Transforms& transforms_;
  const MicroKernels& kernels_;
  Tiling tiling_;
  Blocking blocking_;
  Panels u_;
  Buffer v_, m_;
  std::shared_ptr<Storage> filters_;
};

// ---- gradient of the weights ----

class WeightGradient : public PreparedKernel {
 public:
  WeightGradient(const ConvProblem& p, int workers)
      : workers_(workers),
        transforms_(transforms()),
        kernels_(micro_kernels(transforms_.lanes)) {
    const auto& z = p.z;
    const int64_t lanes = transforms_.lanes;
    tiling_ = {z.n, {z.h, z.w}, {z.y, z.x}, z.vertical.before, z.horizontal.before};
    // Where sums are split must not depend on the threads; they are added tile after tile.
    int64_t tiles = 96, c = 32, k = 64;
    if (const char* e = std::getenv("WINOG")) sscanf(e, "%ld,%ld,%ld", &tiles, &c, &k);
    blocks_ = ceil_div(tiling_.tiles(), tiles);
    const int64_t padded = ceil_div(ceil_div(tiling_.tiles(), blocks_), lanes) * lanes;
    v_ = {z.c / lanes, tile_stride(padded), lanes};
    z_ = {z.k / lanes, tile_stride(padded), lanes};
    rows_ = std::min(std::max<int64_t>(1, c / lanes), v_.blocks);
    columns_ = std::min(std::max<int64_t>(2, k / lanes), z_.blocks);
    s_ = {rows_ * lanes, columns_, lanes};
  }
  size_t workspace_bytes() const {
    const int64_t sums = blocks_ > 1 ? chunks() : workers_;
    return size_t(v_.elements() + z_.elements() + sums * s_.elements()) * sizeof(float);
  }
  void run(const void* const* in, void* const* out, void* workspace) const override {
    float* const v = static_cast<float*>(workspace);
    float* const z = v + v_.elements();
    float* const s = z + z_.elements();
    for (int64_t b = 0; b < blocks_; ++b) {
      const int64_t first = tiling_.tiles() * b / blocks_;
      const TileRange tiles{first, tiling_.tiles() * (b + 1) / blocks_ - first};
      parallel_for(v_.blocks + z_.blocks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          if (i < v_.blocks)
            transform(transforms_.input, static_cast<const float*>(in[0]), tiling_.in, tiles, v_, i,
                      v);
          else
            transform(transforms_.gradient, static_cast<const float*>(in[1]), tiling_.out, tiles,
                      z_, i - v_.blocks, z);
      });
      parallel_for(workers_, 1, [&](int64_t begin, int64_t end) {
        for (int64_t w = begin; w < end; ++w)
          for (int64_t i = chunks() * w / workers_; i < chunks() * (w + 1) / workers_; ++i) {
            float* mine = s + (blocks_ > 1 ? i : w) * s_.elements();
            multiply(i, ceil_div(tiles.count, v_.lanes), b > 0, v, z, mine);
            if (b == blocks_ - 1) finish(i, mine, static_cast<float*>(out[0]));
          }
      });
    }
  }

 private:
  // dw is made in chunks of rows_ × columns_ blocks.
  int64_t across() const { return ceil_div(z_.blocks, columns_); }
  int64_t chunks() const { return ceil_div(v_.blocks, rows_) * across(); }
  struct Chunk {
    int64_t row, rows, column;  // in blocks
    Panels panels;
  };
  Chunk chunk(int64_t i) const {
    const int64_t row = i / across() * rows_, column = i % across() * columns_;
    const int64_t rows = std::min(rows_, v_.blocks - row);
    return {row, rows, column,
            {rows * v_.lanes, std::min(columns_, z_.blocks - column), v_.lanes}};
  }

  // One block of channels; what fills up the last vectors of tiles is zero.
  template <class Function>
  void transform(Function* function, const float* x, Tiling::Size size, TileRange tiles,
                 const Buffer& buffer, int64_t b, float* to) const {
    const int64_t lanes = buffer.lanes, plane = size.height * size.width * lanes;
    const Points<float> points = buffer.block(to, b);
    function(tiling_, tiles, {x + b * plane, buffer.blocks * plane}, points);
    const int64_t padding = ceil_div(tiles.count, lanes) * lanes - tiles.count;
    for (int64_t point = 0; point < kPoints; ++point)
      std::fill_n(points.data + point * points.plane + tiles.count * lanes, padding * lanes, 0.0f);
  }

  void multiply(int64_t i, int64_t depth, bool add, const float* v, const float* z,
                float* s) const {
    const Chunk c = chunk(i);
    const int64_t lanes = v_.lanes, v_block = v_.stride * lanes, z_block = z_.stride * lanes;
    for (int64_t point = 0; point < kPoints; ++point)
      for (int64_t panel = 0; panel < c.panels.count(); ++panel) {
        const int vectors = c.panels.vectors(panel);
        const TileProducts products = kernels_.tile_products[vectors - 1][add];
        const float* numbers = v + point * v_.plane() + c.row * v_block;
        const float* columns = z + point * z_.plane() + (c.column + 2 * panel) * z_block;
        float* sums = s + point * c.panels.plane() + c.panels.offset(panel);
        for (int64_t row = 0; row < c.panels.rows; row += kernels_.tile_rows)
          products(numbers + row / lanes * v_block + row % lanes, columns,
                   sums + row * c.panels.step(panel), depth, z_block * int64_t(sizeof(float)));
      }
  }
  void finish(int64_t i, float* s, float* dw) const {
    const Chunk c = chunk(i);
    const int64_t lanes = v_.lanes, square = 9 * lanes * lanes;
    for (int64_t b = 0; b < c.panels.blocks; ++b)
      for (int64_t row = 0; row < c.rows; ++row) {
        const Points<float> sums = c.panels.square(s, row * lanes, b);
        transforms_.filter_gradient({sums.data, sums.plane}, c.panels.step(b / 2),
                                    dw + ((c.column + b) * v_.blocks + c.row + row) * square);
      }
  }

  int64_t workers_;
  const Transforms& transforms_;
  const MicroKernels& kernels_;
  Tiling tiling_;
  int64_t blocks_, rows_, columns_;
  Buffer v_, z_;
  Panels s_;
};

// ---- what is taken ----

// The activation as the output transform applies it; nullopt: it cannot.
std::optional<Epilogue> epilogue(const ConvProblem& p) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Epilogue e{Epilogue::clamp, -kInfinity, kInfinity, 1};
  if (!p.activation) return e;
  const std::string& name = p.activation->op->name;
  const auto values = p.activation->params.values();
  const auto value = [&](size_t i) { return float(std::get<double>(values[i].value)); };
  if (name == "relu")
    e.low = 0;
  else if (name == "clamp")
    e.low = value(0), e.high = value(1);
  else if (name == "leaky_relu")
    e.activation = Epilogue::leaky, e.slope = value(0);
  else if (name == "silu")
    e.activation = Epilogue::silu;
  else
    return std::nullopt;
  return e;
}

// Why a convolution is not for us; empty when it is.
std::string unfit(const ConvProblem& p, int lanes) {
  const auto& z = p.z;
  const auto fits = [](const ops::WindowAxis& axis) {
    return axis.kernel == 3 && axis.stride == 1 && axis.dilation == 1 && axis.before >= 0 &&
           axis.before <= 2 && axis.after >= 0 && axis.after <= 2;
  };
  if (!fits(z.vertical) || !fits(z.horizontal) || z.groups != 1)
    return "takes 3 × 3 filters with stride, dilation and groups 1 and a padding of at most 2";
  if (z.c % lanes != 0 || z.k % lanes != 0)
    return fmt::format("takes channels in blocks of {}, got {} and {}", lanes, z.c, z.k);
  return {};
}

OfferResult offer(const KernelRequest& r) {
  for (const TensorType& t : r.in)
    if (t.dtype != DType::f32) return Refusal{fmt::format("takes f32, got {}", name(t.dtype))};
  if (any_empty(r)) return Refusal{"an empty operand"};
  const int lanes = transforms().lanes;
  if (lanes < 8) return Refusal{"needs AVX2"};
  const ConvProblem p = conv_problem(r);
  if (const std::string reason = unfit(p, lanes); !reason.empty()) return Refusal{reason};
  const auto after = epilogue(p);
  if (!after) return Refusal{"has no " + p.activation->op->name};

  const Layout pictures = Layout::parse(fmt::format("aBcd{}b", lanes));
  const Layout weights = Layout::parse(fmt::format("ABcd{0}b{0}a", lanes));
  KernelOffer offer{std::vector<Layout>(r.in.size()), {pictures}};
  offer.in[0] = pictures;
  offer.in[1] = weights;
  if (p.direction == Direction::weight_gradient) {
    offer.in[1] = pictures;
    offer.out[0] = weights;
    offer.workspace_bytes = WeightGradient(p, r.threads).workspace_bytes();
    return offer;
  }
  offer.workspace_bytes = Conv(p, *after, r.threads).workspace_bytes();
  if (p.residual >= 0) {
    offer.in[size_t(p.residual)] = pictures;
    offer.in_place = {{p.residual, 0}};
  }
  return offer;
}

std::unique_ptr<PreparedKernel> prepare(const KernelRequest& r, const KernelOffer&) {
  const ConvProblem p = conv_problem(r);
  if (p.direction == Direction::weight_gradient)
    return std::make_unique<WeightGradient>(p, r.threads);
  return std::make_unique<Conv>(p, *epilogue(p), r.threads);
}

}  // namespace
}  // namespace winograd

const Kernel winograd_conv_kernel{&ops::conv_op, "cpu.winograd", winograd::offer,
                                  winograd::prepare};
const Kernel winograd_conv_grad_input_kernel{&ops::conv_grad_input_op, "cpu.winograd",
                                             winograd::offer, winograd::prepare};
const Kernel winograd_conv_grad_weight_kernel{&ops::conv_grad_weight_op, "cpu.winograd",
                                              winograd::offer, winograd::prepare};
const Kernel winograd_fused_conv_kernel{&ops::fused_conv_op, "cpu.winograd", winograd::offer,
                                        winograd::prepare};

}  // namespace cairn::cpu
