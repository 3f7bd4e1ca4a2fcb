#include "data/sources/cifar10.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "data/sources/byte_source.h"
#include "data/sources/memory_dataset.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

constexpr Shape kCifarShape = {3, 32, 32};
constexpr int kCifarClasses = 10;
constexpr std::size_t kRecord = 3073;
// Records are read in chunks, so that memory grows with the actual file size.
constexpr std::size_t kAtOnce = 100;

struct Records {
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint8_t> labels;
};

std::vector<std::string> batch_names(Split split) {
  if (split == Split::test) return {"test_batch.bin"};
  return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"};
}

std::string download_hint(const Cifar10Source& source) {
  return fmt::format("download it with: launch/get-data cifar10 {}", source.data_dir.string());
}

fs::path find_folder(const Cifar10Source& source) {
  std::string looked_in;
  for (const fs::path& folder : source.folders) {
    for (const Split split : {Split::train, Split::test}) {
      for (const std::string& name : batch_names(split)) {
        if (find_plain_or_gzipped(folder / name)) return folder;
      }
    }
    looked_in += (looked_in.empty() ? "" : ", ") + folder.string();
  }
  throw Error(ExitCode::data,
              fmt::format("no cifar10 data set: looked for data_batch_1.bin and test_batch.bin in {}; {}; images in "
                          "folders of classes are --dataset folder",
                          looked_in, download_hint(source)));
}

// Appends the records of a file, up to `limit` in total, and checks the remaining ones.
void read_records(const fs::path& path, std::uint64_t limit, Records& records) {
  ByteSource source(path);
  std::vector<std::uint8_t> some(kAtOnce * kRecord);
  std::uint64_t bytes = 0;
  for (std::size_t found = some.size(); found == some.size();) {
    found = source.read(some);
    check(found % kRecord == 0, ExitCode::data,
          "{}: its size of {} bytes is not a multiple of the record size of {} bytes: truncated, or not in CIFAR-10's "
          "binary format",
          path.string(), bytes + found, kRecord);
    for (std::size_t begin = 0; begin < found; begin += kRecord) {
      check(some[begin] < kCifarClasses, ExitCode::data, "{}: the label of record {} (byte {}) is {}, outside 0..{}",
            path.string(), (bytes + begin) / kRecord, bytes + begin, some[begin], kCifarClasses - 1);
      if (records.labels.size() >= limit) continue;
      records.labels.push_back(some[begin]);
      const auto pixels = some.begin() + static_cast<std::ptrdiff_t>(begin) + 1;
      records.pixels.insert(records.pixels.end(), pixels, pixels + static_cast<std::ptrdiff_t>(kCifarShape.size()));
    }
    bytes += found;
  }
  check(bytes > 0, ExitCode::data, "{}: is empty", path.string());
}

}  // namespace

std::unique_ptr<Dataset> open_cifar10(const Cifar10Source& source) {
  const fs::path folder = find_folder(source);
  const std::uint64_t limit =
      source.limit > 0 ? static_cast<std::uint64_t>(source.limit) : std::numeric_limits<std::uint64_t>::max();
  Records records;
  for (const std::string& name : batch_names(source.split)) {
    if (records.labels.size() >= limit) break;
    const std::optional<fs::path> path = find_plain_or_gzipped(folder / name);
    check(path.has_value(), ExitCode::data, "{}: missing; {}", (folder / name).string(), download_hint(source));
    try {
      read_records(*path, limit, records);
    } catch (const Error& error) {
      // The files may be the user's own, so the message must not suggest to replace them by a download.
      throw Error(error.code(),
                  fmt::format("{}; give CIFAR-10 as published or in its format, other images as folders with "
                              "--dataset folder",
                              error.what()));
    }
  }
  auto data = std::make_unique<MemoryDataset>("cifar10", kCifarShape, kCifarClasses, std::move(records.pixels),
                                              std::move(records.labels));
  data->name_classes({"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"});
  return data;
}

}  // namespace ddp
