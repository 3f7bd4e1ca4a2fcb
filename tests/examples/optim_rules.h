// Names that the examples in the headers of optim/rules use.
#pragma once

#include <cstdint>

#include "optim/rules/settings.h"

namespace ddp::optim_rules_examples {

extern const UpdateSettings settings;
extern const UpdateBuffers buffers;
extern const StepControl control;
extern const std::int64_t count, i;
extern const float* gradient;
extern const double square_sum;

}  // namespace ddp::optim_rules_examples
