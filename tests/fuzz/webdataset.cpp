// Shards of WebDataset: tar files.
#include "data/shards/webdataset.h"

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using ddp::fuzz::require;
  static ddp::fuzz::MemoryFile file;
  file.assign(std::span(data, size));
  for (const ddp::WebdatasetFields& fields : {ddp::WebdatasetFields{}, ddp::WebdatasetFields{"x.png", "y.json"}}) {
    ddp::fuzz::parses([&] {
      const ddp::RecordIndex index = ddp::read_webdataset_shard(file.path(), fields);
      for (const ddp::Record& record : index.records) {
        require(record.offset <= size && record.bytes <= size - record.offset, "a picture behind the end of the file");
        require(record.label >= 0 && static_cast<std::size_t>(record.label) < index.labels.size(),
                "a label of no name");
      }
      require(index.records.size() + index.damaged.size() <= size / 512 + 1, "more samples than headers");
    });
  }
  return 0;
}
