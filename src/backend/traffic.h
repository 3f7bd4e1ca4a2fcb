// What one pass of an operator costs a GPU besides arithmetic, estimated from shapes: kernels that are started, and bytes
// that they read and write in memory if no cache keeps anything from one kernel to the next. Without the
// conversion of weights (weight_packing.h), which belongs to no single operator.
//
//   OpTraffic traffic;   traffic.backward += {1, 3.0 * 4 * count};   // one kernel that reads or writes three tensors
#pragma once

#include <cstdint>
#include <optional>

namespace ddp {

struct PassTraffic {
  std::int64_t kernels = 0;
  double bytes = 0;

  PassTraffic& operator+=(const PassTraffic& other) {
    kernels += other.kernels;
    bytes += other.bytes;
    return *this;
  }
};

struct OpTraffic {
  PassTraffic forward;
  PassTraffic backward;
  // The same where the input's gradient is added to what is there; nullopt: that is read in addition.
  std::optional<PassTraffic> backward_adding = {};
  bool with_loss = false;  // forward computes the loss too, if this is the last operator
};

}  // namespace ddp
