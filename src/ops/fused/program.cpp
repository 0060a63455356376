// SPDX-License-Identifier: Apache-2.0
#include "ops/fused/program.h"

#include <cairn/ops.h>
#include <fmt/format.h>

#include <charconv>

namespace cairn::ops {
namespace {

constexpr int kMaxInputs = 1024;

// Reads a program from its text, left to right.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  FusedProgram program() {
    FusedProgram p;
    if (!accept("->")) {
      do p.calls.push_back(call(int(p.calls.size())));
      while (accept(";"));
      expect("->");
    }
    do p.results.push_back(operand(int(p.calls.size())));
    while (accept(","));
    if (at_ != text_.size()) wrong("the end");
    return p;
  }

 private:
  FusedCall call(int index) {
    if (word() != fmt::format("t{}", index)) wrong(fmt::format("t{} = …", index));
    expect("=");
    const std::string_view name = word();
    FusedCall c{find_op(name), {}, {}, {}};
    if (!c.op || c.op->fusion.kind != FusionClass::elementwise)
      wrong(fmt::format("an elementwise operator instead of '{}'", name));
    NamedValues values;
    if (accept("{") && !accept("}")) {
      do {
        std::string field(word());
        expect("=");
        values.push_back({std::move(field), value()});
      } while (accept(","));
      expect("}");
    }
    c.params = c.op->make_params(values);
    expect("(");
    if (accept(")")) return c;
    do c.args.push_back(operand(index));
    while (accept(","));
    expect(")");
    return c;
  }

  // iK, or tK of a call before `calls`.
  int operand(int calls) {
    const std::string_view w = word();
    int k = -1;
    const auto [end, error] =
        std::from_chars(w.data() + (w.empty() ? 0 : 1), w.data() + w.size(), k);
    const bool number =
        w.size() >= 2 && error == std::errc{} && end == w.data() + w.size() && k >= 0;
    if (number && w[0] == 'i' && k < kMaxInputs) return -1 - k;
    if (number && w[0] == 't' && k < calls) return k;
    wrong("an input iK or an earlier result tK");
  }

  ParamValue value() {
    skip();
    if (accept("[")) {
      std::vector<int64_t> list;
      if (accept("]")) return list;
      do {
        const ParamValue v = value();
        if (auto* i = std::get_if<int64_t>(&v))
          list.push_back(*i);
        else
          wrong("a list of integers");
      } while (accept(","));
      expect("]");
      return list;
    }
    if (accept("\"")) {
      std::string s;
      for (;; ++at_) {
        if (at_ == text_.size()) wrong("a closing quote");
        if (text_[at_] == '"') break;
        if (text_[at_] == '\\' && ++at_ == text_.size()) wrong("a closing quote");
        s += text_[at_];
      }
      ++at_;
      return s;
    }
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
            std::string_view("+-._").find(text_[at_]) != std::string_view::npos))
      ++at_;
    const std::string_view w = text_.substr(begin, at_ - begin);
    if (w == "true" || w == "false") return w == "true";
    int64_t i = 0;
    double d = 0;
    const char* last = w.data() + w.size();
    if (const auto r = std::from_chars(w.data(), last, i); r.ec == std::errc{} && r.ptr == last)
      return i;
    if (const auto r = std::from_chars(w.data(), last, d); r.ec == std::errc{} && r.ptr == last)
      return d;
    for (DType t : kAllDTypes)
      if (w == name(t)) return t;
    at_ = begin;
    wrong("a value");
  }

  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  std::string_view word() {
    skip();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
      ++at_;
    return text_.substr(begin, at_ - begin);
  }
  bool accept(std::string_view token) {
    skip();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    skip();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) wrong(fmt::format("'{}'", token));
  }
  [[noreturn]] void wrong(std::string_view expected) const {
    fail(ErrorCode::parse,
         fmt::format("fused program: expected {} at character {}: {}", expected, at_, text_));
  }

  std::string_view text_;
  size_t at_ = 0;
};

std::string operand_name(int arg) {
  return arg < 0 ? fmt::format("i{}", -1 - arg) : fmt::format("t{}", arg);
}
std::string operand_names(const std::vector<int>& args) {
  std::string out;
  for (int a : args) out += (out.empty() ? "" : ", ") + operand_name(a);
  return out;
}

}  // namespace

std::string FusedProgram::to_string() const {
  std::string out;
  for (size_t k = 0; k < calls.size(); ++k)
    out += fmt::format("{}t{} = {}{}({})", k ? "; " : "", k, calls[k].op->name,
                       calls[k].params.to_string(), operand_names(calls[k].args));
  return out + (out.empty() ? "-> " : " -> ") + operand_names(results);
}

FusedProgram parse_program(std::string_view text) { return Parser(text).program(); }

namespace {
const TensorType& operand_type(const FusedProgram& program, Types in, int arg) {
  if (arg >= 0) return program.calls[size_t(arg)].type;
  if (size_t(-1 - arg) >= in.size())
    fail(ErrorCode::invalid_argument,
         fmt::format("fused program: got {} inputs, expected {} or more", in.size(), -arg));
  return in[size_t(-1 - arg)];
}
}  // namespace

void infer_program(FusedProgram& program, Types in) {
  for (FusedCall& c : program.calls) {
    TypeList types;
    for (int a : c.args) types.push_back(operand_type(program, in, a));
    if (types.size() != c.op->inputs.size())
      fail(ErrorCode::invalid_argument, fmt::format("fused program: {} got {} inputs, expected {}",
                                                    c.op->name, types.size(), c.op->inputs.size()));
    for (size_t i = 0; i < types.size(); ++i)
      if (!contains(c.op->inputs[i].dtypes, types[i].dtype))
        fail(ErrorCode::dtype_unsupported,
             fmt::format("fused program: {}: input {}: got {}, expected a dtype that it takes",
                         c.op->name, c.op->inputs[i].name, cairn::to_string(types[i])));
    TypeList out = c.op->infer(c.params, types);
    CAIRN_CHECK(out.size() == 1, "an elementwise operator has one output");
    c.type = out[0];
  }
}

TypeList program_output_types(const FusedProgram& program, Types in) {
  TypeList out;
  for (int r : program.results) out.push_back(operand_type(program, in, r));
  return out;
}

}  // namespace cairn::ops
