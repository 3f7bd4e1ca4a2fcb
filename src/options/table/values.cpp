#include "options/table/values.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <system_error>
#include <vector>

#include "options/foreign_names.h"
#include "options/table/table.h"

namespace ddp {
namespace {

constexpr std::array<std::string_view, 4> kOn = {"on", "true", "yes", "1"};
constexpr std::array<std::string_view, 4> kOff = {"off", "false", "no", "0"};

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array kUnits = {Unit{"GiB", std::uint64_t{1} << 30U}, Unit{"MiB", std::uint64_t{1} << 20U},
                               Unit{"KiB", std::uint64_t{1} << 10U}};

// Whether the texts differ at most in upper and lower case.
bool same_letters(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

bool contains(std::span<const std::string_view> words, std::string_view word) {
  return std::any_of(words.begin(), words.end(), [word](std::string_view each) { return same_letters(each, word); });
}

}  // namespace

std::int64_t read_integer(std::string_view text, std::int64_t low, std::int64_t high) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::invalid_argument || stop != end) throw BadValue("not an integer");
  if (error == std::errc::result_out_of_range || value < low || value > high) throw BadValue("out of range");
  return value;
}

std::uint64_t read_bits(std::string_view text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.starts_with('-')) throw BadValue("out of range");
  if (error == std::errc::invalid_argument || stop != end) throw BadValue("not an integer");
  if (error == std::errc::result_out_of_range) throw BadValue("out of range");
  return value;
}

double read_real(std::string_view text, const RealRange& range) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::invalid_argument || stop != end) throw BadValue("not a number");
  if (error == std::errc::result_out_of_range) throw BadValue("out of range");
  if (!std::isfinite(value)) throw BadValue("not finite");
  if (value < range.low || value > range.high || (range.high_open && value == range.high) ||
      (range.low_open && value == range.low)) {
    throw BadValue("out of range");
  }
  // A negative zero passes the comparisons, but would be printed with its sign.
  return value == 0 ? 0 : value;
}

std::uint64_t read_bytes(std::string_view text) {
  const auto unit = std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return text.ends_with(u.name); });
  if (unit != kUnits.end()) text.remove_suffix(unit->name.size());
  const std::uint64_t factor = unit == kUnits.end() ? 1 : unit->bytes;
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::invalid_argument || stop != end) throw BadValue("not a size");
  // Sizes stay below 2^63, so that they can be counted with a sign.
  constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();
  if (error == std::errc::result_out_of_range || value > kLargest / factor) throw BadValue("out of range");
  return value * factor;
}

std::string bytes_text(std::uint64_t bytes) {
  for (const Unit& unit : kUnits) {
    if (bytes != 0 && bytes % unit.bytes == 0) return fmt::format("{}{}", bytes / unit.bytes, unit.name);
  }
  return std::to_string(bytes);
}

std::vector<int> read_ordinals(std::string_view text) {
  constexpr std::int64_t kLargest = 1023;
  std::vector<int> ordinals;
  for (;;) {
    const std::size_t comma = text.find(',');
    ordinals.push_back(static_cast<int>(read_integer(text.substr(0, comma), 0, kLargest)));
    if (comma == std::string_view::npos) return ordinals;
    text.remove_prefix(comma + 1);
  }
}

std::vector<std::int64_t> read_milestones(std::string_view text) {
  std::vector<std::int64_t> milestones;
  for (;;) {
    const std::size_t comma = text.find(',');
    milestones.push_back(read_integer(text.substr(0, comma), 1, std::numeric_limits<std::int64_t>::max()));
    if (milestones.size() > 1 && milestones.back() <= milestones[milestones.size() - 2])
      throw BadValue("not strictly increasing");
    if (comma == std::string_view::npos) return milestones;
    text.remove_prefix(comma + 1);
  }
}

std::array<double, 3> read_three_reals(std::string_view text, const RealRange& range) {
  std::array<double, 3> values{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t comma = text.find(',');
    if ((comma == std::string_view::npos) != (i + 1 == values.size())) throw BadValue("not three numbers");
    values[i] = read_real(text.substr(0, comma), range);
    if (comma != std::string_view::npos) text.remove_prefix(comma + 1);
  }
  return values;
}

namespace {

// Calls `read` with each part between commas.
template <class Read>
void read_list(std::string_view text, const Read& read) {
  for (;;) {
    const std::size_t comma = text.find(',');
    read(text.substr(0, comma));
    if (comma == std::string_view::npos) return;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

std::vector<PatternFactor> read_pattern_factors(std::string_view text) {
  std::vector<PatternFactor> factors;
  read_list(text, [&](std::string_view part) {
    const std::size_t equals = part.rfind('=');
    if (equals == std::string_view::npos) throw BadValue("a pattern without '=' and a factor");
    factors.push_back({read_text(part.substr(0, equals)), read_real(part.substr(equals + 1), {0, 1e9})});
  });
  return factors;
}

std::vector<PatternEpochs> read_pattern_freezes(std::string_view text) {
  std::vector<PatternEpochs> freezes;
  read_list(text, [&](std::string_view part) {
    const std::size_t at = part.rfind('@');
    const double epochs = at == std::string_view::npos ? 0 : read_real(part.substr(at + 1), {0, 1e9});
    freezes.push_back({read_text(part.substr(0, at)), epochs});
  });
  return freezes;
}

std::vector<PatternEpochs> read_pattern_fades(std::string_view text) {
  std::vector<PatternEpochs> fades = read_pattern_freezes(text);
  const bool complete = std::all_of(fades.begin(), fades.end(), [](const auto& each) { return each.epochs > 0; });
  if (!complete) throw BadValue("a pattern without '@' and a number of epochs > 0");
  return fades;
}

ImageSides read_sides(std::string_view text, std::int64_t low, std::int64_t high) {
  const std::size_t cross = text.find('x');
  const std::int64_t height = read_integer(text.substr(0, cross), low, high);
  if (cross == std::string_view::npos) return {height, height};
  return {height, read_integer(text.substr(cross + 1), low, high)};
}

bool is_switch_word(std::string_view text) { return contains(kOn, text) || contains(kOff, text); }

std::size_t read_choice(std::string_view text, std::span<const std::string_view> names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (same_letters(names[i], text)) return i;
  }
  const std::string meant = suggest_value(text, std::vector<std::string>(names.begin(), names.end()));
  throw BadValue(meant.empty() ? "unknown" : fmt::format("unknown, did you mean {}?", meant));
}

bool read_switch(std::string_view text) {
  if (!is_switch_word(text)) throw BadValue("neither on nor off");
  return contains(kOn, text);
}

std::string read_text(std::string_view text) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (text.empty()) throw BadValue("empty");
  if (std::any_of(text.begin(), text.end(), is_control)) throw BadValue("contains a control character");
  if (text.find('#') != std::string_view::npos) throw BadValue("contains '#', which starts a comment");
  if (text.front() == ' ' || text.back() == ' ') throw BadValue("starts or ends with a blank");
  return std::string(text);
}

std::string describe_range(std::int64_t low, std::int64_t high) {
  if (high == std::numeric_limits<std::int64_t>::max()) return fmt::format(">= {}", low);
  return fmt::format("from {} to {}", low, high);
}

std::string describe_range(const RealRange& range) {
  if (std::isinf(range.high)) return fmt::format("{} {}", range.low_open ? ">" : ">=", range.low);
  if (range.low_open || range.high_open) {
    return fmt::format("in {}{}, {}{}", range.low_open ? "(" : "[", range.low, range.high, range.high_open ? ")" : "]");
  }
  return fmt::format("from {} to {}", range.low, range.high);
}

std::string brief_range(std::int64_t low, std::int64_t high) {
  return high > 1'000'000 ? fmt::format(">= {}", low) : fmt::format("{} to {}", low, high);
}

std::string brief_range(const RealRange& range) {
  if (range.high >= 1e6) return fmt::format("{} {}", range.low_open ? ">" : ">=", range.low);
  if (range.low_open || range.high_open) {
    return fmt::format("{}{}, {}{}", range.low_open ? "(" : "[", range.low, range.high, range.high_open ? ")" : "]");
  }
  return fmt::format("{} to {}", range.low, range.high);
}

}  // namespace ddp
