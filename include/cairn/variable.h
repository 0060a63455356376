// SPDX-License-Identifier: Apache-2.0
// Variables: the one mutable cell (parameters, norm statistics, optimiser state, averages, counters).
#pragma once
#include <cairn/tensor.h>

namespace cairn {

// A value that a compiled plan keeps in a layout of its own between steps.
class CAIRN_API ResidentValue {
 public:
  virtual ~ResidentValue() = default;
  virtual Tensor to_plain() const = 0;
};

// A cheap handle to a shared cell; copies name the same cell. Not thread-safe: one thread trains.
// Under a trace, read() makes a graph input bound to the cell, assign() a graph output whose memory is
// donated to it. Outside, they act now.
class CAIRN_API Variable {
 public:
  Variable() = default;
  Variable(std::string name, Tensor initial, bool trainable = true);

  bool defined() const { return bool(cell_); }
  const std::string& name() const { return cell_->name; }
  void rename(std::string name) { cell_->name = std::move(name); }
  const TensorType& type() const { return cell_->type; }
  bool trainable() const { return cell_->trainable; }
  void set_trainable(bool trainable) { cell_->trainable = trainable; }

  Tensor read() const;                   // through the interpreter
  void assign(const Tensor& value) const;  // same type, else shape_mismatch

  // The concrete value now, around any interpreter (checkpoints, printing); repacks a resident one.
  Tensor value() const;
  void set_value(Tensor value) const;

  // For interpreters and plans.
  struct Cell {
    std::string name;
    TensorType type;
    bool trainable = true;
    Tensor value;                             // undefined while `resident` is newer
    std::shared_ptr<ResidentValue> resident;
    uint64_t version = 0;                     // counts set_value and plan writes
  };
  const std::shared_ptr<Cell>& cell() const { return cell_; }
  bool operator==(const Variable& other) const { return cell_ == other.cell_; }

 private:
  std::shared_ptr<Cell> cell_;
};

}  // namespace cairn
