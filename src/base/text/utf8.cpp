#include "base/text/utf8.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <set>

namespace ddp {
namespace {

struct Decomposition {
  char32_t whole;
  char32_t first;
  char32_t second;
};

constexpr std::array kDecompositions = std::to_array<Decomposition>({
#include "base/text/decompositions.inc"
});

unsigned byte_at(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

// The lowest and highest second byte behind this first one (Unicode, table 3-7).
struct SecondByte {
  unsigned low = 0x80;
  unsigned high = 0xBF;
};

SecondByte second_behind(unsigned first) {
  switch (first) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {};
  }
}

std::size_t length_of(unsigned first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return 2;
  if (first >= 0xE0 && first <= 0xEF) return 3;
  return first >= 0xF0 && first <= 0xF4 ? 4 : 0;
}

// The code point of a character of valid UTF-8.
char32_t code_point(std::string_view character) {
  if (character.size() == 1) return byte_at(character, 0);
  char32_t code = byte_at(character, 0) & (0x7FU >> character.size());
  for (std::size_t i = 1; i < character.size(); ++i) code = code << 6U | (byte_at(character, i) & 0x3FU);
  return code;
}

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

unsigned hex_value(char c) {
  if (c <= '9') return static_cast<unsigned>(c - '0');
  return static_cast<unsigned>((c | 0x20) - 'a') + 10;
}

bool begins_with_escape(std::string_view text) {
  return text.size() >= 4 && text[0] == '\\' && text[1] == 'x' && is_hex(text[2]) && is_hex(text[3]);
}

// Also those that terminals know as two bytes.
bool is_control(std::string_view character) {
  const char32_t code = code_point(character);
  return code < 0x20 || (code >= 0x7F && code < 0xA0);
}

std::string escaped(std::string_view text, bool controls) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(1, length));
    if (length == 0 || begins_with_escape(text) || (controls && is_control(character))) {
      for (std::size_t i = 0; i < character.size(); ++i) result += fmt::format("\\x{:02X}", byte_at(character, i));
    } else {
      result += character;
    }
    text.remove_prefix(character.size());
  }
  return result;
}

void append_decomposed(char32_t code, std::u32string& text) {
  constexpr char32_t kSyllables = 0xAC00;
  constexpr char32_t kSyllableCount = 11172;
  if (code >= kSyllables && code < kSyllables + kSyllableCount) {
    const char32_t index = code - kSyllables;
    text.push_back(0x1100 + index / 588);
    text.push_back(0x1161 + index % 588 / 28);
    if (index % 28 != 0) text.push_back(0x11A7 + index % 28);
    return;
  }
  const auto* const found = std::lower_bound(kDecompositions.begin(), kDecompositions.end(), code,
                                             [](const Decomposition& each, char32_t c) { return each.whole < c; });
  if (found == kDecompositions.end() || found->whole != code) {
    text += code;
    return;
  }
  append_decomposed(found->first, text);
  if (found->second != 0) append_decomposed(found->second, text);
}

bool is_mark(char32_t code) {
  static const std::set<char32_t> kMarks = [] {
    std::set<char32_t> marks;
    for (const Decomposition& each : kDecompositions) {
      if (each.second != 0) marks.insert(each.second);
    }
    return marks;
  }();
  return kMarks.contains(code);
}

}  // namespace

std::size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const unsigned first = byte_at(text, 0);
  const std::size_t length = length_of(first);
  if (length == 0 || text.size() < length) return 0;
  if (length == 1) return 1;
  const SecondByte second = second_behind(first);
  if (byte_at(text, 1) < second.low || byte_at(text, 1) > second.high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((byte_at(text, i) & 0xC0U) != 0x80U) return 0;
  }
  return length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string escape_bytes(std::string_view text) { return escaped(text, /*controls=*/false); }

std::string escape_name(std::string_view name) { return escaped(name, /*controls=*/true); }

std::string unescape_bytes(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    if (begins_with_escape(text)) {
      result += static_cast<char>(hex_value(text[2]) * 16 + hex_value(text[3]));
      text.remove_prefix(4);
    } else {
      result += text.front();
      text.remove_prefix(1);
    }
  }
  return result;
}

std::string same_form(std::string_view name) {
  if (!is_utf8(name)) return std::string(name);
  std::u32string text;
  while (!name.empty()) {
    const std::size_t length = utf8_length(name);
    append_decomposed(code_point(name.substr(0, length)), text);
    name.remove_prefix(length);
  }
  // Marks behind one letter may be in any order.
  for (auto begin = text.begin(); begin != text.end();) {
    const auto end = std::find_if_not(begin, text.end(), is_mark);
    std::sort(begin, end);
    begin = end == text.end() ? end : end + 1;
  }
  std::string form;
  for (const char32_t code : text) form += fmt::format("{:X} ", static_cast<std::uint32_t>(code));
  return form;
}

}  // namespace ddp
