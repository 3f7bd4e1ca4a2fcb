// Names that the examples in the headers of gradients use.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "comm/sums/device_communicator.h"
#include "optim/optimizer.h"

namespace ddp::gradients_examples {

extern Backend& backend;
extern Communicator& ranks;
extern DeviceCommunicator& sums;
extern Optimizer& optimizer;
extern const std::vector<std::size_t> parameter_sizes;
extern const std::size_t elements;
extern float* parameters;
extern const StepControl* control;
extern const double* skip;
void backward(float* gradient, const std::function<void(std::size_t)>& ready);

}  // namespace ddp::gradients_examples
