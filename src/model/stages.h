// From layers to operators: what the graph computes, said in the backend's terms.
//
// Two rewrites happen on the way, and neither changes a result:
//   cropping  Pooling in floor mode and strides leave rows and columns at the lower right unread. What nobody reads is
//             not computed: every layer before shrinks, up to the image itself (LeNet's 26x26 becomes 24x24).
//   fusion    conv+ReLU(+2x2 average pooling) and linear+ReLU become one operator.
//
//   std::vector<Stage> stages = make_stages(graph, batch);
#pragma once

#include <string>
#include <vector>

#include "backend/op.h"
#include "model/graph.h"

namespace ddp {

// One operator of the network. Stage i reads the output of stage i-1; the first reads the input.
struct Stage {
  std::string name;  // of the layer whose parameters it has, else of its first layer
  OpSpec spec;
  std::vector<int> parameters;  // indices into Graph::parameters()
  // A flatten between the previous stage and this one: the elements of a sample in PyTorch's order are its input.
  bool flattens = false;
};

std::vector<Stage> make_stages(const Graph& graph, std::int64_t batch);

// The upper left part of the image that the network reads.
Shape cropped_input(const Graph& graph);

}  // namespace ddp
