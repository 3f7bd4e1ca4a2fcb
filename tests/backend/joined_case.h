// One operator of several (OpJoiner::join()): their reference, and the operator on a backend with random values.
//
//   JoinedDevice device(backend, specs, Layout::nhwc, active);
//   JoinedReference expected(specs, active);
//   device.forward(true);
//   expect_near(device.y.get(active), expected.forward(device.values(), true), tolerance, "y");
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/device_values.h"
#include "backend/op_check.h"

namespace ddp {

std::string describe(const std::vector<OpSpec>& specs);

// What a pass starts from.
struct JoinedValues {
  std::vector<reference::Values> inputs;      // as input_shapes() has them
  std::vector<reference::Values> parameters;  // of all operators
  std::vector<reference::Values> statistics;  // of all that have such
};

// One pass by the operators of the reference, for the active samples.
class JoinedReference {
 public:
  JoinedReference(std::vector<OpSpec> specs, std::int64_t active);

  reference::Values forward(const JoinedValues& values, bool training);
  const std::vector<reference::Values>& statistics() const { return statistics_; }

  // Without gradients where rounding decides which of them pass the last activation.
  reference::Values without_kinks(reference::Values dy, double distance) const;
  // A gradient, and the size that rounding errors are relative to. Those of parameters are sums that may cancel out: a
  // normalisation undoes what changes its whole input by a factor or an offset. The errors of a value are in the sums of
  // all inputs at its place: in those of the convolution in front, as many as there are input channels.
  struct Gradient {
    reference::Values values;
    double size = 0;
  };
  struct Gradients {
    std::vector<Gradient> parameters;
    Gradient dx;
    std::vector<reference::Values> further;  // of the other inputs
  };
  Gradients backward(const reference::Values& dy) const;

 private:
  std::vector<OpSpec> specs_;
  std::vector<reference::Inputs> inputs_;
  std::vector<reference::Values> statistics_;
};

// The length of a vector of values.
double size_of(const reference::Values& values);
// That the difference is at most `most` long.
void expect_near(const reference::Values& actual, const reference::Values& expected, double most,
                 const std::string& what);
reference::Values widened(const std::vector<float>& values);

// The operator on the device, with random values; memory that it has not written holds garbage.
class JoinedDevice {
 public:
  JoinedDevice(Backend& backend, const std::vector<OpSpec>& specs, Layout layout, std::int64_t active);

  void forward(bool training);
  void backward(bool add = false);
  // Those that it has now.
  JoinedValues values() const;

 private:
  std::vector<OpSpec> specs_;
  std::unique_ptr<Op> op_;
  std::int64_t active_;

 public:
  std::vector<DeviceActivation> x, dx;  // of each input
  DeviceActivation y, dy;
  std::vector<DeviceArray<float>> parameters, gradients, statistics;

 private:
  std::vector<DeviceArray<std::uint8_t>> saved_, workspace_;
};

// Draws those inputs again that the normalisation in front, the first operator, brings so near a kink of its activation that
// rounding decides whether their gradient passes: one that does would exceed the tolerance of fp32.
void avoid_kinks(JoinedDevice& device, BatchNormSpec spec, std::int64_t active);

}  // namespace ddp
