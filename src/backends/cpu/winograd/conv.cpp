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
// Rounding errors of y and dx are about four times those of direct sums: 2e-6 to 3e-6 of the standard
// deviation for random data, 4e-5 at most (direct: 1e-6 and 7e-6); those of dw are about the same. A
// NaN or infinity in the input makes its whole 4 × 4 tile NaN, as 0 · ∞ is no number. Every output is
// summed in one fixed order, whatever the threads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "backends/cpu/backend.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/nn/conv.h"
#include "backends/cpu/winograd/conv.h"
#include "backends/cpu/winograd/micro_kernel.h"
#include "backends/cpu/winograd/transforms.h"
#include "base/parallel.h"
#include "core/share.h"
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
  Points<float> block(float* data, int64_t b) const { return {data + b * stride * lanes, plane()}; }
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

// How the tiles, and the panels of output channels, are walked.
struct Blocking {
  int64_t blocks;  // of tiles, of about equal size
  int64_t chunk;   // panels at a time
  bool shared;     // all threads share one block, each makes its own panels; else each has blocks
};
Blocking blocking(int64_t tiles, const Panels& u, int workers) {
  // U is read once a block: long blocks where it comes from far away, otherwise such that V and M
  // stay in the second-level cache; full rows for the products at least.
  const int64_t block = u.elements() > (1 << 19) ? 66 : 30, least = 6;
  const int64_t chunk = std::max<int64_t>(1, 32 / u.lanes);
  if (tiles < block * workers && u.count() >= workers) {
    // Each thread transforms the filters of its chunk itself: they stay in that cache as well.
    const int64_t fit = (1 << 18) / (kPoints * 2 * u.lanes * u.rows);
    return {1, std::clamp<int64_t>(fit, 1, chunk), true};
  }
  return {std::min(ceil_div(ceil_div(tiles, block), workers) * workers, ceil_div(tiles, least)),
          chunk, false};
}

class Conv : public PreparedKernel {
 public:
  // `keep`: keep_filters will be called, so that run() need not transform them.
  Conv(const ConvProblem& p, const Epilogue& epilogue, int workers, bool keep)
      : keep_(keep),
        turned_(p.direction == Direction::input_gradient),
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
    u_ = {from, to / lanes, lanes};
    blocking_ = blocking(tiling_.tiles(), u_, workers);
    blocking_.chunk = std::min(blocking_.chunk, u_.count());
    const int64_t stride = tile_stride(ceil_div(tiling_.tiles(), blocking_.blocks));
    v_ = {from / lanes, stride, lanes};
    m_ = {2 * blocking_.chunk, stride, lanes};
  }
  void keep_filters(const float* weight) {
    kept_ = Storage::allocate(size_t(u_.elements()) * sizeof(float));
    std::fill_n(reinterpret_cast<float*>(kept_->data()), u_.elements(), 0.0f);  // what lies between planes
    transform_filters(weight, kept());
    kept_ = share_equal(std::move(kept_));
  }
  size_t workspace_bytes() const {
    return size_t(u_scratch() + (blocking_.shared ? 1 : workers_) * v_.elements() +
                  workers_ * m_.elements()) *
           sizeof(float);
  }

  void run(const void* const* in, void* const* out, void* workspace) const override {
    const Job job{static_cast<const float*>(in[0]), static_cast<const float*>(in[1]),
                  bias_ ? static_cast<const float*>(in[2]) : nullptr,
                  residual_ >= 0 ? static_cast<const float*>(in[residual_]) : nullptr,
                  static_cast<float*>(out[0])};
    float* const u = static_cast<float*>(workspace);
    float* const v = u + u_scratch();
    if (blocking_.shared)
      run_shared(job, u, v, v + v_.elements());
    else
      run_blocks(job, u, v, v + workers_ * v_.elements());
  }

 private:
  struct Job {  // a run
    const float *x, *weight, *bias, *residual;
    float* y;
  };
  struct Filters {  // U, or the panels of it from `first` on
    float* data;
    Panels shape;
    int64_t first;
    float* at(int64_t point, int64_t panel) const {
      return data + point * shape.plane() + shape.offset(panel - first);
    }
  };

  Filters kept() const { return {reinterpret_cast<float*>(kept_->data()), u_, 0}; }
  // Panels [first, last) alone.
  Filters part(float* data, int64_t first, int64_t last) const {
    return {data, {u_.rows, std::min(2 * last, u_.blocks) - 2 * first, u_.lanes}, first};
  }
  int64_t u_scratch() const {
    if (keep_) return 0;
    return blocking_.shared ? workers_ * part(nullptr, 0, blocking_.chunk).shape.elements()
                            : u_.elements();
  }
  int64_t share(int64_t count, int64_t worker) const { return count * worker / workers_; }
  // body(worker) for each, on a thread of its own.
  template <class Body>
  void for_workers(Body&& body) const {
    parallel_for(workers_, 1, [&](int64_t first, int64_t last) {
      for (int64_t w = first; w < last; ++w) body(w);
    });
  }

  void run_blocks(const Job& job, float* u, float* v, float* m) const {
    const Filters filters = keep_ ? kept() : Filters{u, u_, 0};
    if (!keep_) transform_filters(job.weight, filters);
    for_workers([&](int64_t w) {
      for (int64_t b = share(blocking_.blocks, w); b < share(blocking_.blocks, w + 1); ++b) {
        const int64_t first = tiling_.tiles() * b / blocking_.blocks;
        const TileRange tiles{first, tiling_.tiles() * (b + 1) / blocking_.blocks - first};
        float* mine = v + w * v_.elements();
        for (int64_t c = 0; c < v_.blocks; ++c) transform_input(job, tiles, c, mine);
        for (int64_t p = 0; p < u_.count(); p += blocking_.chunk)
          multiply(job, tiles, mine, filters, p, std::min(p + blocking_.chunk, u_.count()),
                   m + w * m_.elements());
      }
    });
  }
  void run_shared(const Job& job, float* u, float* v, float* m) const {
    const TileRange tiles{0, tiling_.tiles()};
    parallel_for(v_.blocks, 1, [&](int64_t first, int64_t last) {
      for (int64_t c = first; c < last; ++c) transform_input(job, tiles, c, v);
    });
    for_workers([&](int64_t w) {
      const int64_t end = share(u_.count(), w + 1);
      for (int64_t p = share(u_.count(), w); p < end; p += blocking_.chunk) {
        const int64_t last = std::min(p + blocking_.chunk, end);
        const Filters filters = keep_ ? kept() : part(u + u_scratch() / workers_ * w, p, last);
        if (!keep_)
          for (int64_t panel = p; panel < last; ++panel)
            for (int64_t row = 0; row < v_.blocks; ++row)
              transform_filter(job.weight, filters, panel, row);
        multiply(job, tiles, v, filters, p, last, m + w * m_.elements());
      }
    });
  }

  void transform_filters(const float* weight, const Filters& to) const {
    parallel_for(u_.count() * v_.blocks, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i)
        transform_filter(weight, to, i / v_.blocks, i % v_.blocks);
    });
  }
  // One block of rows of a panel.
  void transform_filter(const float* weight, const Filters& to, int64_t panel, int64_t row) const {
    const int64_t square = 9 * u_.lanes * u_.lanes;
    for (int64_t b = 2 * panel; b < 2 * panel + u_.vectors(panel); ++b) {
      const Points<float> u = to.shape.square(to.data, row * u_.lanes, b - 2 * to.first);
      if (turned_)  // the weight's blocks are [k][c]
        transforms_.turned_filter(weight + (row * u_.blocks + b) * square, u, u_.step(panel));
      else
        transforms_.filter(weight + (b * v_.blocks + row) * square, u, u_.step(panel));
    }
  }
  void transform_input(const Job& job, TileRange tiles, int64_t block, float* v) const {
    const int64_t plane = tiling_.in.height * tiling_.in.width * v_.lanes;
    transforms_.input(tiling_, tiles, {job.x + block * plane, v_.blocks * plane},
                      v_.block(v, block));
  }

  // Makes panels [begin, end) of the output of some tiles.
  void multiply(const Job& job, TileRange tiles, const float* v, const Filters& u, int64_t begin,
                int64_t end, float* m) const {
    for (int64_t point = 0; point < kPoints; ++point)
      for (int64_t panel = begin; panel < end; ++panel) {
        const float* next = panel + 1 < end       ? u.at(point, panel + 1)
                            : point + 1 < kPoints ? u.at(point + 1, begin)
                                                  : u.at(point, panel);
        multiply_panel(tiles.count, v + point * v_.plane(), u.at(point, panel), next,
                       u_.vectors(panel),
                       m_.block(m, 2 * (panel - begin)).data + point * m_.plane());
      }
    const int64_t plane = tiling_.out.height * tiling_.out.width * u_.lanes;
    for (int64_t b = 2 * begin; b < std::min(2 * end, u_.blocks); ++b) {
      const Points<float> sums = m_.block(m, b - 2 * begin);
      transforms_.output(tiling_, tiles, {sums.data, sums.plane},
                         job.bias ? job.bias + b * u_.lanes : nullptr,
                         {job.residual ? job.residual + b * plane : nullptr, u_.blocks * plane},
                         epilogue_, {job.y + b * plane, u_.blocks * plane});
    }
  }
  // One panel at one point, in groups of tiles of about the same size: 62 as 2 × 6 + 10 × 5, never
  // 10 × 6 + 2. The first four groups bring `next` nearer.
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

  bool keep_, turned_, bias_;
  int residual_;
  Epilogue epilogue_;
  int64_t workers_;
  const Transforms& transforms_;
  const MicroKernels& kernels_;
  Tiling tiling_;
  Blocking blocking_;
  Panels u_;
  Buffer v_, m_;
  std::shared_ptr<Storage> kept_;  // U
};

// ---- gradient of the weights ----

class WeightGradient : public PreparedKernel {
 public:
  WeightGradient(const ConvProblem& p, int workers)
      : workers_(workers), transforms_(transforms()), kernels_(micro_kernels(transforms_.lanes)) {
    const auto& z = p.z;
    const int64_t lanes = transforms_.lanes;
    tiling_ = {z.n, {z.h, z.w}, {z.y, z.x}, z.vertical.before, z.horizontal.before};
    // Long blocks, as threads wait for each other twice a block, but V and Z within 7 MB. Where the
    // sums are split must not depend on the threads.
    blocks_ = ceil_div(tiling_.tiles(), std::max<int64_t>(128, 49152 / (z.c + z.k)));
    const int64_t padded = ceil_div(ceil_div(tiling_.tiles(), blocks_), lanes) * lanes;
    v_ = {z.c / lanes, tile_stride(padded), lanes};
    z_ = {z.k / lanes, tile_stride(padded), lanes};
    rows_ = std::min(32 / lanes, v_.blocks);
    columns_ = std::min(64 / lanes, z_.blocks);
    while (chunks() < workers && (columns_ > 2 || rows_ > 1))
      if (columns_ > 2)
        columns_ = ceil_div(columns_, 4) * 2;  // whole panels
      else
        rows_ = ceil_div(rows_, 2);
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
    return {row, rows, column, {rows * v_.lanes, std::min(columns_, z_.blocks - column), v_.lanes}};
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

// Whether we are faster than oneDNN, which is direct. Cycles for each pair of an input and an
// output channel, with 16 multiply-adds each (AVX2), fitted to measurements with 4 to 56 pixels a
// side, 8 to 512 channels and batches of 1 and 8 on Zen 4: filters or their gradient cost as much
// as transforming, writing and reading them does, whatever the batch.
bool pays(const ConvProblem& p, int lanes, bool kept) {
  const auto& z = p.z;
  const bool gradient = p.direction == Direction::weight_gradient;
  const Tiling::Size size =
      p.direction == Direction::input_gradient ? Tiling::Size{z.h, z.w} : Tiling::Size{z.y, z.x};
  const int64_t tiles = Tiling{z.n, {}, size, 0, 0}.tiles();
  const double direct = 9. / 16 * double(z.n * z.y * z.x);
  const double products = 36. / 16 * double(gradient ? ceil_div(tiles, lanes) * lanes : tiles);
  const double filters = gradient ? 17 : kept ? 9 : 24;
  return direct > 1.1 * (products + filters);
}

}  // namespace

OfferResult offer_anything(const KernelRequest& r) {
  for (const TensorType& t : r.in)
    if (t.dtype != DType::f32) return Refusal{fmt::format("takes f32, got {}", name(t.dtype))};
  if (any_empty(r)) return Refusal{"an empty operand"};
  const int lanes = transforms().lanes;
  if (lanes < 8) return Refusal{"needs AVX2"};
  if (lanes == 16 && !std::getenv(kForceAvx512))
    return Refusal{fmt::format("untested with AVX-512; {}=1 takes it nevertheless", kForceAvx512)};
  if (r.exact) return Refusal{"not exact"};
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
  offer.workspace_bytes = Conv(p, *after, r.threads, r.constant(1)).workspace_bytes();
  if (p.residual >= 0) {
    offer.in[size_t(p.residual)] = pictures;
    offer.in_place = {{p.residual, 0}};
  }
  return offer;
}

namespace {

OfferResult offer(const KernelRequest& r) {
  OfferResult result = offer_anything(r);
  if (std::holds_alternative<KernelOffer>(result) &&
      !pays(conv_problem(r), transforms().lanes, r.constant(1)))
    return Refusal{"slower than the direct way: few pixels"};
  return result;
}

std::unique_ptr<PreparedKernel> prepare(const KernelRequest& r, const KernelOffer& offer) {
  const ConvProblem p = conv_problem(r);
  if (p.direction == Direction::weight_gradient)
    return std::make_unique<WeightGradient>(p, r.threads);
  const void* weight = r.constant(1);
  auto conv = std::make_unique<Conv>(p, *epilogue(p), r.threads, weight);
  if (weight) {
    const auto blocked = Storage::allocate(size_t(r.in[1].bytes()));
    void* to = blocked->data();
    cpu_backend().reorder(r.in[1], Layout(), offer.in[1])->run(&weight, &to, nullptr);
    conv->keep_filters(static_cast<const float*>(to));
  }
  return conv;
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
