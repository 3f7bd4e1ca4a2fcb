// Builds small ONNX models node by node.
//
//   ModelMaker maker({-1, 1, 8, 8});
//   std::string x = maker.node("Conv", {"input", maker.random("conv.weight", {4, 1, 3, 3})});
//   maker.output(maker.node("Flatten", {x}));
//   ImportedModel model = maker.imported();
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "onnx/file/model.h"
#include "onnx/import.h"
#include "support/graph_reference.h"

namespace ddp {

class ModelMaker {
 public:
  using Integers = std::vector<std::int64_t>;
  using Attributes = std::map<std::string, OnnxAttribute, std::less<>>;

  explicit ModelMaker(Integers input = {-1, 2, 6, 6}) {
    model.name = "test";
    model.inputs = {{"input", "FLOAT", true, std::move(input), "N"}};
  }

  // Adds a node and returns the name of its output.
  std::string node(const std::string& type, const std::vector<std::string>& inputs, const Attributes& attributes = {}) {
    const std::string name = type + "_" + std::to_string(model.nodes.size());
    model.nodes.push_back({name, type, inputs, {name + ":0"}, attributes});
    return name + ":0";
  }
  std::string reals(const std::string& name, const Integers& shape, const std::vector<float>& values) {
    model.initializers[name] = OnnxTensor::of_reals(shape, values);
    return name;
  }
  // A Constant node: a number of forward().
  std::string constant(const std::string& name, const Integers& shape, const std::vector<float>& values) {
    model.nodes.push_back({name + "_node", "Constant", {}, {name}, {{"value", OnnxTensor::of_reals(shape, values)}}});
    return name;
  }
  std::string integers(const std::string& name, const Integers& values) {
    model.initializers[name] = OnnxTensor::of_integers({static_cast<std::int64_t>(values.size())}, values);
    return name;
  }
  std::string random(const std::string& name, const Integers& shape, float low = -1, float high = 1) {
    OnnxTensor tensor = OnnxTensor::of_reals(shape, {});
    std::uniform_real_distribution<float> uniform(low, high);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.reals.push_back(uniform(engine));
    model.initializers[name] = tensor;
    return name;
  }
  // A Flatten followed by a Gemm from `inputs` to `outputs`.
  std::string classifier(const std::string& from, std::int64_t inputs, std::int64_t outputs) {
    return node("Gemm", {node("Flatten", {from}), random("fc.weight", {outputs, inputs}), random("fc.bias", {outputs})},
                {{"transB", std::int64_t{1}}});
  }
  void output(const std::string& name) { model.outputs = {{name, "FLOAT", true, {-1, -1}, ""}}; }

  std::string bytes() const { return to_bytes(model); }
  ImportedModel imported() const { return import_onnx_bytes(bytes(), "test.onnx"); }

  OnnxModel model;
  std::mt19937 engine{7};
};

// The logits of a model from a sine as its input, in double precision.
inline std::vector<double> logits_of(const ImportedModel& model) {
  std::vector<float> image(static_cast<std::size_t>(model.graph.shape(0).elements()));
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = std::sin(static_cast<float>(i));
  return GraphReference(model.graph, model.parameters, model.statistics).logits(image);
}

}  // namespace ddp
