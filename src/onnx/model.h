// An ONNX model in plain structs, and its files (onnx.ai, "Open Neural Network Exchange Intermediate Representation").
// Only model.cpp and external_data.cpp know protobuf.
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

// A constant: real numbers of any width become floats, whole numbers and booleans std::int64_t.
struct OnnxTensor {
  enum class Type { real, integer, other };
  Type type = Type::real;
  std::string type_name = "FLOAT";  // ONNX's word
  std::vector<std::int64_t> shape;
  std::vector<float> reals;
  std::vector<std::int64_t> integers;

  std::int64_t elements() const;
  static OnnxTensor of_reals(std::vector<std::int64_t> shape, std::vector<float> values);
  static OnnxTensor of_integers(std::vector<std::int64_t> shape, std::vector<std::int64_t> values);
};

// monostate: of a kind that is not read here, such as a graph.
using OnnxAttribute = std::variant<std::monostate, std::int64_t, float, std::string, std::vector<std::int64_t>,
                                   std::vector<float>, OnnxTensor>;

struct OnnxNode {
  std::string name;
  std::string type;                 // "Conv"; with its domain in front where that is not ONNX's own
  std::vector<std::string> inputs;  // names of values; "" where an optional one is left out
  std::vector<std::string> outputs;
  std::map<std::string, OnnxAttribute, std::less<>> attributes;

  // Name of an input, or "" where there is none.
  const std::string& input(std::size_t index) const;
  bool has(std::string_view attribute) const { return attributes.find(attribute) != attributes.end(); }
  // An attribute's value, or `otherwise`. Throw Error(usage) where it is of another type.
  std::int64_t integer(std::string_view attribute, std::int64_t otherwise) const;
  float real(std::string_view attribute, float otherwise) const;
  std::string text(std::string_view attribute, const std::string& otherwise) const;
  std::vector<std::int64_t> integers(std::string_view attribute, const std::vector<std::int64_t>& otherwise) const;
};

// What goes into a model or comes out of it. An extent that the file leaves open is -1.
struct OnnxValue {
  std::string name;
  std::string type_name = "FLOAT";
  bool has_shape = true;
  std::vector<std::int64_t> shape;
  std::string batch_name;  // for writing: what an extent of -1 is called
};

struct OnnxModel {
  std::int64_t ir_version = 8;
  std::int64_t opset = 13;
  std::string producer = "ddp_train";  // "pytorch", "tf2onnx"
  std::string name;
  std::vector<OnnxNode> nodes;
  std::map<std::string, OnnxTensor> initializers;
  std::vector<OnnxValue> inputs;  // initializers are not among them
  std::vector<OnnxValue> outputs;
  std::map<std::string, std::string> metadata;
};

// The bytes of the file, with the tensors that it keeps in other files (external_data.h) put into it, so that the
// result stands for itself. Throws Error(data) where a file cannot be read or is damaged.
std::string read_onnx_file(const std::filesystem::path& path);

// Nothing in `bytes` is trusted: throws Error(data) for what is no ONNX model or contradicts itself, and Error(usage)
// for one that is older or other than what is read here. `path` is for messages.
OnnxModel parse_onnx(const std::string& bytes, const std::filesystem::path& path);

// The model as a file holds it: real tensors as FLOAT, whole ones as INT64; the same bytes for the same model.
std::string to_bytes(const OnnxModel& model);

// The version of the protobuf library, for --version.
std::string protobuf_version();

}  // namespace ddp
