// Operators that compute what several do one after the other, so that what lies between them is not stored.
//
//   std::unique_ptr<Op> op = backend.ops().join(specs, Layout::lanes16);   // null: they stay separate
//
// Each operator but the last is read by the next one alone. On a CPU the result has the same bits as that of the separate
// operators; on a GPU sums are added in another order, and less is rounded. It has their parameters and their running
// statistics behind one another, and its backward reads no y.
#pragma once

#include <memory>
#include <span>

#include "backend/op.h"

namespace ddp {

class OpJoiner {
 public:
  OpJoiner() = default;
  OpJoiner(const OpJoiner&) = delete;
  OpJoiner& operator=(const OpJoiner&) = delete;
  virtual ~OpJoiner() = default;

  // Null if there is no such operator in this layout.
  virtual std::unique_ptr<Op> join(std::span<const OpSpec> /*specs*/, Layout /*layout*/) { return nullptr; }
  // The time of one forward and backward pass of an operator that join() makes.
  virtual double joined_seconds(std::span<const OpSpec> /*specs*/, Layout /*layout*/) { return 0; }
};

}  // namespace ddp
