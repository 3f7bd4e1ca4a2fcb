// TFRecord files. What they contain is given good checksums, which mutations would rarely have.
#include "data/shards/tfrecord.h"

#include <cstring>

#include "base/crc32c.h"
#include "fuzz.h"

namespace {

std::string little(std::uint64_t value, std::size_t bytes) {
  std::string text(bytes, '\0');
  std::memcpy(text.data(), &value, bytes);
  return text;
}

void check_index(const std::filesystem::path& path, std::size_t size) {
  using ddp::fuzz::require;
  ddp::fuzz::parses([&] {
    const ddp::RecordIndex index = ddp::read_tfrecord_shard(path, {});
    for (const ddp::Record& record : index.records) {
      require(record.offset <= size && record.bytes <= size - record.offset, "a picture behind the end of the file");
      require(record.label >= 0 && static_cast<std::size_t>(record.label) < index.labels.size(), "a label of no name");
    }
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static ddp::fuzz::MemoryFile file;
  file.assign(std::span(data, size));
  check_index(file.path(), size);
  const std::string example(data, data + size);
  const std::string length = little(size, 8);
  const std::string record =
      length + little(ddp::masked_crc32c(length), 4) + example + little(ddp::masked_crc32c(example), 4);
  const std::vector<std::uint8_t> bytes(record.begin(), record.end());
  file.assign(bytes);
  check_index(file.path(), bytes.size());
  return 0;
}
