#include "model/zoo.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text/text.h"
#include "model/known_elsewhere.h"
#include "model/zoo/builders.h"

namespace ddp {
namespace {

using Maker = Graph (*)(const Shape&, std::int64_t);
constexpr std::array<std::pair<const char*, Maker>, 27> kModels = {{{"lenet", zoo::lenet},
                                                                    {"mnist-slim", zoo::mnist_slim},
                                                                    {"mnist-towers", zoo::mnist_towers},
                                                                    {"resnet18-d2l", zoo::resnet18_d2l},
                                                                    {"resnet9", zoo::resnet9},
                                                                    {"airbench94", zoo::airbench94},
                                                                    {"airbench94-muon", zoo::airbench94_muon},
                                                                    {"cifar10-tutorial", zoo::cifar10_tutorial},
                                                                    {"resnet18", zoo::resnet18},
                                                                    {"resnet34", zoo::resnet34},
                                                                    {"resnet50", zoo::resnet50},
                                                                    {"wide-resnet50-2", zoo::wide_resnet50_2},
                                                                    {"mobilenet-v2", zoo::mobilenet_v2},
                                                                    {"mobilenet-v3-large", zoo::mobilenet_v3_large},
                                                                    {"mobilenet-v3-small", zoo::mobilenet_v3_small},
                                                                    {"efficientnet-b0", zoo::efficientnet_b0},
                                                                    {"convnext-tiny", zoo::convnext_tiny},
                                                                    {"shufflenet-v2", zoo::shufflenet_v2},
                                                                    {"densenet121", zoo::densenet121},
                                                                    {"squeezenet1-1", zoo::squeezenet1_1},
                                                                    {"alexnet", zoo::alexnet},
                                                                    {"vgg11", zoo::vgg11},
                                                                    {"vgg11-bn", zoo::vgg11_bn},
                                                                    {"vgg16", zoo::vgg16},
                                                                    {"vgg16-bn", zoo::vgg16_bn},
                                                                    {"caffe-lenet", zoo::caffe_lenet},
                                                                    {"caffenet", zoo::caffenet}}};

// Names of other libraries for models that are built in.
constexpr auto kAliases = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"mobilenetv2_100", "mobilenet-v2"},
    {"mobilenetv3_large_100", "mobilenet-v3-large"},
    {"mobilenetv3_small_100", "mobilenet-v3-small"},
    {"shufflenet_v2_x1_0", "shufflenet-v2"},
});

// The model with this name in other libraries, also after "timm/" and before ".a1_in1k"; "" if there is none.
std::string meant_model(std::string_view name, const std::vector<std::string>& names) {
  name.remove_prefix(name.rfind('/') == std::string_view::npos ? 0 : name.rfind('/') + 1);
  for (const std::string_view each : {name, name.substr(0, name.rfind('.'))}) {
    for (const auto& [alias, model] : kAliases) {
      if (same_name(each, alias)) return std::string(model);
    }
    for (const std::string& model : names) {
      if (same_name(each, model)) return model;
    }
  }
  return "";
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : kModels) names.emplace_back(name);
  return names;
}

void check_model_name(const std::string& name) {
  const std::vector<std::string> names = model_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  const std::string meant = meant_model(name, names);
  const std::optional<ElsewhereModel> known = meant.empty() ? known_elsewhere(name) : std::nullopt;
  if (known) {
    throw Error(
        ExitCode::usage,
        fmt::format("--model {} is known from torchvision, timm or Keras, but not built in{}; built in are: {}", name,
                    known->attention ? ", and an ONNX file of it is rejected, since attention is not supported"
                                     : "; export it there as ONNX, as docs/onnx.md shows, and give --model "
                                       "FILE.onnx",
                    join(names)));
  }
  const std::string close = meant.empty() ? nearest(name, names) : meant;
  throw Error(ExitCode::usage, fmt::format("--model {} is unknown{}; the models are: {}", name,
                                           close.empty() ? "" : fmt::format(", did you mean {}?", close), join(names)));
}

Graph make_model(const std::string& name, const Shape& image, std::int64_t classes) {
  check_model_name(name);
  const auto* known =
      std::find_if(kModels.begin(), kModels.end(), [&](const auto& entry) { return entry.first == name; });
  return known->second(image, classes);
}

}  // namespace ddp
