// SPDX-License-Identifier: Apache-2.0
// Operator parameters: a plain struct whose fields are described once; printing, parsing, hashing,
// equality and ONNX attributes follow from the description.
//
//   struct SoftmaxParams {
//     int64_t axis = -1;
//     static constexpr auto fields = describe(field("axis", &SoftmaxParams::axis));
//   };
#pragma once
#include <cairn/shape.h>

#include <functional>
#include <memory>
#include <tuple>
#include <typeindex>
#include <variant>
#include <vector>

namespace cairn {

class Graph;  // ir/graph.h; control-flow operators carry their branches as parameters
using GraphPtr = std::shared_ptr<const Graph>;

// The kinds of value that a field may have. Shapes and int64 vectors are lists.
using ParamValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, DType, GraphPtr>;
struct NamedValue {
  std::string name;
  ParamValue value;
};
using NamedValues = std::vector<NamedValue>;
CAIRN_API std::string to_string(const ParamValue& value);  // doubles print so that they read back exactly

template <class P, class T>
struct Field {
  const char* name;
  T P::*member;
};
template <class P, class T>
constexpr Field<P, T> field(const char* name, T P::*member) { return {name, member}; }
template <class... F>
constexpr std::tuple<F...> describe(F... f) { return {f...}; }

struct NoParams {
  static constexpr auto fields = describe();
};

namespace detail {
template <class T>
ParamValue to_value(const T& v) {
  if constexpr (std::is_same_v<T, Shape>) return std::vector<int64_t>(v.begin(), v.end());
  else if constexpr (std::is_same_v<T, bool>) return v;
  else if constexpr (std::is_integral_v<T>) return int64_t(v);
  else if constexpr (std::is_floating_point_v<T>) return double(v);
  else return v;
}
[[noreturn]] CAIRN_API void wrong_param(std::string_view op, std::string_view field, const ParamValue& got,
                                        std::string_view expected);
template <class T>
void from_value(std::string_view op, std::string_view name, const ParamValue& value, T& out) {
  if constexpr (std::is_same_v<T, Shape>) {
    if (auto* p = std::get_if<std::vector<int64_t>>(&value)) return void(out = Shape(*p));
    wrong_param(op, name, value, "a list of integers");
  } else if constexpr (std::is_same_v<T, bool>) {
    if (auto* p = std::get_if<bool>(&value)) return void(out = *p);
    if (auto* p = std::get_if<int64_t>(&value)) return void(out = *p != 0);
    wrong_param(op, name, value, "true or false");
  } else if constexpr (std::is_integral_v<T>) {
    if (auto* p = std::get_if<int64_t>(&value)) return void(out = T(*p));
    wrong_param(op, name, value, "an integer");
  } else if constexpr (std::is_floating_point_v<T>) {
    if (auto* p = std::get_if<double>(&value)) return void(out = T(*p));
    if (auto* p = std::get_if<int64_t>(&value)) return void(out = T(*p));
    wrong_param(op, name, value, "a number");
  } else {
    if (auto* p = std::get_if<T>(&value)) return void(out = *p);
    wrong_param(op, name, value, "another kind of value");
  }
}
[[noreturn]] CAIRN_API void unknown_param(std::string_view op, std::string_view name);

struct ParamsType {
  std::type_index type;
  NamedValues (*values)(const void*);
};
template <class P>
NamedValues values_of(const void* p) {
  NamedValues out;
  std::apply([&](auto... f) { (out.push_back({f.name, to_value(static_cast<const P*>(p)->*f.member)}), ...); },
             P::fields);
  return out;
}
template <class P>
const ParamsType* params_type() {
  static const ParamsType type{typeid(P), &values_of<P>};
  return &type;
}
}  // namespace detail

// The parameters of one call, type-erased, immutable, cheap to copy.
class CAIRN_API Params {
 public:
  Params() : Params(NoParams{}) {}
  template <class P>
    requires requires { P::fields; }
  Params(P p) : data_(std::make_shared<const P>(std::move(p))), type_(detail::params_type<P>()) {}

  template <class P>
  const P& as() const {
    CAIRN_CHECK(type_->type == std::type_index(typeid(P)), "operator parameters of another type");
    return *static_cast<const P*>(data_.get());
  }
  NamedValues values() const { return type_->values(data_.get()); }
  std::string to_string() const;  // "{axis=1, keep=true}", "" without fields
  bool operator==(const Params& other) const;
  uint64_t hash() const;

 private:
  std::shared_ptr<const void> data_;
  const detail::ParamsType* type_;
};

// Builds a P from named values; fields not named keep their default, unknown names are refused.
template <class P>
Params make_params(std::string_view op, const NamedValues& values) {
  P p{};
  for (const auto& [name, value] : values) {
    bool found = false;
    std::apply(
        [&, &name = name, &value = value](auto... f) {
          ((name == f.name ? (detail::from_value(op, name, value, p.*f.member), found = true) : false), ...);
        },
        P::fields);
    if (!found) detail::unknown_param(op, name);
  }
  return Params(std::move(p));
}

}  // namespace cairn
