// Lowers the layers of a graph to the operators of a backend.
//
//   std::vector<Stage> stages = make_stages(graph, batch, backend.ops().traits().takes_bias_into_norm);
//
// Two rewrites are applied, neither of which changes a result:
//   cropping  Pooling in floor mode and strides leave rows and columns at the lower right unread. These are
//             not computed: every earlier layer shrinks, up to the image itself (LeNet's 26x26 becomes 24x24). Batch
//             normalisation ends this, as its statistics read everything.
//   fusion    conv+ReLU(+2x2 average pooling), linear+ReLU, batch norm(+sum)(+ReLU or ReLU6) and sum+ReLU become one
//             operator each, unless another layer reads a value in between.
// A third one applies if BackendTraits::takes_bias_into_norm is true: the bias of a convolution or linear layer before
// batch normalisation becomes the input bias of the normalisation. It does not affect the loss, so training skips
// adding it and summing its gradient, which is then exactly zero instead of rounding errors.
#pragma once

#include <string>
#include <vector>

#include "backend/op.h"
#include "model/graph.h"

namespace ddp {

// An input of a stage.
struct StageInput {
  int stage = -1;  // whose output; -1: the images
  // A flatten in between: the input is the elements of a sample in PyTorch's order.
  bool flattens = false;
};

// One operator of the network. It reads stages before it; the last stage gives the logits.
struct Stage {
  std::string name;  // the layer whose parameters it has, otherwise its first layer; unique
  OpSpec spec;
  std::vector<StageInput> inputs;  // see inputs_of()
  std::vector<int> parameters;     // indices into Graph::parameters()
  // Whether backward computes anything: false before the first parameter that is trained, if others are frozen.
  bool backward = true;
  std::int64_t statistics = -1;  // offset of its running statistics in the flat buffer; -1: none
};

std::vector<Stage> make_stages(const Graph& graph, std::int64_t batch, bool bias_into_norm = false);

// The upper left part of the image that the network reads.
Shape cropped_input(const Graph& graph);

}  // namespace ddp
