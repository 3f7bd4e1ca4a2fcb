// Names that the examples in the headers of model use.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "gradients/reducer.h"
#include "model/graph.h"
#include "model/layout_plan.h"
#include "model/network.h"

namespace ddp::model_examples {

extern Backend& backend;
extern Reducer& reducer;
extern const Graph& graph;
extern const std::vector<Stage> stages;
extern const std::vector<double> seconds;
extern const LayoutPlan plan;
extern Memory arena;
extern const std::span<float> flat;
extern const std::size_t bytes;
extern const std::int64_t batch, count;
extern const float global_batch;
extern float *parameters, *statistics, *gradient;
extern const std::uint8_t* pixels;
extern const std::int32_t* labels;
extern double *loss_sum, *correct;

}  // namespace ddp::model_examples
