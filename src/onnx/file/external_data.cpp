#include "onnx/file/external_data.h"

#include <fmt/core.h>
#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "base/file.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

// The part of another file that contains a tensor's data.
struct Part {
  std::string location;  // as given in the model
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> length;
};

// In bytes; 0 for types with elements smaller than a byte, and for unknown types.
std::uint64_t element_size(int type) {
  using T = onnx::TensorProto;
  switch (type) {
    case T::BOOL:
    case T::UINT8:
    case T::INT8:
      return 1;
    case T::FLOAT16:
    case T::BFLOAT16:
    case T::UINT16:
    case T::INT16:
      return 2;
    case T::FLOAT:
    case T::INT32:
    case T::UINT32:
      return 4;
    case T::DOUBLE:
    case T::INT64:
    case T::UINT64:
    case T::COMPLEX64:
      return 8;
    default:
      return 0;
  }
}

class Inliner {
 public:
  explicit Inliner(const FileContext& context) : context_(context) {}

  bool run(onnx::GraphProto& graph) {
    for (onnx::TensorProto& tensor : *graph.mutable_initializer()) inline_one(tensor, tensor.name());
    for (onnx::NodeProto& node : *graph.mutable_node()) {
      const std::string& name = node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
      for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
        if (attribute.has_t()) inline_one(*attribute.mutable_t(), name);
      }
    }
    return changed_;
  }

 private:
  void inline_one(onnx::TensorProto& tensor, const std::string& name) {
    if (tensor.data_location() != onnx::TensorProto::EXTERNAL) return;
    name_ = name;
    tensor.set_raw_data(read(part_of(tensor), bytes_by_shape(tensor)));
    tensor.clear_external_data();
    tensor.clear_data_location();
    changed_ = true;
  }

  [[noreturn]] void fail(const std::string& what) const {
    context_.fail(ExitCode::data, fmt::format("tensor '{}' {}", name_, what));
  }

  Part part_of(const onnx::TensorProto& tensor) const {
    Part part;
    const auto number = [&](const onnx::StringStringEntryProto& entry) {
      const std::string& text = entry.value();
      if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string::npos) {
        fail(fmt::format("has an {} '{}', which is not a number; export the model again", entry.key(), text));
      }
      return std::uint64_t{std::stoull(text)};
    };
    for (const auto& entry : tensor.external_data()) {
      if (entry.key() == "location") part.location = entry.value();
      if (entry.key() == "offset") part.offset = number(entry);
      if (entry.key() == "length") part.length = number(entry);
    }
    // A model must not be able to read arbitrary files.
    const fs::path location = part.location;
    bool inside = !location.empty() && location.is_relative();
    for (const fs::path& step : location) inside = inside && step != "..";
    if (!inside) {
      fail(fmt::format(
          "lies in '{}', which is not a path within the folder of the model; export again with the data beside it",
          part.location));
    }
    return part;
  }

  // nullopt for types of unknown size.
  std::optional<std::uint64_t> bytes_by_shape(const onnx::TensorProto& tensor) const {
    std::uint64_t bytes = element_size(tensor.data_type());
    if (bytes == 0) return std::nullopt;
    for (const std::int64_t extent : tensor.dims()) {
      if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes)) {
        fail("has an impossible shape; the file is damaged");
      }
    }
    return bytes;
  }

  std::string read(const Part& part, std::optional<std::uint64_t> by_shape) {
    if (by_shape && part.length && *part.length != *by_shape) {
      fail(fmt::format("has {} bytes by its shape, {} in '{}'; the file is damaged", *by_shape, *part.length,
                       part.location));
    }
    const File& file = open(part.location);
    const std::uint64_t size = file.size();
    const std::uint64_t after = part.offset <= size ? size - part.offset : 0;
    const std::uint64_t count = part.length.value_or(by_shape.value_or(after));
    if (part.offset > size || count > after) {
      fail(
          fmt::format("has {} bytes at byte {} of '{}', whose size is {}; the files do not belong together or are "
                      "incomplete, export or copy both again",
                      count, part.offset, part.location, size));
    }
    // Several tensors may refer to the same part, so file sizes do not bound the total.
    constexpr std::uint64_t kMost = std::numeric_limits<std::int32_t>::max();
    total_ += count;
    if (total_ > kMost) fail("and those before it have more than the 2 GiB that a model may have here");
    std::string bytes(count, '\0');
    if (file.read_at(std::as_writable_bytes(std::span(bytes)), part.offset) != count) {
      fail(fmt::format("ends early: '{}' is being changed", part.location));
    }
    return bytes;
  }

  const File& open(const std::string& location) {
    const auto found = files_.find(location);
    if (found != files_.end()) return found->second;
    try {
      File file(inside(location), File::Mode::read, ExitCode::data);
      static_cast<void>(file.size());  // throws unless it is a regular file
      return files_.emplace(location, std::move(file)).first->second;
    } catch (const Error& error) {
      fail(fmt::format("lies in another file: {}", error.what()));
    }
  }

  // The file without links, none of which may lead out of the model's folder: neither from there, nor, as in a cache of
  // links to files beside one another, from where the model itself lies.
  fs::path inside(const std::string& location) const {
    fs::path given = context_.path().parent_path() / location;
    std::error_code error;
    fs::path file = fs::canonical(given, error);
    if (error) return given;  // opening it tells why
    const fs::path model = context_.path().has_parent_path() ? context_.path().parent_path() : ".";
    const fs::path folder = fs::canonical(model, error);
    const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
    const bool beside = fs::canonical(context_.path(), error).parent_path() == file.parent_path();
    if (end != folder.end() && !beside) {
      fail(fmt::format("lies in '{}', a link to {}, which is not within the folder of the model; copy the data there",
                       location, file.string()));
    }
    return file;
  }

  const FileContext& context_;
  std::string name_;  // of the tensor, or of the node that contains it
  std::map<std::string, File> files_;
  std::uint64_t total_ = 0;  // bytes
  bool changed_ = false;
};

}  // namespace

bool inline_external_data(onnx::ModelProto& proto, const FileContext& context) {
  return Inliner(context).run(*proto.mutable_graph());
}

}  // namespace ddp
