// Operators that compute what several do one after the other, so that what lies between them is not stored.
//
//   std::unique_ptr<Op> op = backend.ops().join(specs, Layout::lanes16, chosen);   // null: they stay separate
//
// It has the kernels that were chosen for each of them, or without a choice those that a rule finds.
// Each operator but the last is read by the next one alone; the last may have further inputs, which are then those of all. On a
// CPU the result has the same bits as that of the separate operators; on a GPU sums are added in another order, and less is
// rounded. It has their parameters and their running statistics behind one another, and its backward reads no y.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "backend/op.h"

namespace ddp {

class OpJoiner {
 public:
  OpJoiner() = default;
  OpJoiner(const OpJoiner&) = delete;
  OpJoiner& operator=(const OpJoiner&) = delete;
  virtual ~OpJoiner() = default;

  // Null if there is no such operator in this layout.
  virtual std::unique_ptr<Op> join(std::span<const OpSpec> /*specs*/, Layout /*layout*/,
                                   std::span<const std::string> /*kernels*/) {
    return nullptr;
  }
  std::unique_ptr<Op> join(std::span<const OpSpec> specs, Layout layout) { return join(specs, layout, {}); }
};

}  // namespace ddp
