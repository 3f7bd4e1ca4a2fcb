// Protobuf messages as trees of fields, without their schema, for mutations that keep them well-formed (protobuf.dev,
// "Encoding").
//
//   Message message;
//   if (parse_wire(bytes, message)) { mutate(message, dice); bytes = wire_of(message); }
#pragma once

#include "fuzz.h"

namespace ddp::fuzz {

struct Field;
using Message = std::vector<Field>;

struct Field {
  std::uint32_t number = 0;
  std::uint32_t type = 0;   // 0: varint, 1: 8 bytes, 2: length-delimited, 5: 4 bytes
  std::uint64_t value = 0;  // of types 0, 1 and 5
  Bytes bytes;              // of type 2, if it is not a message
  Message message;          // of type 2, if its bytes parse as a message
};

// Returns false if the bytes are not a message or empty.
bool parse_wire(std::span<const std::uint8_t> bytes, Message& message, int depth = 0);
Bytes wire_of(const Message& message);
// Changes one field anywhere in the tree: its value, position or multiplicity.
void mutate(Message& message, Dice& dice);

}  // namespace ddp::fuzz
