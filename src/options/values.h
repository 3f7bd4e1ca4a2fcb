// Values of options as text: each reader takes the whole text or throws BadValue.
//
//   read_integer("12", 1, 64) == 12;  read_integer("12x", 1, 64) throws "not a whole number"
//   read_switch("on") == true
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace ddp {

// Numbers from low to high; where high_open or low_open, that end itself is left out. An infinite high means no upper
// bound.
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
// The same text back, with the largest unit that divides it.
std::string bytes_text(std::uint64_t bytes);
// Numbers from 0 with commas between: "3,2".
std::vector<int> read_ordinals(std::string_view text);
// Rising numbers from 1 with commas between: "30,60".
std::vector<std::int64_t> read_milestones(std::string_view text);
// Three numbers within a range with commas between: "0.4,0.4,0".
std::array<double, 3> read_three_reals(std::string_view text, const RealRange& range);
// on, true, yes, 1 or off, false, no, 0.
bool read_switch(std::string_view text);
// Text that a configuration file can hold as it is: not empty, no '#', no control characters, no blanks at its ends.
std::string read_text(std::string_view text);

// True for the words that read_switch takes.
bool is_switch_word(std::string_view text);

// "from 1 to 64", "of at least 1".
std::string describe_range(std::int64_t low, std::int64_t high);
// "from 0 to 1", "from 0 to below 1", "of at least 0".
std::string describe_range(const RealRange& range);
// The same in brief, without upper bounds that nobody meets: "1 to 64", ">= 1".
std::string brief_range(std::int64_t low, std::int64_t high);
std::string brief_range(const RealRange& range);

}  // namespace ddp
