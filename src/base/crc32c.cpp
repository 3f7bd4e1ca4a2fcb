#include "base/crc32c.h"

#include <array>
#include <bit>

namespace ddp {

std::uint32_t crc32c(std::string_view data) {
  static const std::array<std::uint32_t, 256> kTable = [] {
    constexpr std::uint32_t kPolynomial = 0x82F63B78U;  // reflected
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t i = 0; i < table.size(); ++i) {
      table[i] = i;
      for (int bit = 0; bit < 8; ++bit) table[i] = (table[i] >> 1U) ^ ((table[i] & 1U) != 0 ? kPolynomial : 0);
    }
    return table;
  }();
  std::uint32_t crc = ~0U;
  for (const char byte : data) crc = (crc >> 8U) ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFFU];
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view data) { return std::rotr(crc32c(data), 15) + 0xA282EAD8U; }

}  // namespace ddp
