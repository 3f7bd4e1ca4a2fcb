// IDX files, plain or gzipped.
#include "data/sources/idx.h"

#include <algorithm>

#include "pack.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using ddp::fuzz::parses;
  using ddp::fuzz::require;
  static ddp::fuzz::MemoryFile file;
  file.assign(std::span(data, size));
  for (const std::size_t rank : {std::size_t{1}, std::size_t{3}}) {
    ddp::IdxArray all;
    ddp::IdxArray two;
    const bool taken = parses([&] { all = ddp::read_idx(file.path(), rank); });
    const bool limited = parses([&] { two = ddp::read_idx(file.path(), rank, 2); });
    require(taken == limited, "the limit decides whether a file is good");
    if (!taken) continue;
    require(all.dimensions == two.dimensions && two.elements.size() <= all.elements.size() &&
                std::equal(two.elements.begin(), two.elements.end(), all.elements.begin()),
            "the limit changes elements");
  }
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  return ddp::fuzz::mutate_gzipped(data, size, most, seed);
}
