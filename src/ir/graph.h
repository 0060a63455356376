// SPDX-License-Identifier: Apache-2.0
// A typed graph of operator calls in execution order. (trail: recorded calls → typed graph)
#pragma once
#include <cairn/graph.h>

#include <string>
#include <vector>

namespace cairn {

using ValueId = int32_t;

// Every value has one producer: a node, an input, a variable or a constant.
struct Value {
  TensorType type;
  std::string name;  // of inputs and variables; else empty
};

struct Node {
  const OpDef* op;
  Params params;
  std::vector<ValueId> inputs, outputs;
  CallSite site;
  std::string path;  // module path of the call
};

class Graph {
 public:
  struct VariableInput {
    ValueId value;
    Variable variable;  // undefined after parsing
  };
  struct Constant {
    ValueId value;
    Tensor tensor;
  };
  struct Assign {
    int variable;  // index into variables
    ValueId value;
  };

  std::string name = "main";
  std::vector<Value> values;
  std::vector<ValueId> inputs;
  std::vector<VariableInput> variables;
  std::vector<Constant> constants;
  std::vector<Node> nodes;
  std::vector<ValueId> outputs;
  std::vector<Assign> assigns;

  ValueId add_value(TensorType type, std::string value_name = {});
  ValueId add_input(TensorType type, std::string input_name);
  ValueId add_constant(Tensor tensor);
  // Infers the output types; returns the new node's outputs.
  std::vector<ValueId> add_node(const OpDef& op, std::vector<ValueId> node_inputs, Params params = {},
                                CallSite site = {}, std::string path = {});
  const TensorType& type(ValueId v) const { return values[size_t(v)].type; }
  TypeList types(const std::vector<ValueId>& list) const;
};

// Throws `internal`, naming the node, unless: ids are in range, each value has one producer before its uses,
// recorded types equal inferred ones, assigns match their variables' types.
void verify(const Graph& graph);

// --- what passes share ---
// The index of the node that makes each value; −1 for inputs, variables and constants.
std::vector<int> producers(const Graph& graph);
// For each value, the nodes that read it (once per operand).
std::vector<std::vector<int>> uses(const Graph& graph);
// Outputs and assigns that read each value.
std::vector<int> result_uses(const Graph& graph);
// Rewrites every operand, output and assign through `to` (to[v] is v when unchanged; chains are followed).
void replace_values(Graph& graph, std::vector<ValueId> to);
// Drops nodes marked by a null op, and constants and variables that nothing reads (variables that are
// assigned stay). Value ids do not change.
void compact(Graph& graph);
// Makes constants of the values that variables have now, for deployment. Variables must not be assigned.
void freeze_variables(Graph& graph);
// Puts nodes behind what they read, keeping the order where it is free. `internal` when there is a circle.
void sort_nodes(Graph& graph);

}  // namespace cairn
