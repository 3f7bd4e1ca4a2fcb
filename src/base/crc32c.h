// CRC-32C (Castagnoli) as TFRecord and TensorBoard files have it.
//
//   const std::uint32_t stored = masked_crc32c(text);
#pragma once

#include <cstdint>
#include <string_view>

namespace ddp {

std::uint32_t crc32c(std::string_view data);

// Rotated and offset, so that a CRC of data that contain CRCs is still good.
std::uint32_t masked_crc32c(std::string_view data);

}  // namespace ddp
