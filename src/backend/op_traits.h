// What an operator's caller has to know of it: the memory that it needs, what must be preserved between its passes, and what
// else its kernels can do. All of it is fixed when the operator is made, so a caller asks once and keeps the answer.
//
//   const OpTraits traits = op->traits();
//   const Memory workspace = backend.memory().allocate(traits.workspace_bytes, "the values of an operator");
//   const bool free_after_forward = !traits.reads_input(0);
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "backend/traffic.h"
#include "backend/weight_packing.h"

namespace ddp {

struct OpTraits {
  std::size_t saved_bytes = 0;      // kept by the caller from forward until backward
  std::size_t workspace_bytes = 0;  // free again after each pass
  // The inputs that backward reads, and whether it reads y; others need not be preserved.
  std::vector<std::size_t> backward_reads_inputs = {};
  bool backward_reads_y = false;
  // Whether y may alias x, and dx may alias dy: elementwise operators with the same layout on both sides.
  bool in_place = false;
  // Whether backward can add dx to the gradients that other readers of x have left there.
  bool adds_to_dx = false;
  // The form in which the kernels read the first parameter and may write its gradient, if that is not the plain one.
  std::optional<PackedShape> packed_form = std::nullopt;
  // Traffic of the kernels on a GPU; nullopt: one in each pass, which reads and writes each of its tensors once.
  std::optional<OpTraffic> traffic = std::nullopt;

  // Whether backward reads this input.
  bool reads_input(std::size_t which) const {
    return std::find(backward_reads_inputs.begin(), backward_reads_inputs.end(), which) != backward_reads_inputs.end();
  }
};

}  // namespace ddp
