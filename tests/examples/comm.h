// Names that the examples in the headers of comm use.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "comm/communicator.h"

namespace ddp::comm_examples {

extern Backend& backend;
extern DeviceQueue& queue;
extern const DeviceContext& device;
extern Communicator& ranks;
extern std::vector<float> gradient_values;
extern const std::vector<float*> partials;
extern const std::span<float> gradient, scratch;
extern const std::size_t begin, count, elements;
extern const int local_rank;
extern double value;
bool arrived();
bool wants_to_stop();

}  // namespace ddp::comm_examples
