// zlib's two formats, for mutations of compressed content.
//
//   Bytes content;
//   if (unpack(file, Format::gzip, content)) ... file = pack(content, Format::gzip);
#pragma once

#include "fuzz.h"

namespace ddp::fuzz {

enum class Format { zlib, gzip };

// Returns false if `packed` is incomplete or larger than this program mutates.
bool unpack(std::span<const std::uint8_t> packed, Format format, Bytes& content);
Bytes pack(std::span<const std::uint8_t> content, Format format);

// Mutates a possibly gzipped file: usually its content, sometimes the compressed bytes.
std::size_t mutate_gzipped(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed);

}  // namespace ddp::fuzz
