// CIFAR-10's binary files, plain or gzipped.
#include "data/sources/cifar.h"
#include "pack.h"
#include "support/temporary_folder.h"

namespace {

// A folder whose test_batch.bin is the file in memory.
struct Folder {
  ddp::TemporaryFolder folder;
  ddp::fuzz::MemoryFile file;

  Folder() { std::filesystem::create_symlink(file.path(), folder.path() / "test_batch.bin"); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Folder place;
  place.file.assign(std::span(data, size));
  ddp::CifarSource source{.folders = {place.folder.path()}, .data_dir = place.folder.path(), .split = ddp::Split::test};
  std::vector<std::uint8_t> pixels(ddp::Shape{3, 32, 32}.size());
  for (const std::int64_t limit : {0, 1}) {
    source.limit = limit;
    ddp::fuzz::parses([&] {
      const std::unique_ptr<ddp::Dataset> images = ddp::open_cifar(source);
      ddp::fuzz::require(images->size() > 0 && (limit == 0 || images->size() == limit),
                         "an impossible number of images");
      for (std::int64_t i = 0; i < images->size(); ++i) {
        images->read(i, pixels);
        ddp::fuzz::require(images->label(i) >= 0 && images->label(i) < 10, "an impossible label");
      }
    });
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  return ddp::fuzz::mutate_gzipped(data, size, most, seed);
}
