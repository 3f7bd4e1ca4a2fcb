// The models known by name.
//
//   Graph graph = make_model("lenet", {1, 28, 28}, 10);
#pragma once

#include <string>
#include <vector>

#include "model/graph.h"

namespace ddp {

std::vector<std::string> model_names();

// Throws Error(usage) for an unknown name, suggesting the nearest.
void check_model_name(const std::string& name);

// Throws Error(usage) for an unknown name and for images too small for the model.
Graph make_model(const std::string& name, const Shape& image, std::int64_t classes);

}  // namespace ddp
