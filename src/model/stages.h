// Lowers the layers of a graph to the operators of a backend.
//
// Two rewrites happen on the way, and neither changes a result:
//   cropping  Pooling in floor mode and strides leave rows and columns at the lower right unread. What is never read is
//             not computed: every earlier layer shrinks, up to the image itself (LeNet's 26x26 becomes 24x24). Batch
//             normalisation ends this, as its statistics read everything.
//   fusion    conv+ReLU(+2x2 average pooling), linear+ReLU, batch norm(+sum)(+ReLU or ReLU6) and sum+ReLU become one
//             operator each, unless another layer reads a value in between.
// A third one happens where the backend takes_bias_into_norm(): the bias of a convolution or linear layer in front of
// batch normalisation becomes the latter's input bias. It has no effect on the loss, so training saves the passes that
// add it and sum its gradient, which is then exactly zero instead of rounding errors.
//
//   std::vector<Stage> stages = make_stages(graph, batch, backend.ops().takes_bias_into_norm());
#pragma once

#include <string>
#include <vector>

#include "backend/op.h"
#include "model/graph.h"

namespace ddp {

// An input of a stage.
struct StageInput {
  int stage = -1;  // whose output; -1: the images
  // A flatten in between: the elements of a sample in PyTorch's order are the input.
  bool flattens = false;
};

// One operator of the network. It reads stages before it; the last stage gives the logits.
struct Stage {
  std::string name;  // of the layer whose parameters it has, else of its first layer; unique
  OpSpec spec;
  std::vector<StageInput> inputs;  // one or two, see inputs_of()
  std::vector<int> parameters;     // indices into Graph::parameters()
  std::int64_t statistics = -1;    // where its running statistics begin in the flat ones; -1: it has none
};

std::vector<Stage> make_stages(const Graph& graph, std::int64_t batch, bool bias_into_norm = false);

// The upper left part of the image that the network reads.
Shape cropped_input(const Graph& graph);

}  // namespace ddp
