// Messages of protobuf as trees of fields, without their schema, for mutations that keep them well-formed
// (protobuf.dev, "Encoding").
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
  std::uint32_t type = 0;   // 0: a varint, 1: 8 bytes, 2: what has a length, 5: 4 bytes
  std::uint64_t value = 0;  // of types 0, 1 and 5
  Bytes bytes;              // of type 2, where it is no message
  Message message;          // of type 2, where its bytes can be read as one
};

// False for what is no message, or is empty.
bool parse_wire(std::span<const std::uint8_t> bytes, Message& message, int depth = 0);
Bytes wire_of(const Message& message);
// Changes one field anywhere in the tree: its value, its place, how often it is there.
void mutate(Message& message, Dice& dice);

}  // namespace ddp::fuzz
