// SPDX-License-Identifier: Apache-2.0
// The text form of graphs: printing and parsing.
//
//   graph main {
//     input %x: f32[8,3,32,32]
//     variable %conv.weight: f32[16,3,3,3]
//     constant %7: f32[] = {0.5}
//     %8: f32[8,16,32,32] = conv{stride=[1,1]}(%x, %conv.weight)  # conv net.cpp:12
//     output %8
//     assign %conv.weight = %9
//   }
//
// Graphs that are parameters (branches of cond) stand before the graph that uses them and are named @1, @2 …
#include <fmt/format.h>

#include <charconv>
#include <map>
#include <unordered_map>

#include "ir/graph.h"

namespace cairn {
namespace {

constexpr int64_t kInlineElements = 16;

class Printer {
 public:
  explicit Printer(bool full) : full_(full) {}

  std::string print(const Graph& graph) {
    std::string body;
    std::vector<int> number(graph.values.size(), -1);  // in the order of printing, so that text is canonical
    int next = 0;
    const auto label = [&](const Graph& g, ValueId v) {
      const std::string& name = g.values[size_t(v)].name;
      if (!name.empty()) return "%" + name;
      if (number[size_t(v)] < 0) number[size_t(v)] = next++;
      return fmt::format("%{}", number[size_t(v)]);
    };
    const auto typed = [&](ValueId v) { return fmt::format("{}: {}", label(graph, v), to_string(graph.type(v))); };
    for (ValueId v : graph.inputs) body += fmt::format("  input {}\n", typed(v));
    for (const auto& v : graph.variables)
      body += fmt::format("  variable {}{}\n", typed(v.value),
                          v.variable.defined() && !v.variable.trainable() ? " fixed" : "");
    for (const auto& c : graph.constants) body += fmt::format("  constant {} = {}\n", typed(c.value), constant(c.tensor));
    for (const Node& node : graph.nodes) {
      body += "  ";
      for (size_t i = 0; i < node.outputs.size(); ++i) body += (i ? ", " : "") + typed(node.outputs[i]);
      body += fmt::format(" = {}{}(", node.op->name, params(node.params));
      for (size_t i = 0; i < node.inputs.size(); ++i) body += (i ? ", " : "") + label(graph, node.inputs[i]);
      body += ")";
      const std::string site = to_string(node.site);
      if (!node.path.empty() || !site.empty())
        body += fmt::format("  # {}{}{}", node.path, node.path.empty() || site.empty() ? "" : " ", site);
      body += "\n";
    }
    if (!graph.outputs.empty()) {
      body += "  output ";
      for (size_t i = 0; i < graph.outputs.size(); ++i) body += (i ? ", " : "") + label(graph, graph.outputs[i]);
      body += "\n";
    }
    for (const auto& a : graph.assigns)
      body += fmt::format("  assign {} = {}\n", label(graph, graph.variables[size_t(a.variable)].value),
                          label(graph, a.value));
    return fmt::format("graph {} {{\n{}}}\n", graph.name.empty() ? "main" : graph.name, body);
  }
  const std::string& before() const { return before_; }

 private:
  std::string params(const Params& p) {
    std::string out;
    for (const auto& [name, value] : p.values()) {
      std::string text;
      if (auto* graph = std::get_if<GraphPtr>(&value); graph && *graph) {
        auto& number = numbers_[graph->get()];
        if (number == 0) {
          std::string sub = print(**graph);  // its own sub-graphs come first
          number = int(++count_);
          before_ += sub.replace(0, sub.find('{'), fmt::format("graph @{} ", number));
        }
        text = fmt::format("@{}", number);
      } else {
        text = to_string(value);
      }
      out += (out.empty() ? "{" : ", ") + name + "=" + text;
    }
    return out.empty() ? out : out + "}";
  }

  std::string constant(const Tensor& t) const {
    if (t.numel() <= kInlineElements) {
      std::string out;
      const auto v = t.to_doubles();
      for (size_t i = 0; i < v.size(); ++i) {
        const bool integer = !is_float(t.dtype());
        out += fmt::format("{}{}", i ? ", " : "",
                           integer ? (t.dtype() == DType::i64 ? fmt::format("{}", t.values<int64_t>()[i])
                                                              : fmt::format("{}", int64_t(v[i])))
                                   : fmt::format("{}", v[i]));
      }
      return "{" + out + "}";
    }
    if (!full_) return "elided";
    std::string out = "0x";
    const Tensor d = t.dense();
    for (size_t i = 0; i < size_t(d.type().bytes()); ++i) out += fmt::format("{:02x}", unsigned(d.bytes()[i]));
    return out;
  }

  bool full_;
  size_t count_ = 0;
  std::map<const Graph*, int> numbers_;
  std::string before_;
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  GraphPtr parse() {
    GraphPtr last;
    for (skip(); at_ < text_.size(); skip()) last = graph();
    if (!last) error("expected 'graph'");
    return last;
  }

 private:
  [[noreturn]] void error(const std::string& what) const {
    int line = 1;
    for (size_t i = 0; i < at_ && i < text_.size(); ++i) line += text_[i] == '\n';
    fail(ErrorCode::parse, fmt::format("graph text line {}: {}, got '{}'", line, what,
                                       text_.substr(std::min(at_, text_.size()), 24)));
  }
  void skip() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }
  bool take(std::string_view token) {
    skip();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) error(fmt::format("expected '{}'", token));
  }
  static bool word_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-' || c == '+' || c == '/';
  }
  std::string_view word() {
    skip();
    const size_t begin = at_;
    while (at_ < text_.size() && word_char(text_[at_])) ++at_;
    if (at_ == begin) error("expected a word");
    return text_.substr(begin, at_ - begin);
  }
  template <class T>
  T number(std::string_view w) const {
    T v{};
    const auto [end, ec] = std::from_chars(w.data(), w.data() + w.size(), v);
    if (ec != std::errc{} || end != w.data() + w.size()) error(fmt::format("expected a number instead of '{}'", w));
    return v;
  }
  TensorType type() {
    skip();
    const size_t close = text_.find(']', at_);
    if (close == text_.npos || close - at_ > 200) error("expected a type such as f32[2,3]");
    const auto t = text_.substr(at_, close + 1 - at_);
    at_ = close + 1;
    return parse_tensor_type(t);
  }
  std::string label() {
    expect("%");
    return std::string(word());
  }

  ParamValue value() {
    skip();
    if (take("[")) {
      std::vector<int64_t> list;
      while (!take("]")) {
        list.push_back(number<int64_t>(word()));
        take(",");
      }
      return list;
    }
    if (take("\"")) {
      std::string s;
      while (at_ < text_.size() && text_[at_] != '"') {
        if (text_[at_] == '\\') ++at_;
        if (at_ < text_.size()) s += text_[at_++];
      }
      expect("\"");
      return s;
    }
    if (take("@")) {
      const auto w = word();
      if (w == "none") return GraphPtr();
      const auto it = graphs_.find(std::string(w));
      if (it == graphs_.end()) error(fmt::format("no graph @{} before this", w));
      return it->second;
    }
    const auto w = word();
    if (w == "true") return true;
    if (w == "false") return false;
    for (DType d : kAllDTypes)
      if (name(d) == w) return d;
    if (w.find_first_of(".einf") != w.npos) return number<double>(w);
    return number<int64_t>(w);
  }

  Tensor constant(const TensorType& t) {
    if (take("0x")) {
      const auto hex = word();
      std::vector<uint8_t> bytes;
      for (size_t i = 0; i + 1 < hex.size(); i += 2) {
        uint8_t b = 0;
        const auto [end, ec] = std::from_chars(hex.data() + i, hex.data() + i + 2, b, 16);
        if (ec != std::errc{} || end != hex.data() + i + 2) error("expected hexadecimal bytes");
        bytes.push_back(b);
      }
      return Tensor::from_bytes(t, bytes.data(), bytes.size());
    }
    if (take("elided")) error("a constant was elided; print the graph in full to read it back");
    expect("{");
    if (t.numel() > kInlineElements) error("expected fewer elements in a constant");
    Tensor out = Tensor::full(t, 0);
    for (int64_t i = 0; i < t.numel(); ++i) {
      if (i) expect(",");
      const auto w = word();
      visit_dtype(t.dtype, [&](auto tag) {
        using T = decltype(tag);
        T* p = reinterpret_cast<T*>(out.mutable_bytes()) + i;
        if constexpr (std::is_same_v<T, Half>) *p = to_half(number<float>(w));
        else if constexpr (std::is_same_v<T, BFloat16>) *p = to_bfloat16(number<float>(w));
        else if constexpr (std::is_same_v<T, bool>) *p = number<int>(w) != 0;
        else if constexpr (std::is_floating_point_v<T>) *p = T(number<double>(w));
        else *p = number<T>(w);
      });
    }
    expect("}");
    return out;
  }

  GraphPtr graph() {
    expect("graph");
    auto g = std::make_shared<Graph>();
    const bool numbered = take("@");
    g->name = std::string(word());
    expect("{");
    std::unordered_map<std::string, ValueId> by_name;
    const auto define = [&](const std::string& l, TensorType t) {
      const bool is_number = l.find_first_not_of("0123456789") == l.npos;
      const ValueId v = g->add_value(t, is_number ? "" : l);
      if (!by_name.emplace(l, v).second) error(fmt::format("%{} is defined twice", l));
      return v;
    };
    const auto lookup = [&] {
      const std::string l = label();
      const auto it = by_name.find(l);
      if (it == by_name.end()) error(fmt::format("%{} is read before it is made", l));
      return it->second;
    };
    while (!take("}")) {
      skip();
      if (text_.substr(at_, 1) != "%") {
        const auto kind = word();
        if (kind == "input" || kind == "variable" || kind == "constant") {
          const std::string l = label();
          expect(":");
          const TensorType t = type();
          const ValueId v = define(l, t);
          if (kind == "input") g->inputs.push_back(v);
          else if (kind == "variable") take("fixed"), g->variables.push_back({v, {}});
          else expect("="), g->constants.push_back({v, constant(t)});
        } else if (kind == "output") {
          do g->outputs.push_back(lookup());
          while (take(","));
        } else if (kind == "assign") {
          const ValueId target = lookup();
          expect("=");
          const ValueId from = lookup();
          int index = -1;
          for (size_t i = 0; i < g->variables.size(); ++i)
            if (g->variables[i].value == target) index = int(i);
          if (index < 0) error("assign to something that is no variable");
          g->assigns.push_back({index, from});
        } else {
          error(fmt::format("expected input, variable, constant, output, assign or a value instead of '{}'", kind));
        }
        continue;
      }
      std::vector<std::pair<std::string, TensorType>> results;
      do {
        std::string l = label();
        expect(":");
        results.emplace_back(std::move(l), type());
      } while (take(","));
      expect("=");
      const auto op_name = word();
      const OpDef* op = find_op(op_name);
      if (!op) error(fmt::format("no operator is called '{}'", op_name));
      NamedValues named;
      if (take("{"))
        while (!take("}")) {
          std::string key(word());
          expect("=");
          named.push_back({std::move(key), value()});
          take(",");
        }
      Node node{op, op->make_params(named), {}, {}, {}, {}};
      expect("(");
      while (!take(")")) {
        node.inputs.push_back(lookup());
        take(",");
      }
      const TypeList inferred = op->infer(node.params, g->types(node.inputs));
      if (inferred.size() != results.size())
        error(fmt::format("{} gives {} values, not {}", op_name, inferred.size(), results.size()));
      for (size_t i = 0; i < results.size(); ++i) {
        if (inferred[i] != results[i].second)
          error(fmt::format("{} gives {}, not {}", op_name, to_string(inferred[i]), to_string(results[i].second)));
        node.outputs.push_back(define(results[i].first, results[i].second));
      }
      g->nodes.push_back(std::move(node));
    }
    if (numbered) graphs_[g->name] = g;
    return g;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::unordered_map<std::string, GraphPtr> graphs_;
};

}  // namespace

std::string print(const Graph& graph, bool full) {
  Printer printer(full);
  const std::string text = printer.print(graph);
  return printer.before() + text;
}

GraphPtr parse_graph(std::string_view text) { return Parser(text).parse(); }

}  // namespace cairn
