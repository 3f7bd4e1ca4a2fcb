// Notes of an import about the whole ONNX model: all unsupported operators, and layers that an exporter has folded
// away.
#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text/text.h"
#include "onnx/importer/importer.h"
#include "onnx/patterns/fold.h"

namespace ddp {
namespace {

// The names of the operators in PyTorch.
constexpr std::array<std::pair<std::string_view, std::string_view>, 44> kInPyTorch = {{
    {"Abs", "torch.abs"},
    {"ArgMax", "torch.argmax"},
    {"Ceil", "torch.ceil"},
    {"Celu", "nn.CELU"},
    {"Concat", "torch.cat"},
    {"ConvTranspose", "nn.ConvTranspose2d"},
    {"CumSum", "torch.cumsum"},
    {"DepthToSpace", "nn.PixelShuffle"},
    {"Einsum", "torch.einsum"},
    {"Elu", "nn.ELU"},
    {"Erf", "nn.GELU"},
    {"Exp", "torch.exp"},
    {"Expand", "Tensor.expand"},
    {"GRU", "nn.GRU"},
    {"Gather", "indexing"},
    {"Gelu", "nn.GELU"},
    {"GroupNormalization", "nn.GroupNorm"},
    {"HardSigmoid", "nn.Hardsigmoid"},
    {"HardSwish", "nn.Hardswish"},
    {"InstanceNormalization", "nn.InstanceNorm2d or nn.GroupNorm"},
    {"LSTM", "nn.LSTM"},
    {"LayerNormalization", "nn.LayerNorm"},
    {"LeakyRelu", "nn.LeakyReLU"},
    {"LpNormalization", "F.normalize"},
    {"Max", "torch.maximum"},
    {"Min", "torch.minimum"},
    {"Mish", "nn.Mish"},
    {"Neg", "-x"},
    {"PRelu", "nn.PReLU"},
    {"Pow", "x ** n"},
    {"Reciprocal", "1 / x"},
    {"ReduceL2", "torch.norm"},
    {"ReduceMax", "torch.amax"},
    {"ReduceSum", "torch.sum"},
    {"Resize", "F.interpolate"},
    {"Selu", "nn.SELU"},
    {"Slice", "slicing"},
    {"Softplus", "nn.Softplus"},
    {"SpaceToDepth", "nn.PixelUnshuffle"},
    {"Split", "torch.split"},
    {"Sqrt", "torch.sqrt"},
    {"Swish", "nn.SiLU"},
    {"Unsqueeze", "torch.unsqueeze"},
    {"Where", "torch.where"},
}};

std::string with_pytorch_name(const std::string& type) {
  const auto* found =
      std::find_if(kInPyTorch.begin(), kInPyTorch.end(), [&](const auto& each) { return each.first == type; });
  return found == kInPyTorch.end() ? type : fmt::format("{} ({} in PyTorch)", type, found->second);
}

}  // namespace

void Importer::refuse_unsupported() const {
  if (unsupported_.empty()) return;
  std::map<std::string, std::vector<const OnnxNode*>> by_type;
  for (const OnnxNode* node : unsupported_) by_type[node->type].push_back(node);
  std::vector<std::string> texts;
  for (const auto& [type, nodes] : by_type) {
    const std::string more = nodes.size() == 1 ? "" : fmt::format(" and {} more", nodes.size() - 1);
    texts.push_back(fmt::format("{}{} at node '{}'{}", with_pytorch_name(type), folds(type) ? " on images" : "",
                                nodes.front()->name, more));
  }
  throw Error(ExitCode::usage, fmt::format("it has operators that are not supported: {}; supported are {}",
                                           join(texts, ", "), known_types()));
}

// PyTorch's exporters fold batch normalisation into convolutions by default, and drop zero biases.
void Importer::warn_of_folding() const {
  const std::vector<Layer>& layers = result_.graph.layers();
  std::vector<bool> shifted(layers.size(), false);
  for (const Layer& layer : layers) {
    const auto* affine = std::get_if<AffineLayer>(&layer.kind);
    if (!std::holds_alternative<BatchNormLayer>(layer.kind) && (affine == nullptr || !affine->shift)) continue;
    shifted[static_cast<std::size_t>(layer.inputs[0])] = true;
  }
  int all = 0;
  int without = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto* conv = std::get_if<ConvLayer>(&layers[i].kind);
    if (conv == nullptr) continue;
    ++all;
    if (folded_norms_.contains(static_cast<int>(i)) || (!conv->bias && !shifted[i])) ++without;
  }
  if (without == 0) return;
  log_info(
      "{} of {} convolutions {} batch normalisation; PyTorch's default export folds it away, and drops biases of "
      "zeros: the network then trains as another one. docs/onnx.md has the calls that keep it",
      without, all, !folded_norms_.empty() ? "have lost their" : "have neither a bias nor");
}

}  // namespace ddp
