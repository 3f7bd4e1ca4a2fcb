// Lists of images with labels. The images are files of /proc/self, of which some are always there.
#include "data/index/labels.h"

#include "data/index/split.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using ddp::fuzz::require;
  static ddp::fuzz::MemoryFile file;
  file.assign(std::span(data, size));
  for (const std::string column : {"", "patient"}) {
    ddp::fuzz::parses([&] {
      const ddp::LabelList list = ddp::read_labels(file.path(), "/proc/self", column, 1);
      const std::vector<ddp::ListedFile>& files = list.listing.train.files;
      require(!files.empty() && (list.parts.empty() || list.parts.size() == files.size()), "other parts than images");
      require(list.groups.empty() || list.groups.size() == files.size(), "other groups than images");
      for (const ddp::ListedFile& each : files) {
        require(each.label >= 0 && static_cast<std::size_t>(each.label) < list.listing.classes.size(),
                "a label of no class");
      }
      // What a run writes is read again when it is resumed.
      const std::string csv = ddp::split_csv(list.listing, std::string(files.size(), ddp::kTrains));
      require(ddp::split_difference(csv, csv).empty(), "a division differs from itself");
    });
  }
  return 0;
}
