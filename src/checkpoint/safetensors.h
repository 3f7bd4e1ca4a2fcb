// Reads and writes float32 tensors and counters in the safetensors format of Python's `safetensors` package.
//
//   write_safetensors("model.safetensors", views, {{"format", "pt"}});
//
//   const auto file = SafetensorsFile::read("model.safetensors");
//   file.check_same(views);   // names and shapes
//   file.copy_to(views);
//
// The format (github.com/huggingface/safetensors, "Format"): 8 bytes of little-endian header length, a JSON header
// {name: {dtype, shape, data_offsets}} padded with spaces to 8 bytes, then the tensors' bytes without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/types/precision.h"
#include "checkpoint/digest.h"
#include "checkpoint/tensor_view.h"

namespace ddp {

using TensorMetadata = std::map<std::string, std::string>;

// A scalar of type I64, as PyTorch keeps num_batches_tracked.
struct CounterTensor {
  std::string name;
  std::int64_t value = 0;
};

// Which types of tensors a reader accepts: float32 only, as checkpoints have them, or what other programs write too: F16,
// BF16 and F64, which become float32, and integers, which are not read.
enum class TensorTypes { f32, any };

// Writes the counters, then the tensors in the given order, with values rounded to the nearest of `floats`, syncs them to disk, and returns the file's size and hash.
// Throws Error(checkpoint) if the file cannot be written; duplicate names are a bug in the caller.
FileDigest write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                             const TensorMetadata& metadata, std::span<const CounterTensor> counters = {},
                             StoredFloats floats = StoredFloats::fp32);

// A safetensors file in memory. Nothing in the file is trusted: the constructor throws Error(checkpoint) for a header
// that is too long or malformed, duplicate names, types that are not accepted, and ranges that overlap, leave gaps, do
// not match their shapes or exceed the file.
class SafetensorsFile {
 public:
  struct Tensor {
    std::string name;
    std::string type = "F32";
    std::vector<std::int64_t> shape;
    std::size_t begin = 0;  // byte range within the data
    std::size_t end = 0;

    // Whether it has real numbers.
    bool real() const { return type == "F32" || type == "F16" || type == "BF16" || type == "F64"; }
  };

  static SafetensorsFile read(const std::filesystem::path& path, TensorTypes types = TensorTypes::f32);
  // `path` is for messages.
  SafetensorsFile(std::filesystem::path path, std::string bytes, TensorTypes types = TensorTypes::f32);

  // In the order of their data.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const TensorMetadata& metadata() const { return metadata_; }
  // The whole file.
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(bytes_)); }

  // Throws Error(checkpoint) naming the first tensor of `expected` that is missing or has another shape or type, or the first
  // unexpected tensor in the file.
  void check_same(std::span<const TensorView> expected) const;

  // Throws Error(checkpoint) naming the first tensor that contains an infinity or NaN.
  void check_finite() const;

  // Copies the tensors into the memory of the views, rounding float64. Requires check_same().
  void copy_to(std::span<const TensorView> views) const;

  // Writes the elements of a real tensor of this file as floats; `to` has room for them.
  void read_floats(const Tensor& tensor, float* to) const;
  // Throws Error(checkpoint) if a real tensor of this file contains an infinity or NaN.
  void check_finite(const Tensor& tensor) const;

 private:
  explicit SafetensorsFile(std::filesystem::path path) : path_(std::move(path)) {}
  std::uint64_t header_length() const;
  // Parses the header of a file of `file_size` bytes.
  void parse(std::uint64_t file_size, TensorTypes types);
  void parse_header(std::string_view header, TensorTypes types);
  void check_ranges(std::size_t data_size);
  std::string difference(std::span<const TensorView> expected) const;
  [[noreturn]] void fail(const std::string& what) const;

  std::filesystem::path path_;
  std::string bytes_;
  std::size_t data_begin_ = 0;
  TensorMetadata metadata_;
  std::vector<Tensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

// "[20, 1, 3, 3]".
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace ddp
