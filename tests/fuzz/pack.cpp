#include "pack.h"

#include <zlib.h>

#include <algorithm>

namespace ddp::fuzz {
namespace {

constexpr std::size_t kMostContent = std::size_t{1} << 16U;

int window_bits(Format format) { return format == Format::gzip ? 16 + MAX_WBITS : MAX_WBITS; }

}  // namespace

bool unpack(std::span<const std::uint8_t> packed, Format format, Bytes& content) {
  Bytes in(packed.begin(), packed.end());
  z_stream stream{};
  require(inflateInit2(&stream, window_bits(format)) == Z_OK, "inflateInit2 failed");
  content.resize(kMostContent);
  stream.next_in = in.data();
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = content.data();
  stream.avail_out = static_cast<uInt>(content.size());
  const bool whole = inflate(&stream, Z_FINISH) == Z_STREAM_END;
  content.resize(content.size() - stream.avail_out);
  inflateEnd(&stream);
  return whole;
}

Bytes pack(std::span<const std::uint8_t> content, Format format) {
  Bytes in(content.begin(), content.end());
  z_stream stream{};
  require(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, window_bits(format), 8, Z_DEFAULT_STRATEGY) == Z_OK,
          "deflateInit2 failed");
  Bytes out(deflateBound(&stream, in.size()));
  stream.next_in = in.data();
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  require(deflate(&stream, Z_FINISH) == Z_STREAM_END, "deflate failed");
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

std::size_t mutate_gzipped(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  Dice dice(seed);
  Bytes content;
  if (dice.roll(4) == 0 || !unpack({data, size}, Format::gzip, content)) return LLVMFuzzerMutate(data, size, most);
  mutate(content, std::max(content.size() + 64, most));
  // Sometimes without gzip, or as two members.
  Bytes file = content;
  if (dice.roll(16) != 0) {
    const std::size_t cut = dice.roll(8) == 0 ? dice.roll(content.size() + 1) : content.size();
    file = pack(std::span(content).first(cut), Format::gzip);
    if (cut < content.size()) {
      const Bytes second = pack(std::span(content).subspan(cut), Format::gzip);
      file.insert(file.end(), second.begin(), second.end());
    }
  }
  if (file.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::copy(file.begin(), file.end(), data);
  return file.size();
}

}  // namespace ddp::fuzz
