// Networks that torchvision, timm and Keras have by name and this program has not, to say so in the error.
//
//   if (const auto known = known_elsewhere("vit_b_16")) known->attention;   // true
//   same_name("MobileNetV2", "mobilenet-v2");                               // true
#pragma once

#include <optional>
#include <string_view>

namespace ddp {

struct ElsewhereModel {
  bool attention = false;  // it has layers that are not supported in ONNX files either
};

// By the first part of its name, which those libraries share among the sizes of a network.
std::optional<ElsewhereModel> known_elsewhere(std::string_view name);

// Whether two names differ in case, '-', '_' and '.' only.
bool same_name(std::string_view a, std::string_view b);

}  // namespace ddp
