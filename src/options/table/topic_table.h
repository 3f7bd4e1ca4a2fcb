// Adds options to the table: one method per type of value, which sets the reader, the writer and the allowed range.
//
//   std::vector<OptionSpec> table;
//   TopicTable model(table, "model", &Options::model);
//   model.real("init-std", &ModelOptions::init_std, {0, 1000}, "standard deviation of --init normal");
#pragma once

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/text/text.h"
#include "options/table/table.h"
#include "options/table/values.h"

namespace ddp {

template <class T>
struct Unwrapped {
  using type = T;
};
template <class T>
struct Unwrapped<std::optional<T>> {
  using type = T;
};

// No upper bound.
inline constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
// Batches and shards stay below 2^31, so that products with the number of ranks cannot overflow.
inline constexpr std::int64_t kMaxBatch = std::numeric_limits<std::int32_t>::max();

// Options of one topic, whose values are in the member `group` of Options.
template <class Group>
class TopicTable {
 public:
  TopicTable(std::vector<OptionSpec>& table, std::string_view topic, Group Options::*group)
      : table_(table), topic_(topic), group_(group) {}

  // The options that follow have an effect with these choices only: "--optimizer adam, adamw, lamb"; empty: with any.
  void begin_group(std::string_view choices) { choices_ = choices; }

  template <class T>
  OptionSpec& integer(std::string_view key, T Group::*member, std::int64_t low, std::int64_t high,
                      std::string_view help) {
    using Integer = typename Unwrapped<T>::type;
    OptionSpec& spec = add(key, "N", help);
    spec.range = brief_range(low, high);
    spec.allowed = "an integer " + describe_range(low, high);
    spec.set = [group = group_, member, low, high](Options& options, std::string_view value) {
      options.*group.*member = static_cast<Integer>(read_integer(value, low, high));
    };
    spec.get = [group = group_, member](const Options& options) -> std::optional<std::string> {
      const T& value = options.*group.*member;
      if constexpr (std::is_same_v<T, Integer>) {
        return std::to_string(value);
      } else {
        return value ? std::optional(std::to_string(*value)) : std::nullopt;
      }
    };
    return spec;
  }

  // Any 64 bits.
  OptionSpec& bits(std::string_view key, std::uint64_t Group::*member, std::string_view help) {
    OptionSpec& spec = add(key, "N", help);
    spec.range = "0 to 2^64-1";
    spec.allowed = "an integer from 0 to 2^64-1";
    spec.set = [group = group_, member](Options& options, std::string_view value) {
      options.*group.*member = read_bits(value);
    };
    spec.get = [group = group_, member](const Options& options) {
      return std::optional(std::to_string(options.*group.*member));
    };
    return spec;
  }

  OptionSpec& real(std::string_view key, double Group::*member, const RealRange& range, std::string_view help) {
    OptionSpec& spec = add(key, "X", help);
    spec.range = brief_range(range);
    spec.allowed = "a number " + describe_range(range);
    spec.set = [group = group_, member, range](Options& options, std::string_view value) {
      options.*group.*member = read_real(value, range);
    };
    spec.get = [group = group_, member](const Options& options) {
      return std::optional(fmt::format("{}", options.*group.*member));
    };
    return spec;
  }

  OptionSpec& real(std::string_view key, std::optional<double> Group::*member, const RealRange& range,
                   std::string_view help) {
    OptionSpec& spec = add(key, "X", help);
    spec.range = brief_range(range);
    spec.allowed = "a number " + describe_range(range);
    spec.set = [group = group_, member, range](Options& options, std::string_view value) {
      options.*group.*member = read_real(value, range);
    };
    spec.get = [group = group_, member](const Options& options) -> std::optional<std::string> {
      const std::optional<double> value = options.*group.*member;
      return value ? std::optional(fmt::format("{}", *value)) : std::nullopt;
    };
    return spec;
  }

  OptionSpec& on_off(std::string_view key, bool Group::*member, std::string_view help) {
    OptionSpec& spec = add(key, "on|off", help);
    spec.bare = "on";
    spec.allowed = "on or off";
    spec.set = [group = group_, member](Options& options, std::string_view value) {
      options.*group.*member = read_switch(value);
    };
    spec.get = [group = group_, member](const Options& options) {
      return std::optional<std::string>(options.*group.*member ? "on" : "off");
    };
    return spec;
  }

  template <Choice E>
  OptionSpec& choice(std::string_view key, E Group::*member, std::string_view help) {
    constexpr auto kNames = enum_names(E{});
    const std::vector<std::string> words(kNames.begin(), kNames.end());
    OptionSpec& spec = add(key, join(words, "|"), help);
    spec.allowed = words.size() == 1 ? "only " + words[0] : "one of " + join(words);
    spec.set = [group = group_, member, kNames](Options& options, std::string_view value) {
      options.*group.*member = static_cast<E>(read_choice(value, kNames));
    };
    spec.get = [group = group_, member](const Options& options) {
      return std::optional<std::string>(to_string(options.*group.*member));
    };
    return spec;
  }

  template <Choice E>
  OptionSpec& choice(std::string_view key, std::optional<E> Group::*member, std::string_view help) {
    constexpr auto kNames = enum_names(E{});
    const std::vector<std::string> words(kNames.begin(), kNames.end());
    OptionSpec& spec = add(key, join(words, "|"), help);
    spec.allowed = "one of " + join(words);
    spec.set = [group = group_, member, kNames](Options& options, std::string_view value) {
      options.*group.*member = static_cast<E>(read_choice(value, kNames));
    };
    spec.get = [group = group_, member](const Options& options) -> std::optional<std::string> {
      const std::optional<E> value = options.*group.*member;
      return value ? std::optional<std::string>(to_string(*value)) : std::nullopt;
    };
    return spec;
  }

  OptionSpec& three_reals(std::string_view key, std::array<double, 3> Group::*member, std::string_view value_name,
                          const RealRange& range, std::string_view help) {
    OptionSpec& spec = add(key, std::string(value_name), help);
    spec.range = brief_range(range) + " each";
    spec.allowed = "three numbers " + describe_range(range) + ", separated by commas, such as 0.4,0.4,0.4";
    spec.set = [group = group_, member, range](Options& options, std::string_view value) {
      options.*group.*member = read_three_reals(value, range);
    };
    spec.get = [group = group_, member](const Options& options) {
      const std::array<double, 3>& values = options.*group.*member;
      return std::optional(fmt::format("{},{},{}", values[0], values[1], values[2]));
    };
    return spec;
  }

  template <class T>
  requires std::is_same_v<typename Unwrapped<T>::type, ImageSides> OptionSpec& sides(std::string_view key,
                                                                                     T Group::*member, std::int64_t low,
                                                                                     std::int64_t high,
                                                                                     std::string_view help) {
    OptionSpec& spec = add(key, "N|HxW", help);
    spec.range = brief_range(low, high);
    spec.allowed = "one integer " + describe_range(low, high) + ", or two such as 192x256 for height and width";
    spec.set = [group = group_, member, low, high](Options& options, std::string_view value) {
      options.*group.*member = read_sides(value, low, high);
    };
    spec.get = [group = group_, member](const Options& options) -> std::optional<std::string> {
      const std::optional<ImageSides> sides = options.*group.*member;
      if (!sides) return std::nullopt;
      return sides->height == sides->width ? std::to_string(sides->height)
                                           : fmt::format("{}x{}", sides->height, sides->width);
    };
    return spec;
  }

  OptionSpec& bytes(std::string_view key, std::uint64_t Group::*member, std::string_view help) {
    OptionSpec& spec = add(key, "SIZE", help);
    spec.range = "such as 512MiB";
    spec.allowed = "an integer number of bytes, KiB, MiB or GiB, such as 512MiB";
    spec.set = [group = group_, member](Options& options, std::string_view value) {
      options.*group.*member = read_bytes(value);
    };
    spec.get = [group = group_, member](const Options& options) {
      return std::optional(bytes_text(options.*group.*member));
    };
    return spec;
  }

  OptionSpec& ordinals(std::string_view key, std::vector<int> Group::*member, std::string_view help) {
    OptionSpec& spec = add(key, "LIST", help);
    spec.range = "such as 3,2";
    spec.allowed = "a comma-separated list of integers >= 0, such as 3,2";
    spec.set = [group = group_, member](Options& options, std::string_view value) {
      options.*group.*member = read_ordinals(value);
    };
    spec.get = [group = group_, member](const Options& options) {
      const std::vector<int>& values = options.*group.*member;
      return values.empty() ? std::nullopt : std::optional(fmt::format("{}", fmt::join(values, ",")));
    };
    return spec;
  }

  OptionSpec& milestones(std::string_view key, std::vector<std::int64_t> Group::*member, std::string_view help) {
    OptionSpec& spec = add(key, "LIST", help);
    spec.range = "such as 30,60";
    spec.allowed = "a comma-separated list of strictly increasing integers >= 1, such as 30,60";
    spec.set = [group = group_, member](Options& options, std::string_view value) {
      options.*group.*member = read_milestones(value);
    };
    spec.get = [group = group_, member](const Options& options) {
      const std::vector<std::int64_t>& values = options.*group.*member;
      return values.empty() ? std::nullopt : std::optional(fmt::format("{}", fmt::join(values, ",")));
    };
    return spec;
  }

  OptionSpec& pattern_factors(std::string_view key, std::vector<PatternFactor> Group::*member, std::string_view help) {
    OptionSpec& spec = add(key, "PATTERN=X,...", help);
    spec.range = "such as *.bias=2";
    spec.allowed = "patterns of parameter names with a factor >= 0 each, such as *.bias=2,fc.*=0.1";
    spec.set = [group = group_, member](Options& options, std::string_view value) {
      options.*group.*member = read_pattern_factors(value);
    };
    spec.get = [group = group_, member](const Options& options) {
      const std::vector<PatternFactor>& values = options.*group.*member;
      std::string text;
      for (const PatternFactor& each : values) {
        text += fmt::format("{}{}={}", text.empty() ? "" : ",", each.pattern, each.factor);
      }
      return values.empty() ? std::nullopt : std::optional(text);
    };
    return spec;
  }

  OptionSpec& pattern_freezes(std::string_view key, std::vector<PatternEpochs> Group::*member, std::string_view help) {
    OptionSpec& spec = pattern_epochs(key, "PATTERN[@N],...", member, read_pattern_freezes, help);
    spec.range = "such as conv1.*";
    spec.allowed =
        "patterns of parameter names, each with @ and a number of epochs >= 0 or without, such as conv1.*,fc.bias@3";
    return spec;
  }

  OptionSpec& pattern_fades(std::string_view key, std::vector<PatternEpochs> Group::*member, std::string_view help) {
    OptionSpec& spec = pattern_epochs(key, "PATTERN@N,...", member, read_pattern_fades, help);
    spec.range = "such as conv1.bias@3";
    spec.allowed = "patterns of parameter names, each with @ and a number of epochs > 0, such as conv1.bias@3";
    return spec;
  }

  // An option that may be repeated on the command line.
  OptionSpec& texts(std::string_view key, std::vector<std::string> Group::*member, std::string value_name,
                    std::string allowed, std::string_view help) {
    OptionSpec& spec = add(key, std::move(value_name), help);
    spec.allowed = std::move(allowed);
    spec.set = [group = group_, member](Options& options, std::string_view value) {
      (options.*group.*member).push_back(read_text(value));
    };
    spec.get = [](const Options&) { return std::nullopt; };
    return spec;
  }

  // `allowed` completes "expected ..." in error messages.
  OptionSpec& text(std::string_view key, std::string Group::*member, std::string value_name, std::string allowed,
                   std::string_view help) {
    OptionSpec& spec = add(key, std::move(value_name), help);
    spec.allowed = std::move(allowed);
    spec.set = [group = group_, member](Options& options, std::string_view value) {
      options.*group.*member = read_text(value);
    };
    spec.get = [group = group_, member](const Options& options) -> std::optional<std::string> {
      const std::string& value = options.*group.*member;
      return value.empty() ? std::nullopt : std::optional(value);
    };
    return spec;
  }

 private:
  OptionSpec& pattern_epochs(std::string_view key, std::string value_name, std::vector<PatternEpochs> Group::*member,
                             std::vector<PatternEpochs> (*read)(std::string_view), std::string_view help) {
    OptionSpec& spec = add(key, std::move(value_name), help);
    spec.set = [group = group_, member, read](Options& options, std::string_view value) {
      options.*group.*member = read(value);
    };
    spec.get = [group = group_, member](const Options& options) {
      const std::vector<PatternEpochs>& values = options.*group.*member;
      std::string text;
      for (const PatternEpochs& each : values) {
        text += (text.empty() ? "" : ",") + each.pattern;
        if (each.epochs > 0) text += fmt::format("@{}", each.epochs);
      }
      return values.empty() ? std::nullopt : std::optional(text);
    };
    return spec;
  }

  OptionSpec& add(std::string_view key, std::string value_name, std::string_view help) {
    OptionSpec& spec = table_.emplace_back();
    spec.topic = topic_;
    spec.group = choices_;
    spec.key = key;
    spec.value_name = std::move(value_name);
    spec.help = help;
    return spec;
  }

  std::vector<OptionSpec>& table_;
  std::string_view topic_;
  std::string_view choices_;
  Group Options::*group_;
};

}  // namespace ddp
