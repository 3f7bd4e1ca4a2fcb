// Vector arithmetic on flat buffers of device memory, ordered by the queue (Note [Order of work] in device_queue.h).
//
//   backend.math().add(sum, addend, count);
//   backend.math().update(arguments);   // one step of an optimizer
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/activations.h"
#include "backend/tensor.h"
#include "backend/update/flat_update.h"
#include "backend/update/table_rows.h"
#include "backend/weight_packing.h"

namespace ddp {

inline constexpr std::size_t kSquareSums = 64;

// *broken = 1 if any of the sums is non-finite; otherwise it stays as it is.
struct NonfiniteCheck {
  std::span<const double> sums = {};
  double* broken = nullptr;  // null: no check
};

class FlatMath {
 public:
  FlatMath() = default;
  FlatMath(const FlatMath&) = delete;
  FlatMath& operator=(const FlatMath&) = delete;
  virtual ~FlatMath() = default;

  virtual void fill_zero(void* device, std::size_t bytes) = 0;
  // sum[i] += addend[i], both of the same type; in fp32, rounded once.
  virtual void add(Activations sum, ConstActivations addend, std::size_t count) = 0;
  // to[i] = from[i], of fp32 or converted (rounded) between fp32 and another type. With `skip`, of fp32 only, it does nothing
  // if *skip is not 0 when the work runs.
  virtual void copy(Activations to, ConstActivations from, std::size_t count, const double* skip = nullptr) = 0;
  // Writes kSquareSums sums of squares, each over an equal part of the values, so that their total is the square of the
  // L2 norm; summed in a fixed order. A sum is finite if all values of its part are, as no square of a float overflows in
  // double precision. Then it makes the check, of sums that may contain these. Without `sums` it only makes the check.
  virtual void square_sums(const float* values, std::size_t count, double* sums, const NonfiniteCheck& check) = 0;
  // Moves `slow` towards `fast` by the fraction `rest` of their difference, then sets `fast` to it; `skip` as
  // for copy().
  virtual void pull(float* slow, float* fast, std::size_t count, float rest, const double* skip) = 0;
  // Copies row `cursor->row` of the columns, kMostColumns at most, and moves the cursor to the next row, after the last one
  // to the first: so what a recording reads can differ from one replay to the next. Without a cursor it copies row 0. Columns
  // may be host memory of allocate_for_transfer(), as in DeviceQueue::download(): one kernel takes less time than several
  // small copies.
  virtual void copy_row(std::span<const TableColumn> columns, TableCursor* cursor) = 0;
  // Converts weights, or gradients back, for operators with OpTraits::packed_form, which only some backends have.
  virtual void convert_weights(std::span<const WeightPacking> /*all*/, PackingDirection /*direction*/) {}
  // One optimizer step on all parameters.
  virtual void update(const UpdateArguments& arguments) = 0;

  void find_nonfinite(const NonfiniteCheck& check) { square_sums(nullptr, 0, nullptr, check); }
};

}  // namespace ddp
