#include "train/inputs/model_source.h"

#include <algorithm>
#include <span>
#include <system_error>

#include "base/error.h"
#include "checkpoint/digest.h"
#include "model/zoo.h"
#include "onnx/file/model.h"

namespace ddp {

bool is_onnx_file(std::string_view model) { return model.ends_with(".onnx"); }

std::string model_label(const std::string& model) {
  return is_onnx_file(model) ? std::filesystem::path(model).filename().string() : model;
}

std::string read_model(const std::string& model, const std::filesystem::path& copy) {
  if (!is_onnx_file(model)) {
    check_model_name(model);
    return "";
  }
  std::error_code error;
  const bool copied = !copy.empty() && std::filesystem::exists(copy, error);
  return read_onnx_file(copied ? copy : std::filesystem::path(model));
}

std::string model_hash(const std::string& onnx) {
  return onnx.empty() ? "" : digest_of(std::as_bytes(std::span(onnx))).xxh3_128;
}

NetworkSource make_network(const std::string& model, const std::string& onnx, const Shape& image, std::int64_t classes,
                           const NetworkUse& use) {
  NetworkSource source;
  if (onnx.empty()) {
    source.graph = make_model(model, image, classes);
    return source;
  }
  source.imported = import_onnx_bytes(onnx, model, {.by_use = trains_by_use(use.defaults)});
  if (use.new_classifier && source.imported->graph.classes() != classes) {
    Graph& graph = source.imported->graph;
    graph.set_classes(classes);
    std::vector<float>& weights = source.imported->parameters;
    weights.resize(static_cast<std::size_t>(graph.flat_elements()));
    // It is the last one.
    for (const Parameter& p : graph.parameters()) {
      if (p.layer == graph.classifier()) std::fill(weights.begin() + p.offset, weights.end(), 0.0F);
    }
  }
  source.graph = source.imported->graph;
  const Shape& reads = source.graph.shape(source.graph.input());
  check(reads == image && source.graph.classes() == classes, ExitCode::usage,
        "{} is for images of {}x{}x{} in {} classes, the data set has {}x{}x{} in {}; export it for these, use "
        "another data set, or --new-classifier if only the classes differ",
        model, reads.channels, reads.height, reads.width, source.graph.classes(), image.channels, image.height,
        image.width, classes);
  return source;
}

}  // namespace ddp
