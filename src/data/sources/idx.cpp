#include "data/sources/idx.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text/text.h"
#include "data/sources/byte_source.h"
#include "data/sources/memory_dataset.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

constexpr int kPublishedClasses = 10;

std::uint32_t big_endian(std::span<const std::uint8_t> bytes) {
  return (std::uint32_t{bytes[0]} << 24U) | (std::uint32_t{bytes[1]} << 16U) | (std::uint32_t{bytes[2]} << 8U) |
         std::uint32_t{bytes[3]};
}

// "60000x28x28"
std::string describe(std::span<const std::uint32_t> dimensions) {
  std::string text;
  for (const std::uint32_t dimension : dimensions) text += (text.empty() ? "" : "x") + std::to_string(dimension);
  return text;
}

std::vector<std::uint32_t> read_header(ByteSource& source, const fs::path& path, std::size_t rank) {
  std::vector<std::uint8_t> header(4 + 4 * rank);
  const std::size_t found = source.read(header);
  const auto expected_magic = static_cast<std::uint32_t>(0x0800U + rank);
  if (found >= 4) {
    const std::uint32_t magic = big_endian(header);
    check(magic == expected_magic, ExitCode::data,
          "{}: starts with {:#010x}, not with {:#010x}: this is not an IDX file of {} (unsigned bytes, {})",
          path.string(), magic, expected_magic, rank == 1 ? "labels" : "images",
          counted(static_cast<std::uint64_t>(rank), "dimension"));
  }
  check(found == header.size(), ExitCode::data, "{}: ends after {} bytes, within the IDX header of {} bytes",
        path.string(), found, header.size());
  std::vector<std::uint32_t> dimensions(rank);
  for (std::size_t i = 0; i < rank; ++i) dimensions[i] = big_endian(std::span(header).subspan(4 + 4 * i));
  return dimensions;
}

// The bytes of one item. Sides are limited to below 2^16 so that their product cannot overflow.
std::uint64_t item_bytes(std::span<const std::uint32_t> dimensions, const fs::path& path) {
  DDP_ASSERT(dimensions.size() <= 3);
  std::uint64_t bytes = 1;
  for (const std::uint32_t side : dimensions.subspan(1)) {
    check(side > 0 && side < 65536, ExitCode::data, "{}: declares {} elements, which no data set has: damaged header",
          path.string(), describe(dimensions));
    bytes *= side;
  }
  return bytes;
}

// Reads up to `count` bytes; the buffer grows by a factor of four, the last time to the exact size.
std::vector<std::uint8_t> read_growing(ByteSource& source, std::uint64_t count) {
  std::vector<std::uint8_t> bytes;
  std::uint64_t size = std::min<std::uint64_t>(count, std::uint64_t{1} << 20U);
  std::size_t done = 0;
  while (done < count) {
    bytes.reserve(static_cast<std::size_t>(size));
    bytes.resize(static_cast<std::size_t>(size));
    done += source.read(std::span(bytes).subspan(done));
    if (done < size) break;
    size = std::min(count, size * 4);
  }
  bytes.resize(done);
  return bytes;
}

struct IdxPair {
  std::string images;
  std::string labels;
};

IdxPair names_of_pair(Split split) {
  const std::string prefix = split == Split::train ? "train" : "t10k";
  return {prefix + "-images-idx3-ubyte", prefix + "-labels-idx1-ubyte"};
}

// The file `name` in `folder`, preferring the uncompressed one; empty if there is none. Several archives spell it with
// a dot before "idx".
std::optional<fs::path> find_spelling(const fs::path& folder, const std::string& name) {
  std::string dotted = name;
  dotted[dotted.rfind("-idx")] = '.';
  for (const std::string& spelling : {name, dotted}) {
    if (auto path = find_plain_or_gzipped(folder / spelling)) return path;
  }
  return std::nullopt;
}

std::string download_hint(const IdxSource& source) {
  if (!source.published) return "give the folder of the files with --data-dir";
  return fmt::format("download it with: launch/get-data {} {}", source.name, source.folders.back().string());
}

// The folder that contains any of the files of either split.
fs::path find_folder(const IdxSource& source) {
  std::string looked_in;
  for (const fs::path& folder : source.folders) {
    for (const Split split : {Split::train, Split::test}) {
      const IdxPair names = names_of_pair(split);
      if (find_spelling(folder, names.images) || find_spelling(folder, names.labels)) return folder;
    }
    looked_in += (looked_in.empty() ? "" : " and ") + folder.string();
  }
  const IdxPair names = names_of_pair(source.split);
  throw Error(ExitCode::data, fmt::format("no {} data set: looked for {}[.gz] and {}[.gz] in {}; {}", source.name,
                                          names.images, names.labels, looked_in, download_hint(source)));
}

fs::path require_file(const IdxSource& source, const fs::path& folder, const std::string& name) {
  const std::optional<fs::path> path = find_spelling(folder, name);
  check(path.has_value(), ExitCode::data, "{}: missing, with or without .gz; {}", (folder / name).string(),
        download_hint(source));
  return *path;
}

// The classes of labels from 0 to the largest one, in both splits.
int count_classes(const IdxSource& source, const fs::path& folder) {
  int classes = 1;
  for (const Split split : {Split::train, Split::test}) {
    const IdxArray labels = read_idx(require_file(source, folder, names_of_pair(split).labels), 1);
    for (const std::uint8_t label : labels.elements) classes = std::max(classes, label + 1);
  }
  return classes;
}

// The sizes of the images of the other split, whose network has to be the same.
void check_same_size(const IdxSource& source, const fs::path& folder, const fs::path& path, const Shape& shape) {
  const Split other = source.split == Split::train ? Split::test : Split::train;
  const std::optional<fs::path> images = find_spelling(folder, names_of_pair(other).images);
  if (!images) return;
  ByteSource file(*images);
  const std::vector<std::uint32_t> dimensions = read_header(file, *images, 3);
  check(dimensions[1] == shape.height && dimensions[2] == shape.width, ExitCode::data,
        "{}: holds images of {}x{}, but {} of {}x{}", path.string(), shape.height, shape.width, images->string(),
        dimensions[1], dimensions[2]);
}

std::unique_ptr<Dataset> load(const IdxSource& source, const fs::path& folder, const fs::path& image_path,
                              const fs::path& label_path) {
  IdxArray images = read_idx(image_path, 3, source.limit);
  IdxArray labels = read_idx(label_path, 1, source.limit);
  const std::uint32_t count = images.dimensions[0];
  const Shape shape = {1, images.dimensions[1], images.dimensions[2]};
  check_same_size(source, folder, image_path, shape);
  check(count == labels.dimensions[0], ExitCode::data, "{} holds {} images but {} holds {} labels", image_path.string(),
        count, label_path.string(), labels.dimensions[0]);
  check(count > 0, ExitCode::data, "{}: holds no images", image_path.string());
  const int classes = source.published ? kPublishedClasses : count_classes(source, folder);
  const auto bad =
      std::find_if(labels.elements.begin(), labels.elements.end(), [=](int label) { return label >= classes; });
  if (bad != labels.elements.end()) {
    const auto sample = bad - labels.elements.begin();
    throw Error(ExitCode::data, fmt::format("{}: the label of sample {} (byte {}) is {}, outside 0..{}",
                                            label_path.string(), sample, 8 + sample, *bad, classes - 1));
  }
  return std::make_unique<MemoryDataset>(source.name, shape, classes, std::move(images.elements),
                                         std::move(labels.elements));
}

}  // namespace

IdxArray read_idx(const fs::path& path, std::size_t rank, std::int64_t limit) {
  ByteSource source(path);
  IdxArray array;
  array.dimensions = read_header(source, path, rank);
  const std::uint64_t item = item_bytes(array.dimensions, path);
  const std::uint64_t items = array.dimensions[0];
  const std::uint64_t kept = limit > 0 ? std::min(items, static_cast<std::uint64_t>(limit)) : items;
  array.elements = read_growing(source, kept * item);
  std::uint64_t found = array.elements.size();
  if (found == kept * item) found += source.skip((items - kept) * item);
  const std::uint64_t header = 4 + 4 * rank;
  const std::uint64_t expected = items * item;
  check(found == expected, ExitCode::data, "{}: truncated: its header declares {} elements, {} bytes, but it has {}",
        path.string(), describe(array.dimensions), header + expected, header + found);
  check(source.skip(1) == 0, ExitCode::data, "{}: holds more than the {} bytes that its header declares ({} elements)",
        path.string(), header + expected, describe(array.dimensions));
  return array;
}

std::unique_ptr<Dataset> open_idx(const IdxSource& source) {
  const fs::path folder = find_folder(source);
  const IdxPair names = names_of_pair(source.split);
  const fs::path images = require_file(source, folder, names.images);
  const fs::path labels = require_file(source, folder, names.labels);
  try {
    return load(source, folder, images, labels);
  } catch (const Error& error) {
    // The files may be the user's own, so the message must not suggest to replace them by a download.
    throw Error(error.code(), source.published
                                  ? fmt::format("{}; give {} as published, other files of its format with --dataset "
                                                "idx, and images in folders with --dataset folder",
                                                error.what(), source.name)
                                  : fmt::format("{}; images in folders are --dataset folder", error.what()));
  }
}

}  // namespace ddp
