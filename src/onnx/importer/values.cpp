// The part of model.h that does not need protobuf.
#include <functional>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "onnx/file/model.h"

namespace ddp {
namespace {

template <class T>
T attribute_of(const OnnxNode& node, std::string_view attribute, T otherwise) {
  const auto found = node.attributes.find(attribute);
  if (found == node.attributes.end()) return otherwise;
  const T* value = std::get_if<T>(&found->second);
  check(value != nullptr, ExitCode::usage, "its attribute '{}' does not have the type required by ONNX", attribute);
  return *value;
}

}  // namespace

std::int64_t OnnxTensor::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

OnnxTensor OnnxTensor::of_reals(std::vector<std::int64_t> shape, std::vector<float> values) {
  OnnxTensor tensor;
  tensor.shape = std::move(shape);
  tensor.reals = std::move(values);
  return tensor;
}

OnnxTensor OnnxTensor::of_integers(std::vector<std::int64_t> shape, std::vector<std::int64_t> values) {
  OnnxTensor tensor;
  tensor.type = Type::integer;
  tensor.type_name = "INT64";
  tensor.shape = std::move(shape);
  tensor.integers = std::move(values);
  return tensor;
}

const std::string& OnnxNode::input(std::size_t index) const {
  static const std::string none;
  return index < inputs.size() ? inputs[index] : none;
}

std::int64_t OnnxNode::integer(std::string_view attribute, std::int64_t otherwise) const {
  return attribute_of(*this, attribute, otherwise);
}

float OnnxNode::real(std::string_view attribute, float otherwise) const {
  return attribute_of(*this, attribute, otherwise);
}

std::string OnnxNode::text(std::string_view attribute, const std::string& otherwise) const {
  return attribute_of(*this, attribute, otherwise);
}

std::vector<std::int64_t> OnnxNode::integers(std::string_view attribute,
                                             const std::vector<std::int64_t>& otherwise) const {
  return attribute_of(*this, attribute, otherwise);
}

}  // namespace ddp
