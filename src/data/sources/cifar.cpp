#include "data/sources/cifar.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text/utf8.h"
#include "data/sources/byte_source.h"
#include "data/sources/memory_dataset.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

constexpr Shape kCifarShape = {3, 32, 32};
// Records are read in chunks, so that memory grows with the actual file size.
constexpr std::size_t kAtOnce = 100;

struct Records {
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;
};

// What distinguishes the two.
struct CifarFormat {
  std::string name;  // of the data set
  int classes;
  std::size_t label;  // the byte of a record with the label; pixels follow

  std::size_t record() const { return label + 1 + kCifarShape.size(); }
};

CifarFormat format_of(const CifarSource& source) {
  DDP_ASSERT(source.classes == 10 || source.classes == 100);
  return source.classes == 10 ? CifarFormat{"cifar10", 10, 0} : CifarFormat{"cifar100", 100, 1};
}

std::vector<std::string> batch_names(Split split, const CifarFormat& format) {
  if (format.classes == 100) return {split == Split::test ? "test.bin" : "train.bin"};
  if (split == Split::test) return {"test_batch.bin"};
  return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
}

std::string download_hint(const CifarSource& source) {
  return fmt::format("download it with: launch/get-data {} {}", format_of(source).name, source.data_dir.string());
}

fs::path find_folder(const CifarSource& source) {
  const CifarFormat format = format_of(source);
  std::string looked_in;
  for (const fs::path& folder : source.folders) {
    for (const Split split : {Split::train, Split::test}) {
      for (const std::string& name : batch_names(split, format)) {
        if (find_plain_or_gzipped(folder / name)) return folder;
      }
    }
    looked_in += (looked_in.empty() ? "" : ", ") + folder.string();
  }
  throw Error(ExitCode::data, fmt::format("no {} data set: looked for {} and {} in {}; {}; images in "
                                          "folders of classes are --dataset folder",
                                          format.name, batch_names(Split::train, format)[0],
                                          batch_names(Split::test, format)[0], looked_in, download_hint(source)));
}

std::string published_name(const CifarFormat& format) { return fmt::format("CIFAR-{}", format.classes); }

std::vector<std::string> class_names(const CifarFormat& format, const fs::path& folder) {
  if (format.classes == 10) {
    return {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
  }
  const fs::path path = folder / "fine_label_names.txt";
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return {};
  std::vector<std::string> names;
  std::istringstream lines(read_text(path, ExitCode::data));
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) names.push_back(escape_name(line));
  }
  if (names.size() != static_cast<std::size_t>(format.classes)) names.clear();
  return names;
}

// Appends the records of a file, up to `limit` in total, and checks the remaining ones.
void read_records(const fs::path& path, const CifarFormat& format, std::uint64_t limit, Records& records) {
  ByteSource source(path);
  const std::size_t record = format.record();
  std::vector<std::uint8_t> some(kAtOnce * record);
  std::uint64_t bytes = 0;
  for (std::size_t found = some.size(); found == some.size();) {
    found = source.read(some);
    check(found % record == 0, ExitCode::data,
          "{}: its size of {} bytes is not a multiple of the record size of {} bytes: truncated, or not in {}'s "
          "binary format",
          path.string(), bytes + found, record, published_name(format));
    for (std::size_t begin = 0; begin < found; begin += record) {
      const std::size_t at = begin + format.label;
      check(some[at] < format.classes, ExitCode::data, "{}: the label of record {} (byte {}) is {}, outside 0..{}",
            path.string(), (bytes + begin) / record, bytes + at, some[at], format.classes - 1);
      if (records.labels.size() >= limit) continue;
      records.labels.push_back(some[at]);
      const auto pixels = some.begin() + static_cast<std::ptrdiff_t>(at) + 1;
      records.pixels.insert(records.pixels.end(), pixels, pixels + static_cast<std::ptrdiff_t>(kCifarShape.size()));
    }
    bytes += found;
  }
  check(bytes > 0, ExitCode::data, "{}: is empty", path.string());
}

}  // namespace

std::unique_ptr<Dataset> open_cifar(const CifarSource& source) {
  const CifarFormat format = format_of(source);
  const fs::path folder = find_folder(source);
  const std::uint64_t limit =
      source.limit > 0 ? static_cast<std::uint64_t>(source.limit) : std::numeric_limits<std::uint64_t>::max();
  Records records;
  for (const std::string& name : batch_names(source.split, format)) {
    if (records.labels.size() >= limit) break;
    const std::optional<fs::path> path = find_plain_or_gzipped(folder / name);
    check(path.has_value(), ExitCode::data, "{}: missing; {}", (folder / name).string(), download_hint(source));
    try {
      read_records(*path, format, limit, records);
    } catch (const Error& error) {
      // The files may be the user's own, so the message must not suggest to replace them by a download.
      throw Error(error.code(), fmt::format("{}; give {} as published or in its format, other images as folders with "
                                            "--dataset folder",
                                            error.what(), published_name(format)));
    }
  }
  auto data = std::make_unique<MemoryDataset>(format.name, kCifarShape, format.classes, std::move(records.pixels),
                                              std::move(records.labels));
  data->name_classes(class_names(format, folder));
  return data;
}

}  // namespace ddp
