// The source of a run's network: a built-in model, or an ONNX file, of which the run folder keeps a copy.
//
//   std::string onnx = read_model("net.onnx", {});     // its content; "" for a built-in model
//   NetworkSource source = make_network("net.onnx", onnx, {3, 32, 32}, 10, {.new_classifier = true});
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/graph.h"
#include "onnx/import.h"
#include "options/defaults.h"

namespace ddp {

// Whether --model names a file.
bool is_onnx_file(std::string_view model);

// The name of the model in checkpoints: its name, or the file name without folders.
std::string model_label(const std::string& model);

// The content of the model's file, or of its copy in a run folder if that exists (`copy` may be empty); "" for a
// built-in model. Throws Error(usage) for an unknown name and Error(data) for a file that cannot be read.
std::string read_model(const std::string& model, const std::filesystem::path& copy);

// XXH3-128 of the content; "" for a built-in model.
std::string model_hash(const std::string& onnx);

struct NetworkSource {
  Graph graph{Shape{}};
  std::optional<ImportedModel> imported;  // with the file's weights; its graph is `graph`
};

struct NetworkUse {
  // The last layer of a file gets the number of classes, and weights of zero if it had another.
  bool new_classifier = false;
  // The revision of the run (options/defaults.h).
  int defaults = kLatestDefaults;
};

// Throws Error(usage) for a model that cannot be trained, or whose image shape or number of classes differs.
NetworkSource make_network(const std::string& model, const std::string& onnx, const Shape& image, std::int64_t classes,
                           const NetworkUse& use = {});

}  // namespace ddp
