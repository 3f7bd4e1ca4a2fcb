#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text/utf8.h"
#include "base/types/half.h"

namespace ddp {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian");

constexpr std::size_t kLengthBytes = 8;
// The limit of the Python package, so that a forged length cannot claim all memory.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr const char* kMetadataKey = "__metadata__";

const char* type_of(StoredFloats floats) {
  return floats == StoredFloats::fp32 ? "F32" : floats == StoredFloats::fp16 ? "F16" : "BF16";
}

std::string make_header(std::span<const TensorView> tensors, std::span<const CounterTensor> counters,
                        const TensorMetadata& metadata, StoredFloats floats) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  // The name of a model may be that of a file, whose bytes may be anything.
  for (const auto& [key, value] : metadata) header[kMetadataKey][key] = is_utf8(value) ? value : escape_bytes(value);
  std::size_t begin = 0;
  std::set<std::string_view> names = {kMetadataKey};
  const auto add = [&](const std::string& name, const char* type, const std::vector<std::int64_t>& shape,
                       std::size_t bytes) {
    check(names.insert(name).second, ExitCode::internal, "internal error: the tensor name '{}' is given twice", name);
    header[name] = {{"dtype", type}, {"shape", shape}, {"data_offsets", {begin, begin + bytes}}};
    begin += bytes;
  };
  // Counters first, so that their eight bytes are aligned.
  for (const CounterTensor& counter : counters) add(counter.name, "I64", {}, sizeof(counter.value));
  const std::size_t element = floats == StoredFloats::fp32 ? sizeof(float) : sizeof(std::uint16_t);
  for (const TensorView& tensor : tensors) {
    add(tensor.name, type_of(floats), tensor.shape, tensor.elements() * element);
  }
  std::string text = header.dump();
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  return text;
}

// Parses JSON in which no object names a key twice; a discarded value for any other text.
nlohmann::json parse_without_duplicates(std::string_view text, std::string& duplicate) {
  std::vector<std::set<std::string>> open_objects;
  const auto watch = [&](int /*depth*/, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) open_objects.emplace_back();
    if (event == Event::object_end) open_objects.pop_back();
    if (event == Event::key && !open_objects.back().insert(value.get<std::string>()).second && duplicate.empty()) {
      duplicate = value.get<std::string>();
    }
    return true;
  };
  return nlohmann::json::parse(text, watch, /*allow_exceptions=*/false);
}

// The bytes of a tensor of this shape; nullopt if they exceed any memory.
std::optional<std::size_t> bytes_of(std::span<const std::int64_t> shape, std::size_t element) {
  std::size_t bytes = element;
  for (const std::int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(extent), &bytes)) return std::nullopt;
  }
  return bytes;
}

// Bytes of an element of a type whose elements are whole bytes; 0 for others.
std::size_t element_bytes(std::string_view type) {
  constexpr std::array<std::pair<std::string_view, std::size_t>, 16> sizes = {{{"BOOL", 1},
                                                                               {"U8", 1},
                                                                               {"I8", 1},
                                                                               {"F8_E4M3", 1},
                                                                               {"F8_E5M2", 1},
                                                                               {"F8_E8M0", 1},
                                                                               {"I16", 2},
                                                                               {"U16", 2},
                                                                               {"F16", 2},
                                                                               {"BF16", 2},
                                                                               {"I32", 4},
                                                                               {"U32", 4},
                                                                               {"F32", 4},
                                                                               {"I64", 8},
                                                                               {"U64", 8},
                                                                               {"F64", 8}}};
  const auto* found = std::find_if(sizes.begin(), sizes.end(), [&](const auto& each) { return each.first == type; });
  return found == sizes.end() ? 0 : found->second;
}

// The bytes need not be aligned.
template <class From, class Function>
void convert(const char* from, std::size_t count, float* to, Function function) {
  for (std::size_t i = 0; i < count; ++i) {
    From value{};
    std::memcpy(&value, from + i * sizeof(From), sizeof(From));
    to[i] = function(value);
  }
}

// Whether `value` is a list of non-negative integers; fills `numbers`.
template <class T>
bool take_numbers(const nlohmann::json& value, std::vector<T>& numbers) {
  if (!value.is_array()) return false;
  for (const auto& element : value) {
    if (!element.is_number_unsigned() || !std::in_range<T>(element.get<std::uint64_t>())) return false;
    numbers.push_back(static_cast<T>(element.get<std::uint64_t>()));
  }
  return true;
}

}  // namespace

FileDigest write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                             const TensorMetadata& metadata, std::span<const CounterTensor> counters,
                             StoredFloats floats) {
  const std::string header = make_header(tensors, counters, metadata, floats);
  const std::uint64_t length = header.size();
  File file(path, File::Mode::create, ExitCode::checkpoint);
  Hasher hasher;
  const auto write = [&](std::span<const std::byte> bytes) {
    hasher.update(bytes);
    file.write(bytes);
  };
  write(std::as_bytes(std::span(&length, 1)));
  write(std::as_bytes(std::span(header)));
  for (const CounterTensor& counter : counters) write(std::as_bytes(std::span(&counter.value, 1)));
  std::vector<std::uint16_t> rounded;
  for (const TensorView& tensor : tensors) {
    const std::span values(tensor.data, tensor.elements());
    if (floats == StoredFloats::fp32) {
      write(std::as_bytes(values));
      continue;
    }
    rounded.resize(values.size());
    std::transform(values.begin(), values.end(), rounded.begin(),
                   floats == StoredFloats::fp16 ? float_to_half : float_to_bfloat16);
    write(std::as_bytes(std::span(rounded)));
  }
  file.sync();
  file.close();
  return hasher.finish();
}

SafetensorsFile SafetensorsFile::read(const std::filesystem::path& path, TensorTypes types) {
  File file(path, File::Mode::read, ExitCode::checkpoint);
  const std::uint64_t total = file.size();
  SafetensorsFile result(path);
  // The header first: a file of another format is rejected before its content is read.
  const auto read_up_to = [&](std::uint64_t end) {
    const std::size_t begin = result.bytes_.size();
    result.bytes_.resize(std::min(end, total));
    const auto rest = std::as_writable_bytes(std::span(result.bytes_)).subspan(begin);
    if (file.read(rest) < rest.size()) result.fail("it was truncated while it was read");
  };
  read_up_to(kLengthBytes);
  read_up_to(kLengthBytes + std::min(result.header_length(), kMaxHeaderBytes));
  result.parse(total, types);
  read_up_to(total);
  return result;
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path, std::string bytes, TensorTypes types)
    : path_(std::move(path)), bytes_(std::move(bytes)) {
  parse(bytes_.size(), types);
}

std::uint64_t SafetensorsFile::header_length() const {
  if (bytes_.size() < kLengthBytes) fail(fmt::format("{} bytes are too few for a safetensors file", bytes_.size()));
  std::uint64_t length = 0;
  std::memcpy(&length, bytes_.data(), kLengthBytes);
  return length;
}

void SafetensorsFile::parse(std::uint64_t file_size, TensorTypes types) {
  const std::uint64_t length = header_length();
  if (length > file_size - kLengthBytes || length > kMaxHeaderBytes) {
    fail(fmt::format("the header is {} bytes long, but the file has only {} bytes", length, file_size));
  }
  data_begin_ = kLengthBytes + length;
  parse_header(std::string_view(bytes_).substr(kLengthBytes, length), types);
  check_ranges(file_size - data_begin_);
  for (std::size_t i = 0; i < tensors_.size(); ++i) index_[tensors_[i].name] = i;
}

void SafetensorsFile::parse_header(std::string_view header, TensorTypes types) {
  std::string duplicate;
  const nlohmann::json json = parse_without_duplicates(header, duplicate);
  if (!json.is_object()) fail("the header is not a JSON object");
  if (!duplicate.empty()) fail(fmt::format("the header names '{}' twice", duplicate));
  for (const auto& [name, entry] : json.items()) {
    if (name == kMetadataKey) {
      if (!entry.is_object()) fail("the metadata is not an object of strings");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) fail(fmt::format("the metadata '{}' is not a string", key));
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    Tensor tensor;
    tensor.name = name;
    std::vector<std::size_t> range;
    if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() || !entry.contains("shape") ||
        !take_numbers(entry["shape"], tensor.shape) || !entry.contains("data_offsets") ||
        !take_numbers(entry["data_offsets"], range) || range.size() != 2 || range[0] > range[1]) {
      fail(fmt::format("invalid header entry for tensor '{}'", name));
    }
    tensor.type = entry["dtype"].get<std::string>();
    const std::size_t element = types == TensorTypes::f32 && tensor.type != "F32" ? 0 : element_bytes(tensor.type);
    if (element == 0) {
      throw Error(ExitCode::checkpoint,
                  fmt::format("{}: tensor '{}' is of type {}, only {} supported; convert it, in PyTorch with "
                              "save_file({{name: t.float() for name, t in tensors.items()}}, path)",
                              path_.string(), name, tensor.type,
                              types == TensorTypes::f32 ? "F32 is" : "F32, F16, BF16 and F64 are"));
    }
    tensor.begin = range[0];
    tensor.end = range[1];
    if (bytes_of(tensor.shape, element) != tensor.end - tensor.begin) {
      fail(fmt::format("tensor '{}' of shape {} has {} bytes of data", name, shape_text(tensor.shape),
                       tensor.end - tensor.begin));
    }
    tensors_.push_back(std::move(tensor));
  }
}

void SafetensorsFile::check_ranges(std::size_t data_size) {
  std::sort(tensors_.begin(), tensors_.end(), [](const Tensor& a, const Tensor& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::size_t used = 0;
  for (const Tensor& tensor : tensors_) {
    if (tensor.end > data_size) {
      fail(fmt::format("tensor '{}' ends at byte {} of {}", tensor.name, tensor.end, data_size));
    }
    if (tensor.begin < used) fail(fmt::format("tensor '{}' overlaps the one before it", tensor.name));
    if (tensor.begin > used) fail(fmt::format("there is a gap before tensor '{}'", tensor.name));
    used = tensor.end;
  }
  if (used < data_size) fail(fmt::format("{} bytes follow the last tensor", data_size - used));
}

std::string SafetensorsFile::difference(std::span<const TensorView> expected) const {
  std::set<std::string_view> names;
  for (const TensorView& view : expected) {
    names.insert(view.name);
    const auto found = index_.find(view.name);
    if (found == index_.end()) return fmt::format("tensor '{}' of this run is not in the checkpoint", view.name);
    const Tensor& tensor = tensors_[found->second];
    if (!tensor.real()) return fmt::format("tensor '{}' is of type {}, not F32", view.name, tensor.type);
    if (tensor.shape != view.shape) {
      return fmt::format("tensor '{}' has shape {} in the checkpoint, {} in this run", view.name,
                         shape_text(tensor.shape), shape_text(view.shape));
    }
  }
  for (const Tensor& tensor : tensors_) {
    if (!names.contains(tensor.name)) {
      return fmt::format("tensor '{}' of the checkpoint is not in this run", tensor.name);
    }
  }
  return "";
}

void SafetensorsFile::check_same(std::span<const TensorView> expected) const {
  const std::string what = difference(expected);
  check(what.empty(), ExitCode::checkpoint, "{}: {}; use the model and optimizer options of the checkpoint",
        path_.string(), what);
}

void SafetensorsFile::check_finite() const {
  for (const Tensor& tensor : tensors_) {
    if (tensor.real()) check_finite(tensor);
  }
}

void SafetensorsFile::check_finite(const Tensor& tensor) const {
  std::vector<float> values((tensor.end - tensor.begin) / element_bytes(tensor.type));
  read_floats(tensor, values.data());
  check(std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); }),
        ExitCode::checkpoint,
        "{}: tensor '{}' contains non-finite values: training had diverged when it was written; use an "
        "earlier checkpoint",
        path_.string(), tensor.name);
}

void SafetensorsFile::copy_to(std::span<const TensorView> views) const {
  for (const TensorView& view : views) {
    const auto found = index_.find(view.name);
    DDP_ASSERT(found != index_.end());
    const Tensor& tensor = tensors_[found->second];
    DDP_ASSERT(tensor.shape == view.shape && tensor.real());
    read_floats(tensor, view.data);
  }
}

void SafetensorsFile::read_floats(const Tensor& tensor, float* to) const {
  const char* const from = bytes_.data() + data_begin_ + tensor.begin;
  const std::size_t count = (tensor.end - tensor.begin) / element_bytes(tensor.type);
  // Tensors without elements may have null pointers, which must not be passed to memcpy.
  if (count == 0) return;
  if (tensor.type == "F32") {
    std::memcpy(to, from, count * sizeof(float));
  } else if (tensor.type == "F64") {
    convert<double>(from, count, to, [](double value) { return static_cast<float>(value); });
  } else if (tensor.type == "F16") {
    convert<std::uint16_t>(from, count, to, half_to_float);
  } else {
    DDP_ASSERT(tensor.type == "BF16");
    convert<std::uint16_t>(from, count, to, bfloat16_to_float);
  }
}

void SafetensorsFile::fail(const std::string& what) const {
  throw Error(
      ExitCode::checkpoint,
      fmt::format("{}: {}; the file is damaged or not a safetensors file; use another one", path_.string(), what));
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(extent);
  }
  return text + "]";
}

}  // namespace ddp
