// Parsing of option values: each function consumes the whole text or throws BadValue.
//
//   read_integer("12", 1, 64);    // 12
//   read_integer("12x", 1, 64);   // throws BadValue("not an integer")
//   read_switch("on");            // true
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "options/options.h"

namespace ddp {

// The interval from low to high; low_open and high_open exclude the endpoint. An infinite high means no upper bound.
struct RealRange {
  double low = 0;
  double high = std::numeric_limits<double>::infinity();
  bool high_open = false;
  bool low_open = false;
};

std::int64_t read_integer(std::string_view text, std::int64_t low, std::int64_t high);
// The same from 0 to 2^64-1.
std::uint64_t read_bits(std::string_view text);
double read_real(std::string_view text, const RealRange& range);
// Bytes: "4GiB", "512MiB", "64KiB", "1000".
std::uint64_t read_bytes(std::string_view text);
// The inverse, in the largest unit that divides `bytes`.
std::string bytes_text(std::uint64_t bytes);
// Comma-separated integers >= 0: "3,2".
std::vector<int> read_ordinals(std::string_view text);
// Comma-separated, strictly increasing integers >= 1: "30,60".
std::vector<std::int64_t> read_milestones(std::string_view text);
// Three comma-separated numbers within `range`: "0.4,0.4,0".
std::array<double, 3> read_three_reals(std::string_view text, const RealRange& range);
// Comma-separated patterns with a factor >= 0 each: "*.bias=2,fc.*=0.1".
std::vector<PatternFactor> read_pattern_factors(std::string_view text);
// Comma-separated patterns, each with a number of epochs >= 0 or without: "conv1.*,fc.bias@3".
std::vector<PatternEpochs> read_pattern_freezes(std::string_view text);
// Comma-separated patterns, each with a number of epochs > 0: "conv1.bias@3".
std::vector<PatternEpochs> read_pattern_fades(std::string_view text);
// "224" for both, or "192x256": height and width.
ImageSides read_sides(std::string_view text, std::int64_t low, std::int64_t high);
// The position of `text` among the names, in upper or lower case. Throws BadValue with the name that it may stand for.
std::size_t read_choice(std::string_view text, std::span<const std::string_view> names);
// on, true, yes, 1 or off, false, no, 0, in upper or lower case.
bool read_switch(std::string_view text);
// Text that survives a configuration file: not empty, without '#' and control characters, no blank at either end.
std::string read_text(std::string_view text);

// True for the words that read_switch accepts.
bool is_switch_word(std::string_view text);

// For error messages: "from 1 to 64", ">= 1".
std::string describe_range(std::int64_t low, std::int64_t high);
// "from 0 to 1", "in [0, 1)", ">= 0".
std::string describe_range(const RealRange& range);
// For --help, without upper bounds of no practical relevance: "1 to 64", ">= 1".
std::string brief_range(std::int64_t low, std::int64_t high);
std::string brief_range(const RealRange& range);

}  // namespace ddp
