// Where a run's network comes from: by name from the zoo, or from an ONNX file, of which the run folder keeps a copy.
//
//   std::string onnx = read_model("net.onnx", {});     // its content; "" for a model of the zoo
//   NetworkSource source = make_network("net.onnx", onnx, {3, 32, 32}, 10);
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/graph.h"
#include "onnx/import.h"

namespace ddp {

// Whether --model names a file.
bool is_onnx_file(std::string_view model);

// What checkpoints call the model: its name, or its file's name without folders.
std::string model_label(const std::string& model);

// The content of the model's file, or of its copy in a run folder where that is there (`copy` may be empty); "" for a
// model of the zoo. Throws Error(usage) for an unknown name and Error(data) for a file that cannot be read.
std::string read_model(const std::string& model, const std::filesystem::path& copy);

// XXH3-128 of the content; "" for a model of the zoo.
std::string model_hash(const std::string& onnx);

struct NetworkSource {
  Graph graph{Shape{}};
  std::optional<ImportedModel> imported;  // with the file's weights; its graph is `graph`
};

// Throws Error(usage) for a model that cannot be trained, or whose images or classes are not these.
NetworkSource make_network(const std::string& model, const std::string& onnx, const Shape& image, std::int64_t classes);

}  // namespace ddp
