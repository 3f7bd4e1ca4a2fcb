// Names that the examples in the headers of optim use.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "optim/rules/settings.h"

namespace ddp::optim_examples {

extern Backend& backend;
extern const std::int64_t parameter_count;
extern float *parameters, *slow;
extern const float* gradient;
extern const StepControl* control;
extern const double* broken;

}  // namespace ddp::optim_examples
