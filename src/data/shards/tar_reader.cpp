#include "data/shards/tar_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <numeric>
#include <span>
#include <string_view>

namespace ddp {
namespace {

constexpr std::uint64_t kTarBlock = 512;
// The longest name, and the longest PAX header.
constexpr std::uint64_t kMostText = 1 << 20;

using TarBlock = std::array<char, kTarBlock>;

std::string_view field(const TarBlock& block, std::size_t begin, std::size_t bytes) {
  const std::string_view all(block.data() + begin, bytes);
  return all.substr(0, all.find('\0'));
}

// Octal, with blanks around it; nothing if it is not a number.
std::optional<std::uint64_t> octal(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return 0;
  text.remove_prefix(first);
  text = text.substr(0, text.find(' '));
  std::uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value, 8);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> size_of(const TarBlock& block) {
  constexpr std::size_t kAt = 124;
  constexpr std::size_t kBytes = 12;
  constexpr unsigned kBase256 = 0x80U;
  const auto first = static_cast<unsigned char>(block[kAt]);
  if ((first & kBase256) == 0) return octal(field(block, kAt, kBytes));
  std::uint64_t value = first & (kBase256 - 1U);
  for (std::size_t i = 1; i < kBytes; ++i) {
    if (value >> 55U != 0) return std::nullopt;
    value = (value << 8U) | static_cast<unsigned char>(block[kAt + i]);
  }
  return value;
}

// The sum of all bytes, with blanks for itself.
bool has_good_sum(const TarBlock& block) {
  constexpr std::size_t kAt = 148;
  constexpr std::size_t kBytes = 8;
  std::uint64_t sum = kBytes * ' ';
  for (std::size_t i = 0; i < block.size(); ++i) {
    if (i < kAt || i >= kAt + kBytes) sum += static_cast<unsigned char>(block[i]);
  }
  return octal(field(block, kAt, kBytes)) == sum;
}

bool is_zero(const TarBlock& block) {
  return std::all_of(block.begin(), block.end(), [](char byte) { return byte == 0; });
}

std::string name_of(const TarBlock& block) {
  const std::string_view name = field(block, 0, 100);
  const bool ustar = std::string_view(block.data() + 257, 6) == std::string_view("ustar\0", 6);
  const std::string_view prefix = ustar ? field(block, 345, 155) : "";
  return prefix.empty() ? std::string(name) : std::string(prefix) + "/" + std::string(name);
}

// A PAX header has no size.
constexpr std::uint64_t kNoSize = ~std::uint64_t{0};

// The records "LENGTH KEY=VALUE\n" of a PAX header.
void read_pax(std::string_view text, std::string& name, std::uint64_t& bytes) {
  while (!text.empty()) {
    std::size_t length = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto digits = static_cast<std::size_t>(read.ptr - text.data());
    if (read.ec != std::errc() || length <= digits + 1 || length > text.size()) return;
    const std::string_view record = text.substr(digits + 1, length - digits - 2);
    text.remove_prefix(length);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view value = record.substr(equals + 1);
    if (record.starts_with("path=")) name = value;
    std::uint64_t number = 0;
    if (record.starts_with("size=") &&
        std::from_chars(value.data(), value.data() + value.size(), number).ec == std::errc()) {
      bytes = number;
    }
  }
}

}  // namespace

std::string TarReader::text_of(std::uint64_t offset, std::uint64_t bytes) const {
  std::string text(static_cast<std::size_t>(std::min(bytes, kMostText)), '\0');
  text.resize(file_.read_at(std::as_writable_bytes(std::span(text)), offset));
  return text;
}

TarMember TarReader::damaged(std::uint64_t header, const std::string& what) {
  TarBlock block{};
  for (next_ = header + kTarBlock; next_ < end_; next_ += kTarBlock) {
    if (file_.read_at(std::as_writable_bytes(std::span(block)), next_) < kTarBlock) next_ = end_;
    // Data of a member may look like a header of the oldest kind.
    if (std::string_view(block.data() + 257, 5) == "ustar" && has_good_sum(block)) break;
  }
  return {.name = {}, .offset = header, .bytes = 0, .damage = what};
}

std::optional<TarMember> TarReader::next() {
  constexpr std::size_t kKindAt = 156;
  std::string long_name;
  std::uint64_t long_size = kNoSize;
  TarBlock block{};
  while (next_ < end_) {
    const std::uint64_t header = next_;
    if (file_.read_at(std::as_writable_bytes(std::span(block)), header) < kTarBlock) {
      has_end_ = true;
      return damaged(end_, "is truncated within a tar header");
    }
    if (is_zero(block)) {
      is_tar_ = is_tar_ || header == 0;
      next_ = end_;
      has_end_ = true;
      return std::nullopt;
    }
    const std::optional<std::uint64_t> size = size_of(block);
    if (!has_good_sum(block) || !size) return damaged(header, "has a damaged tar header");
    is_tar_ = true;
    const char kind = block[kKindAt];
    const bool describes = kind == 'L' || kind == 'K' || kind == 'x' || kind == 'g';
    const std::uint64_t bytes = describes || long_size == kNoSize ? *size : long_size;
    const std::uint64_t data = header + kTarBlock;
    if (bytes > end_ - std::min(data, end_)) {
      next_ = end_;
      has_end_ = true;
      return TarMember{.name = name_of(block), .offset = header, .bytes = 0, .damage = "is truncated"};
    }
    next_ = data + (bytes + kTarBlock - 1) / kTarBlock * kTarBlock;
    if (kind == 'L') {
      const std::string text = text_of(data, bytes);
      long_name = text.substr(0, text.find('\0'));
    } else if (kind == 'x') {
      read_pax(text_of(data, bytes), long_name, long_size);
    } else if (kind == '0' || kind == '\0' || kind == '7') {
      return TarMember{.name = long_name.empty() ? name_of(block) : long_name, .offset = data, .bytes = bytes};
    } else if (!describes) {
      long_name.clear();
      long_size = kNoSize;
    }
  }
  if (has_end_) return std::nullopt;
  has_end_ = true;
  return TarMember{
      .name = {}, .offset = end_, .bytes = 0, .damage = "is truncated, or was not finished by what wrote it"};
}

}  // namespace ddp
