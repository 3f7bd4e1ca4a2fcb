#include "onnx/file/model.h"

#include <fmt/core.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <onnx/onnx_pb.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/types/half.h"
#include "onnx/file/external_data.h"
#include "onnx/file/file_context.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "ONNX stores raw data in little-endian order");

bool parse(const std::string& bytes, onnx::ModelProto& proto) {
  // The limit of protobuf.
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max())) return false;
  return proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) && proto.has_graph();
}

std::string type_name_of(int type) {
  return onnx::TensorProto::DataType_IsValid(type)
             ? onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(type))
             : std::to_string(type);
}

// The number of elements; nullopt if an extent is negative or the product exceeds any memory.
std::optional<std::int64_t> elements_of(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements)) return std::nullopt;
  }
  return elements <= (std::int64_t{1} << 40) ? std::optional(elements) : std::nullopt;
}

// The elements of a tensor as To, from bytes in raw_data or numbers in the field of their type. `from` converts the
// stored type to To.
template <class Stored, class To, class Field, class From>
std::vector<To> values_of(const onnx::TensorProto& proto, const Field& field, std::int64_t count,
                          const FileContext& context, From from) {
  std::vector<To> values;
  const auto expect = [&](std::size_t found) {
    if (found != static_cast<std::size_t>(count)) {
      context.damaged(
          fmt::format("tensor '{}' has {} elements by its shape, {} are there", proto.name(), count, found));
    }
    values.reserve(found);
  };
  if (proto.has_raw_data()) {
    const std::string& raw = proto.raw_data();
    if (raw.size() % sizeof(Stored) != 0) {
      context.damaged(fmt::format("tensor '{}' has {} bytes of data", proto.name(), raw.size()));
    }
    expect(raw.size() / sizeof(Stored));
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      Stored stored{};
      std::memcpy(&stored, raw.data() + i * sizeof(Stored), sizeof(Stored));
      values.push_back(from(stored));
    }
    return values;
  }
  expect(static_cast<std::size_t>(field.size()));
  for (const auto value : field) values.push_back(from(static_cast<Stored>(value)));
  return values;
}

template <class To>
constexpr auto kCast = [](auto value) { return static_cast<To>(value); };

OnnxTensor read_tensor(const onnx::TensorProto& proto, const FileContext& context) {
  OnnxTensor tensor;
  tensor.type_name = type_name_of(proto.data_type());
  tensor.shape.assign(proto.dims().begin(), proto.dims().end());
  const std::optional<std::int64_t> count = elements_of(tensor.shape);
  if (!count) context.damaged(fmt::format("tensor '{}' has an impossible shape", proto.name()));
  if (proto.data_location() == onnx::TensorProto::EXTERNAL) {
    context.refuse(fmt::format("tensor '{}' is stored in another file, which is not available", proto.name()));
  }
  using T = onnx::TensorProto;
  const auto reals = [&]<class S>(S /*stored*/, const auto& field, auto from) {
    tensor.reals = values_of<S, float>(proto, field, *count, context, from);
  };
  const auto integers = [&]<class S>(S /*stored*/, const auto& field) {
    tensor.type = OnnxTensor::Type::integer;
    tensor.integers = values_of<S, std::int64_t>(proto, field, *count, context, kCast<std::int64_t>);
  };
  switch (proto.data_type()) {
    case T::FLOAT:
      reals(float{}, proto.float_data(), kCast<float>);
      break;
    case T::DOUBLE:
      reals(double{}, proto.double_data(), kCast<float>);
      break;
    case T::FLOAT16:
      reals(std::uint16_t{}, proto.int32_data(), half_to_float);
      break;
    case T::BFLOAT16:
      reals(std::uint16_t{}, proto.int32_data(), bfloat16_to_float);
      break;
    case T::INT64:
      integers(std::int64_t{}, proto.int64_data());
      break;
    case T::INT32:
      integers(std::int32_t{}, proto.int32_data());
      break;
    case T::BOOL:
    case T::UINT8:
      integers(std::uint8_t{}, proto.int32_data());
      break;
    case T::INT8:
      integers(std::int8_t{}, proto.int32_data());
      break;
    default:
      tensor.type = OnnxTensor::Type::other;
  }
  return tensor;
}

OnnxAttribute read_attribute(const onnx::AttributeProto& proto, const FileContext& context) {
  using A = onnx::AttributeProto;
  switch (proto.type()) {
    case A::INT:
      return proto.i();
    case A::FLOAT:
      return proto.f();
    case A::STRING:
      return proto.s();
    case A::INTS:
      return std::vector<std::int64_t>(proto.ints().begin(), proto.ints().end());
    case A::FLOATS:
      return std::vector<float>(proto.floats().begin(), proto.floats().end());
    case A::TENSOR:
      return read_tensor(proto.t(), context);
    default:
      return std::monostate{};
  }
}

OnnxNode read_node(const onnx::NodeProto& proto, const FileContext& context) {
  OnnxNode node;
  node.name = proto.name();
  const bool own = proto.domain().empty() || proto.domain() == "ai.onnx";
  node.type = own ? proto.op_type() : proto.domain() + "." + proto.op_type();
  node.inputs.assign(proto.input().begin(), proto.input().end());
  node.outputs.assign(proto.output().begin(), proto.output().end());
  if (node.name.empty() && !node.outputs.empty()) node.name = node.outputs[0];
  for (const onnx::AttributeProto& attribute : proto.attribute()) {
    node.attributes[attribute.name()] = read_attribute(attribute, context);
  }
  return node;
}

OnnxValue read_value(const onnx::ValueInfoProto& proto) {
  OnnxValue value;
  value.name = proto.name();
  value.type_name = proto.type().has_tensor_type() ? type_name_of(proto.type().tensor_type().elem_type()) : "no tensor";
  value.has_shape = proto.type().tensor_type().has_shape();
  for (const auto& extent : proto.type().tensor_type().shape().dim()) {
    value.shape.push_back(extent.has_dim_value() && extent.dim_value() >= 0 ? extent.dim_value() : -1);
  }
  return value;
}

// Deterministic serialisation, which protobuf otherwise does not guarantee for maps.
std::string serialize(const onnx::ModelProto& proto) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    check(proto.SerializeToCodedStream(&coded), ExitCode::usage, "the model exceeds the 2 GiB of an ONNX file");
  }
  return bytes;
}

void write_tensor(onnx::TensorProto& proto, const std::string& name, const OnnxTensor& tensor) {
  proto.set_name(name);
  for (const std::int64_t extent : tensor.shape) proto.add_dims(extent);
  const bool real = tensor.type == OnnxTensor::Type::real;
  const bool half = tensor.type_name == "FLOAT16";
  if (real && (half || tensor.type_name == "BFLOAT16")) {
    proto.set_data_type(half ? onnx::TensorProto::FLOAT16 : onnx::TensorProto::BFLOAT16);
    std::vector<std::uint16_t> bits;
    for (const float value : tensor.reals) bits.push_back(half ? float_to_half(value) : float_to_bfloat16(value));
    proto.mutable_raw_data()->assign(reinterpret_cast<const char*>(bits.data()), bits.size() * sizeof(std::uint16_t));
    return;
  }
  proto.set_data_type(real ? onnx::TensorProto::FLOAT : onnx::TensorProto::INT64);
  if (real) {
    proto.mutable_raw_data()->assign(reinterpret_cast<const char*>(tensor.reals.data()),
                                     tensor.reals.size() * sizeof(float));
  } else {
    proto.mutable_raw_data()->assign(reinterpret_cast<const char*>(tensor.integers.data()),
                                     tensor.integers.size() * sizeof(std::int64_t));
  }
}

void write_attribute(onnx::AttributeProto& proto, const std::string& name, const OnnxAttribute& value) {
  using A = onnx::AttributeProto;
  proto.set_name(name);
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    proto.set_type(A::INT);
    proto.set_i(*integer);
  } else if (const auto* real = std::get_if<float>(&value)) {
    proto.set_type(A::FLOAT);
    proto.set_f(*real);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    proto.set_type(A::STRING);
    proto.set_s(*text);
  } else if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value)) {
    proto.set_type(A::INTS);
    for (const std::int64_t each : *integers) proto.add_ints(each);
  } else if (const auto* reals = std::get_if<std::vector<float>>(&value)) {
    proto.set_type(A::FLOATS);
    for (const float each : *reals) proto.add_floats(each);
  } else if (const auto* tensor = std::get_if<OnnxTensor>(&value)) {
    proto.set_type(A::TENSOR);
    write_tensor(*proto.mutable_t(), "", *tensor);
  }
}

void write_value(onnx::ValueInfoProto& proto, const OnnxValue& value) {
  proto.set_name(value.name);
  onnx::TypeProto_Tensor& type = *proto.mutable_type()->mutable_tensor_type();
  onnx::TensorProto::DataType element = onnx::TensorProto::FLOAT;
  DDP_ASSERT(onnx::TensorProto::DataType_Parse(value.type_name, &element));
  type.set_elem_type(element);
  for (const std::int64_t extent : value.shape) {
    auto& dimension = *type.mutable_shape()->add_dim();
    if (extent >= 0) {
      dimension.set_dim_value(extent);
    } else if (!value.batch_name.empty()) {
      dimension.set_dim_param(value.batch_name);
    }
  }
}

// The metadata of a value: field 4, which version 8 of the format does not have.
std::map<std::string, std::string> metadata_of(const onnx::ValueInfoProto& value) {
  using Wire = google::protobuf::internal::WireFormatLite;
  constexpr std::uint32_t kMetadata = Wire::MakeTag(4, Wire::WIRETYPE_LENGTH_DELIMITED);
  const std::string bytes = value.SerializePartialAsString();
  google::protobuf::io::ArrayInputStream array(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream stream(&array);
  std::map<std::string, std::string> metadata;
  while (const std::uint32_t tag = stream.ReadTag()) {
    if (tag != kMetadata) {
      if (!Wire::SkipField(&stream, tag)) break;
      continue;
    }
    std::uint32_t length = 0;
    std::string text;
    onnx::StringStringEntryProto entry;
    const bool read = stream.ReadVarint32(&length) && stream.ReadString(&text, static_cast<int>(length));
    if (!read || !entry.ParseFromString(text)) break;
    metadata[entry.key()] = entry.value();
  }
  return metadata;
}

// See OnnxModel::kinds; "" where the exporter does not say it.
std::string kind_of(const onnx::ValueInfoProto& value) {
  std::map<std::string, std::string> metadata = metadata_of(value);
  const std::string prefix = "pkg.torch.export.graph_signature.InputSpec.";
  const std::string kind = metadata[prefix + "kind"];
  return kind == "BUFFER" && metadata[prefix + "persistent"] == "False" ? "CONSTANT_TENSOR" : kind;
}

// The version of the default operator set.
std::int64_t opset_of(const onnx::ModelProto& proto) {
  for (const auto& opset : proto.opset_import()) {
    if (opset.domain().empty() || opset.domain() == "ai.onnx") return opset.version();
  }
  return 0;
}

}  // namespace

std::string read_onnx_file(const fs::path& path) {
  std::string bytes = read_text(path, ExitCode::data, std::uint64_t{1} << 31U);  // the limit of protobuf
  const FileContext context(path);
  onnx::ModelProto proto;
  if (!parse(bytes, proto)) context.damaged("not a readable ONNX model");
  if (inline_external_data(proto, context)) bytes = serialize(proto);
  return bytes;
}

OnnxModel parse_onnx(const std::string& bytes, const fs::path& path) {
  const FileContext context(path);
  onnx::ModelProto proto;
  if (!parse(bytes, proto)) context.damaged("not a readable ONNX model");
  OnnxModel model;
  model.ir_version = proto.ir_version();
  model.opset = opset_of(proto);
  constexpr std::int64_t kOldest = 7;
  if (model.opset < kOldest) {
    context.refuse(
        fmt::format("written for version {} of ONNX's operators (opset); export again with 7 or later", model.opset));
  }
  model.producer = proto.producer_name();
  const onnx::GraphProto& graph = proto.graph();
  model.name = graph.name();
  if (graph.sparse_initializer_size() > 0) context.refuse("sparse tensors are not supported; export dense ones");
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    if (!model.initializers.emplace(tensor.name(), read_tensor(tensor, context)).second) {
      context.damaged(fmt::format("there are two tensors '{}'", tensor.name()));
    }
  }
  for (const onnx::ValueInfoProto& value : graph.value_info()) {
    if (!model.initializers.contains(value.name())) continue;
    if (std::string kind = kind_of(value); !kind.empty()) model.kinds[value.name()] = std::move(kind);
  }
  for (const onnx::NodeProto& node : graph.node()) model.nodes.push_back(read_node(node, context));
  for (const onnx::ValueInfoProto& value : graph.input()) {
    // Up to version 3 of the format, initializers are also inputs.
    if (!model.initializers.contains(value.name())) model.inputs.push_back(read_value(value));
  }
  for (const onnx::ValueInfoProto& value : graph.output()) model.outputs.push_back(read_value(value));
  for (const auto& entry : proto.metadata_props()) model.metadata[entry.key()] = entry.value();
  return model;
}

std::string to_bytes(const OnnxModel& model) {
  onnx::ModelProto proto;
  proto.set_ir_version(model.ir_version);
  proto.set_producer_name(model.producer);
  auto& opset = *proto.add_opset_import();
  opset.set_domain("");
  opset.set_version(model.opset);
  onnx::GraphProto& graph = *proto.mutable_graph();
  graph.set_name(model.name);
  for (const OnnxNode& node : model.nodes) {
    onnx::NodeProto& written = *graph.add_node();
    written.set_name(node.name);
    written.set_op_type(node.type);
    for (const std::string& input : node.inputs) written.add_input(input);
    for (const std::string& output : node.outputs) written.add_output(output);
    for (const auto& [name, value] : node.attributes) write_attribute(*written.add_attribute(), name, value);
  }
  for (const auto& [name, tensor] : model.initializers) write_tensor(*graph.add_initializer(), name, tensor);
  for (const OnnxValue& value : model.inputs) write_value(*graph.add_input(), value);
  for (const OnnxValue& value : model.outputs) write_value(*graph.add_output(), value);
  for (const auto& [key, value] : model.metadata) {
    auto& entry = *proto.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  }
  return serialize(proto);
}

std::string protobuf_version() {
  constexpr int version = GOOGLE_PROTOBUF_VERSION;
  return fmt::format("{}.{}.{}", version / 1000000, version / 1000 % 1000, version % 1000);
}

}  // namespace ddp
