// An ONNX model in plain structs, and its files (onnx.ai, "Open Neural Network Exchange Intermediate Representation").
// Only model.cpp and external_data.cpp use protobuf.
//
//   OnnxModel model = parse_onnx(read_onnx_file("net.onnx"), "net.onnx");
//   for (const OnnxNode& node : model.nodes) fmt::print("{} {}\n", node.type, node.name);
//   std::string bytes = to_bytes(model);
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ddp {

// A constant: real numbers of any width are stored as float, integers and booleans as std::int64_t.
struct OnnxTensor {
  enum class Type { real, integer, other };
  Type type = Type::real;
  std::string type_name = "FLOAT";  // as named by ONNX
  std::vector<std::int64_t> shape;
  std::vector<float> reals;
  std::vector<std::int64_t> integers;

  std::int64_t elements() const;
  static OnnxTensor of_reals(std::vector<std::int64_t> shape, std::vector<float> values);
  static OnnxTensor of_integers(std::vector<std::int64_t> shape, std::vector<std::int64_t> values);
};

// monostate: of an unsupported kind, such as a graph.
using OnnxAttribute = std::variant<std::monostate, std::int64_t, float, std::string, std::vector<std::int64_t>,
                                   std::vector<float>, OnnxTensor>;

struct OnnxNode {
  std::string name;
  std::string type;                 // "Conv"; prefixed by the domain unless that is the default one
  std::vector<std::string> inputs;  // names of values; "" for an omitted optional input
  std::vector<std::string> outputs;
  std::map<std::string, OnnxAttribute, std::less<>> attributes;

  // The name of an input, or "" if there is none.
  const std::string& input(std::size_t index) const;
  bool has(std::string_view attribute) const { return attributes.contains(attribute); }
  // The value of an attribute, or `otherwise`. Throws Error(usage) if it has another type.
  std::int64_t integer(std::string_view attribute, std::int64_t otherwise) const;
  float real(std::string_view attribute, float otherwise) const;
  std::string text(std::string_view attribute, const std::string& otherwise) const;
  std::vector<std::int64_t> integers(std::string_view attribute, const std::vector<std::int64_t>& otherwise) const;
};

// An input or output of a model. A dynamic extent is -1.
struct OnnxValue {
  std::string name;
  std::string type_name = "FLOAT";
  bool has_shape = true;
  std::vector<std::int64_t> shape;
  std::string batch_name;  // for writing: the name of extents of -1
};

struct OnnxModel {
  std::int64_t ir_version = 8;
  std::int64_t opset = 13;
  std::string producer = "ddp_train";  // "pytorch", "tf2onnx"
  std::string name;
  std::vector<OnnxNode> nodes;
  std::map<std::string, OnnxTensor> initializers;
  // What initializers are in the module, "PARAMETER", "BUFFER" or "CONSTANT_TENSOR", where PyTorch's newer exporter says it;
  // a buffer that the module does not save is a constant. Only read.
  std::map<std::string, std::string> kinds;
  std::vector<OnnxValue> inputs;  // without initializers
  std::vector<OnnxValue> outputs;
  std::map<std::string, std::string> metadata;
};

// The bytes of the file with external tensors (external_data.h) embedded. Throws Error(data) if a file cannot be read
// or is damaged.
std::string read_onnx_file(const std::filesystem::path& path);

// `bytes` is untrusted: throws Error(data) for an invalid or inconsistent ONNX model, and Error(usage) for an
// unsupported version or kind. `path` is for messages.
OnnxModel parse_onnx(const std::string& bytes, const std::filesystem::path& path);

// The content of an ONNX file: real tensors as FLOAT16 or BFLOAT16 if that is their type_name, otherwise as FLOAT, integers as
// INT64. Deterministic.
std::string to_bytes(const OnnxModel& model);

// The version of the protobuf library, for --version.
std::string protobuf_version();

}  // namespace ddp
