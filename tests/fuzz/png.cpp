// PNG files. Mutations change chunks and their compressed content; checksums and lengths are corrected afterwards,
// because otherwise nothing would get past the checksums.
#include <zlib.h>

#include <algorithm>

#include "image.h"
#include "pack.h"

namespace ddp::fuzz {
namespace {

constexpr std::size_t kSignature = 8;

struct Chunk {
  std::array<std::uint8_t, 4> type{};
  Bytes data;
};

std::uint32_t big_endian(std::span<const std::uint8_t> bytes) {
  return (std::uint32_t{bytes[0]} << 24U) | (std::uint32_t{bytes[1]} << 16U) | (std::uint32_t{bytes[2]} << 8U) |
         bytes[3];
}

void append(Bytes& to, std::uint32_t value) {
  for (const unsigned shift : {24U, 16U, 8U, 0U}) to.push_back(static_cast<std::uint8_t>(value >> shift));
}

std::vector<Chunk> chunks_of(std::span<const std::uint8_t> file) {
  std::vector<Chunk> chunks;
  std::size_t at = kSignature;
  while (at + 8 <= file.size()) {
    Chunk chunk;
    std::copy_n(file.begin() + static_cast<std::ptrdiff_t>(at) + 4, 4, chunk.type.begin());
    const std::size_t length = std::min<std::size_t>(big_endian(file.subspan(at)), file.size() - at - 8);
    const auto data = file.subspan(at + 8, length);
    chunk.data.assign(data.begin(), data.end());
    chunks.push_back(std::move(chunk));
    at += 12 + length;
  }
  return chunks;
}

Bytes file_of(const std::vector<Chunk>& chunks) {
  Bytes file = {0x89, 'P', 'N', 'G', 0x0D, 0x0A, 0x1A, 0x0A};
  for (const Chunk& chunk : chunks) {
    append(file, static_cast<std::uint32_t>(chunk.data.size()));
    const std::size_t begin = file.size();
    file.insert(file.end(), chunk.type.begin(), chunk.type.end());
    file.insert(file.end(), chunk.data.begin(), chunk.data.end());
    append(file, static_cast<std::uint32_t>(crc32(0, file.data() + begin, static_cast<uInt>(file.size() - begin))));
  }
  return file;
}

void change(Chunk& chunk, Dice& dice, std::size_t most) {
  constexpr std::array<const char*, 8> kTypes = {"IHDR", "IDAT", "PLTE", "tRNS", "IEND", "gAMA", "bKGD", "iCCP"};
  Bytes content;
  if (dice.roll(16) == 0) {
    std::copy_n(kTypes.at(dice.roll(kTypes.size())), 4, chunk.type.begin());
  } else if (chunk.type[1] == 'D' && dice.roll(4) != 0 && unpack(chunk.data, Format::zlib, content)) {
    mutate(content, 4 * most);
    chunk.data = pack(content, Format::zlib);
  } else {
    mutate(chunk.data, chunk.data.size() + 16);
  }
}

}  // namespace
}  // namespace ddp::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ddp::fuzz::decode_image({data, size});
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  using ddp::fuzz::Chunk;
  ddp::fuzz::Dice dice(seed);
  std::vector<Chunk> chunks = ddp::fuzz::chunks_of({data, size});
  if (chunks.empty() || dice.roll(16) == 0) return LLVMFuzzerMutate(data, size, most);
  const auto chosen = chunks.begin() + static_cast<std::ptrdiff_t>(dice.roll(chunks.size()));
  switch (dice.roll(8)) {
    case 0:
      chunks.erase(chosen);
      break;
    case 1: {
      const Chunk copy = *chosen;
      chunks.insert(chunks.begin() + static_cast<std::ptrdiff_t>(dice.roll(chunks.size())), copy);
      break;
    }
    default:
      change(*chosen, dice, most);
  }
  const ddp::fuzz::Bytes file = ddp::fuzz::file_of(chunks);
  if (file.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::copy(file.begin(), file.end(), data);
  return file.size();
}
