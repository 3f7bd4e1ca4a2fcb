// A trained graph as an ONNX model for inference, which other programs run.
//
//   ExportedModel exported = {graph, parameters, statistics, {{"mean", "0.5"}}};
//   std::string bytes = to_bytes(export_onnx(exported, {.fold_batch_norm = true}));
//
// Input "input": float32 [N, channels, height, width], the normalised image (byte / 255 - mean) / std, as for PyTorch.
// Output "logits": float32 [N, classes]; if a tensor of the network has one of these names, the other gets a '_'.
// Initializers have the names and shapes of Graph::parameters() and Graph::statistics(); what is fixed is in Constant nodes.
// Dropout, the identity in inference, is omitted.
#pragma once

#include <map>
#include <span>
#include <string>

#include "model/graph.h"
#include "onnx/file/model.h"

namespace ddp {

struct ExportedModel {
  const Graph& graph;
  std::span<const float> parameters;  // flat
  std::span<const float> statistics;  // flat
  std::map<std::string, std::string> metadata;
  std::string name = "network";
};

struct OnnxExportOptions {
  // Folds every batch normalisation that is the only reader of a convolution or linear layer into that layer's weights:
  // w' = w * scale / sqrt(variance + epsilon), b' = (b - mean) * scale / sqrt(variance + epsilon) + shift.
  bool fold_batch_norm = false;
};

// Throws Error(usage) for a layer that has no equivalent in ONNX.
OnnxModel export_onnx(const ExportedModel& exported, const OnnxExportOptions& options);

}  // namespace ddp
