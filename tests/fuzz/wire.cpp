#include "wire.h"

#include <algorithm>
#include <array>

namespace ddp::fuzz {
namespace {

constexpr int kDeepest = 8;

bool take_varint(std::span<const std::uint8_t>& bytes, std::uint64_t& value) {
  value = 0;
  for (unsigned shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const std::uint8_t byte = bytes.front();
    bytes = bytes.subspan(1);
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

void put_varint(Bytes& bytes, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7U) bytes.push_back(static_cast<std::uint8_t>(value | 0x80U));
  bytes.push_back(static_cast<std::uint8_t>(value));
}

std::size_t fixed_bytes(std::uint32_t type) { return type == 1 ? 8 : 4; }

// Returns true if bytes are text, because names would sometimes parse as messages.
bool is_text(std::span<const std::uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t c) { return c >= 0x20 && c < 0x7F; });
}

bool take_field(std::span<const std::uint8_t>& bytes, Field& field, int depth) {
  std::uint64_t tag = 0;
  if (!take_varint(bytes, tag) || tag >> 3U == 0 || tag > 0xFFFFFFFFU) return false;
  field.number = static_cast<std::uint32_t>(tag >> 3U);
  field.type = static_cast<std::uint32_t>(tag & 7U);
  if (field.type == 0) return take_varint(bytes, field.value);
  if (field.type == 1 || field.type == 5) {
    const std::size_t count = fixed_bytes(field.type);
    if (bytes.size() < count) return false;
    for (std::size_t i = 0; i < count; ++i) field.value |= std::uint64_t{bytes[i]} << (8 * i);
    bytes = bytes.subspan(count);
    return true;
  }
  std::uint64_t length = 0;
  if (field.type != 2 || !take_varint(bytes, length) || length > bytes.size()) return false;
  const auto content = bytes.first(length);
  bytes = bytes.subspan(length);
  if (is_text(content) || depth >= kDeepest || !parse_wire(content, field.message, depth + 1)) {
    field.message.clear();
    field.bytes.assign(content.begin(), content.end());
  }
  return true;
}

// A field of the tree and the message that contains it.
struct Place {
  Message* message;
  std::size_t index;
  Field& field() const { return (*message)[index]; }
};

void collect(Message& message, std::vector<Place>& places) {
  for (std::size_t i = 0; i < message.size(); ++i) {
    places.push_back({&message, i});
    collect(message[i].message, places);
  }
}

void mutate_value(Field& field, Dice& dice) {
  if (field.type == 2) {
    // A message is mutated through its own fields instead.
    if (field.message.empty()) mutate(field.bytes, field.bytes.size() + 8);
    return;
  }
  constexpr std::array<std::uint64_t, 10> kValues = {0, 1, 2, 3, 7, 16, 64, 99, 0x7FFFFFFFU, 0x7FFFFFFFFFFFFFFFU};
  switch (dice.roll(4)) {
    case 0:
      field.value = kValues.at(dice.roll(kValues.size()));
      break;
    case 1:
      field.value = ~kValues.at(dice.roll(kValues.size()));
      break;
    case 2:
      field.value ^= std::uint64_t{1} << dice.roll(64);
      break;
    default:
      field.value += dice.roll(2) == 0 ? 1 : ~std::uint64_t{0};
  }
}

}  // namespace

bool parse_wire(std::span<const std::uint8_t> bytes, Message& message, int depth) {
  message.clear();
  while (!bytes.empty()) {
    Field field;
    if (!take_field(bytes, field, depth)) return false;
    message.push_back(std::move(field));
  }
  return !message.empty();
}

Bytes wire_of(const Message& message) {
  Bytes bytes;
  for (const Field& field : message) {
    put_varint(bytes, (std::uint64_t{field.number} << 3U) | field.type);
    if (field.type == 0) {
      put_varint(bytes, field.value);
    } else if (field.type == 2) {
      const Bytes content = field.message.empty() ? field.bytes : wire_of(field.message);
      put_varint(bytes, content.size());
      bytes.insert(bytes.end(), content.begin(), content.end());
    } else {
      for (std::size_t i = 0; i < fixed_bytes(field.type); ++i) {
        bytes.push_back(static_cast<std::uint8_t>(field.value >> (8 * i)));
      }
    }
  }
  return bytes;
}

void mutate(Message& message, Dice& dice) {
  std::vector<Place> places;
  collect(message, places);
  if (places.empty()) return;
  const Place place = places[dice.roll(places.size())];
  const Place other = places[dice.roll(places.size())];
  const auto at = place.message->begin() + static_cast<std::ptrdiff_t>(place.index);
  switch (dice.roll(10)) {
    case 0:
      place.message->erase(at);
      break;
    case 1: {
      const Field copy = *at;
      place.message->insert(at, copy);
      break;
    }
    case 2: {
      const Field copy = other.field();
      place.field() = copy;
      break;
    }
    case 3: {  // the content of another field of the same type, e.g. another input or operator type
      const Field copy = other.field();
      if (copy.type != place.field().type) break;
      place.field().value = copy.value;
      place.field().bytes = copy.bytes;
      place.field().message = copy.message;
      break;
    }
    case 4: {
      const Field copy = other.field();
      place.message->insert(at, copy);
      break;
    }
    default:
      mutate_value(place.field(), dice);
  }
}

}  // namespace ddp::fuzz
