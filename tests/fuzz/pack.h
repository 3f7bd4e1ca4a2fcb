// zlib's two formats, for mutations of what a file compresses.
//
//   Bytes content;
//   if (unpack(file, Format::gzip, content)) ... file = pack(content, Format::gzip);
#pragma once

#include "fuzz.h"

namespace ddp::fuzz {

enum class Format { zlib, gzip };

// False where `packed` is not whole, or is more than this program would mutate.
bool unpack(std::span<const std::uint8_t> packed, Format format, Bytes& content);
Bytes pack(std::span<const std::uint8_t> content, Format format);

// A mutation for files that may be gzipped: mostly of their content, at times of what is there.
std::size_t mutate_gzipped(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed);

}  // namespace ddp::fuzz
