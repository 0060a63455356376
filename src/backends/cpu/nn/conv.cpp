// SPDX-License-Identifier: Apache-2.0
// Convolution, its two gradients and its fused form through oneDNN, in f32.
//
// Layouts are set here, never left to oneDNN: its free choice is often a slower one (and differs
// between neighbours). With b channels a block:
//   blocked    channels of each group divide by b: pictures aBcd8b, weights ABcd8b8a (ABcd8a8b for
//   dx) depthwise  one channel a group: pictures aBcd8b, weights Abcd8a first      a dense picture
//   of few channels in, aBcd8b out, weights Acdb8a dense      whatever is left, so that no padded
//   layout ever leaves a kernel
// conv_grad_weight gives the layout that conv wants, so that updating a weight is elementwise.
// (oneDNN lacks a few gradients blocked, which are then dense: with dilation, of kernels larger
// than the picture, of weights of depthwise 5 × 5 kernels and of first layers of other than three
// channels.)
#include <fmt/format.h>

#include "backends/cpu/backend.h"
#include "backends/cpu/isa.h"
#include "backends/cpu/nn/conv.h"
#include "backends/cpu/onednn.h"
#include "ops/catalog.h"

namespace cairn::cpu {

ConvProblem conv_problem(const KernelRequest& r) {
  if (&r.op == &ops::conv_op)
    return {Direction::forward, ops::conv_sizes(r.params.as<ops::ConvParams>(), r.in),
            r.in.size() > 2};
  if (&r.op == &ops::conv_grad_input_op)
    return {Direction::input_gradient,
            conv_grad_input_sizes(r.params.as<ops::ConvGradInputParams>(), r.in)};
  if (&r.op == &ops::conv_grad_weight_op)
    return {Direction::weight_gradient,
            conv_grad_weight_sizes(r.params.as<ops::ConvGradWeightParams>(), r.in)};
  const auto& p = r.params.as<ops::FusedConvParams>();
  return {Direction::forward,
          ops::conv_sizes(p, r.in.first(2)),
          p.bias,
          residual_input(p),
          activation_of(p),
          true};
}

namespace {

using dnnl::memory;
using Problem = ConvProblem;

struct Form {
  Layout x, weight, y;
  std::string weight_tag;  // as oneDNN sees it: groups are an axis of their own
};

// The ways to compute it, the fastest first.
std::vector<Form> forms(const Problem& p) {
  const auto& z = p.z;
  const bool grouped = z.groups > 1, dx = p.direction == Direction::input_gradient;
  const int64_t c = z.c / z.groups, k = z.k / z.groups;
  const auto form = [&](const std::string& x, const std::string& y, const std::string& plain,
                        const std::string& group) {
    return Form{Layout::parse(x), Layout::parse(plain), Layout::parse(y), grouped ? group : plain};
  };
  std::vector<Form> list;
  for (int b = channel_block(); b >= 8 && list.empty(); b /= 2) {
    const std::string channels = fmt::format("aBcd{}b", b);
    if (c % b == 0 && k % b == 0)
      list.push_back(dx ? form(channels, channels, fmt::format("ABcd{0}a{0}b", b),
                               fmt::format("aBCde{0}b{0}c", b))
                        : form(channels, channels, fmt::format("ABcd{0}b{0}a", b),
                               fmt::format("aBCde{0}c{0}b", b)));
    else if (grouped && c == 1 && k == 1 && z.groups % b == 0)
      list.push_back(
          form(channels, channels, fmt::format("Abcd{}a", b), fmt::format("Abcde{}a", b)));
    else if (!grouped && c < b && k % b == 0 && !dx)
      list.push_back(form("abcd", channels, fmt::format("Acdb{}a", b), ""));
  }
  list.push_back(form("abcd", "abcd", "abcd", "abcde"));
  return list;
}

// What oneDNN can apply to its sums before they are stored. Its relu gives 0 for NaN.
struct Eltwise {
  std::string_view op;
  dnnl::algorithm algorithm;
  float alpha = 0, beta = 0;  // where the operator has no parameters; else its parameters in order
};
constexpr Eltwise kEltwise[] = {
    {"relu", dnnl::algorithm::eltwise_relu},
    {"leaky_relu", dnnl::algorithm::eltwise_relu},
    {"clamp", dnnl::algorithm::eltwise_clip},
    {"elu", dnnl::algorithm::eltwise_elu},
    {"sigmoid", dnnl::algorithm::eltwise_logistic},
    {"tanh", dnnl::algorithm::eltwise_tanh},
    {"silu", dnnl::algorithm::eltwise_swish, 1},
    {"gelu", dnnl::algorithm::eltwise_gelu_erf},
    {"hardswish", dnnl::algorithm::eltwise_hardswish, 1.f / 6, 0.5f},
    {"hardsigmoid", dnnl::algorithm::eltwise_hardsigmoid, 1.f / 6, 0.5f},
    {"softplus", dnnl::algorithm::eltwise_soft_relu, 1},
};
std::optional<Eltwise> eltwise(const ops::FusedCall& call) {
  for (Eltwise e : kEltwise) {
    if (e.op != call.op->name) continue;
    float* to = &e.alpha;
    for (const NamedValue& v : call.params.values())
      *to = float(std::get<double>(v.value)), to = &e.beta;
    return e;
  }
  return std::nullopt;
}

dnnl::primitive_attr attributes(const Problem& p) {
  dnnl::primitive_attr attr = onednn::attributes();
  dnnl::post_ops after;
  if (p.residual >= 0) after.append_sum(1);
  if (p.activation) {
    const Eltwise e = eltwise(*p.activation).value();
    after.append_eltwise(e.algorithm, e.alpha, e.beta);
  }
  attr.set_post_ops(after);
  return attr;
}

// The primitive for n of the pictures.
onednn::Call call(const Problem& p, const Form& f, int64_t n) {
  const auto& z = p.z;
  const auto& engine = onednn::engine();
  const memory::desc x = onednn::desc({DType::f32, {n, z.c, z.h, z.w}}, f.x);
  const memory::desc y = onednn::desc({DType::f32, {n, z.k, z.y, z.x}}, f.y);
  memory::dims weight_dims{z.k, z.c / z.groups, z.r, z.s};
  if (z.groups > 1) weight_dims = {z.groups, z.k / z.groups, z.c / z.groups, z.r, z.s};
  const memory::desc weight = onednn::desc(weight_dims, f.weight_tag);
  const memory::desc bias = p.bias ? onednn::desc({z.k}, "a") : memory::desc();
  const ops::WindowAxis &v = z.vertical, &h = z.horizontal;
  const memory::dims strides{v.stride, h.stride}, dilations{v.dilation - 1, h.dilation - 1};
  const memory::dims before{v.before, h.before}, after{v.after, h.after};
  const int64_t x_step = z.c * z.h * z.w * 4, y_step = z.k * z.y * z.x * 4;
  const auto direct = dnnl::algorithm::convolution_direct;
  const bool forward = p.direction == Direction::forward;

  const dnnl::convolution_forward::primitive_desc pd(
      engine, forward ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training,
      direct, x, weight, bias, y, strides, dilations, before, after,
      forward ? attributes(p) : onednn::attributes());
  if (forward) {
    std::vector<onednn::Argument> arguments{
        {DNNL_ARG_SRC, 0, x, x_step}, {DNNL_ARG_WEIGHTS, 1, weight}, {DNNL_ARG_DST, ~0, y, y_step}};
    if (p.bias) arguments.push_back({DNNL_ARG_BIAS, 2, bias});
    return onednn::make_call(pd, std::move(arguments));
  }
  if (p.direction == Direction::input_gradient)
    return onednn::make_call(dnnl::convolution_backward_data::primitive_desc(
                                 engine, direct, x, weight, y, strides, dilations, before, after,
                                 pd, onednn::attributes()),
                             {{DNNL_ARG_DIFF_DST, 0, y, y_step},
                              {DNNL_ARG_WEIGHTS, 1, weight},
                              {DNNL_ARG_DIFF_SRC, ~0, x, x_step}});
  return onednn::make_call(dnnl::convolution_backward_weights::primitive_desc(
                               engine, direct, x, weight, y, strides, dilations, before, after, pd,
                               onednn::attributes()),
                           {{DNNL_ARG_SRC, 0, x, x_step},
                            {DNNL_ARG_DIFF_DST, 1, y, y_step},
                            {DNNL_ARG_DIFF_WEIGHTS, ~0, weight}});
}

struct Choice {
  Form form;
  std::unique_ptr<onednn::Task> task;
};
// The first form that oneDNN has real code for; of the dense one it takes any. Throws dnnl::error.
Choice choose(const Problem& p, const KernelRequest& r) {
  for (const Form& f : forms(p)) {
    const bool dense = f.y.is_dense();
    try {
      auto task = std::make_unique<onednn::Task>(r.threads, r.deterministic, p.z.n,
                                                 [&](int64_t n) { return call(p, f, n); });
      if (dense || !task->implementation().starts_with("ref")) return {f, std::move(task)};
    } catch (const dnnl::error&) {
      if (dense) throw;
    }
  }
  CAIRN_CHECK(false, "the dense form stands last");
}

OfferResult offer(const KernelRequest& r) {
  for (const TensorType& t : r.in)
    if (t.dtype != DType::f32) return Refusal{fmt::format("takes f32, got {}", name(t.dtype))};
  const Problem p = conv_problem(r);
  KernelOffer offer{std::vector<Layout>(r.in.size()), std::vector<Layout>(1)};
  if (any_empty(r)) {
    if (r.out[0].numel() && (p.bias || p.fused)) return Refusal{"an empty operand"};
    return offer;
  }
  if (p.activation && !eltwise(*p.activation))
    return Refusal{"oneDNN has no " + p.activation->op->name};
  try {
    const Choice choice = choose(p, r);
    const Form& f = choice.form;
    offer.workspace_bytes = choice.task->workspace_bytes();
    switch (p.direction) {
      case Direction::forward:
        offer.in[0] = f.x, offer.in[1] = f.weight, offer.out[0] = f.y;
        break;
      case Direction::input_gradient:
        offer.in[0] = f.y, offer.in[1] = f.weight, offer.out[0] = f.x;
        break;
      case Direction::weight_gradient:
        offer.in[0] = f.x, offer.in[1] = f.y, offer.out[0] = f.weight;
        break;
    }
    if (p.residual >= 0) {
      offer.in[size_t(p.residual)] = f.y;
      offer.in_place = {{p.residual, 0}};
    }
    return offer;
  } catch (const dnnl::error& e) {
    return Refusal{onednn::reason(e)};
  }
}

// Sums are added onto the residual, which must lie where the output goes.
class OntoResidual : public PreparedKernel {
 public:
  OntoResidual(std::unique_ptr<PreparedKernel> conv, int residual, int64_t bytes)
      : conv_(std::move(conv)), residual_(residual), bytes_(bytes) {}
  void run(const void* const* in, void* const* out, void* workspace) const override {
    copy_bytes(out[0], in[residual_], bytes_);
    conv_->run(in, out, workspace);
  }

 private:
  std::unique_ptr<PreparedKernel> conv_;
  int residual_;
  int64_t bytes_;
};

std::unique_ptr<PreparedKernel> prepare(const KernelRequest& r, const KernelOffer&) {
  if (any_empty(r)) return zeros(r.out);
  const Problem p = conv_problem(r);
  auto task = choose(p, r).task;
  if (p.residual < 0) return task;
  return std::make_unique<OntoResidual>(std::move(task), p.residual, r.out[0].bytes());
}

}  // namespace

const Kernel onednn_conv_kernel{&ops::conv_op, "onednn.conv", offer, prepare};
const Kernel onednn_conv_grad_input_kernel{&ops::conv_grad_input_op, "onednn.conv", offer, prepare};
const Kernel onednn_conv_grad_weight_kernel{&ops::conv_grad_weight_op, "onednn.conv", offer,
                                            prepare};
const Kernel onednn_fused_conv_kernel{&ops::fused_conv_op, "onednn.conv", offer, prepare};

}  // namespace cairn::cpu
