#include "sweep/settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "options/table/table.h"
#include "options/table/values.h"

namespace ddp {
namespace {

constexpr std::uint64_t kMaxListBytes = 1 << 20;

struct Range {
  double low = 0;
  double high = 0;
  bool logarithmic = false;
};

struct Axis {
  std::string key;
  std::vector<std::string> values;
  std::optional<Range> range;  // instead of values
};

double number(const std::string& text, const std::string& axis) {
  try {
    return read_real(text, {-1e300, 1e300});
  } catch (const BadValue& bad) {
    throw Error(ExitCode::usage, fmt::format("--sweep {}: '{}' is {}", axis, text, bad.what()));
  }
}

std::optional<Range> range_in(std::string_view values, const std::string& axis) {
  constexpr std::string_view kLog = "log:";
  Range range;
  range.logarithmic = values.starts_with(kLog);
  if (range.logarithmic) values.remove_prefix(kLog.size());
  const std::size_t dots = values.find("..");
  if (dots == std::string_view::npos) {
    check(!range.logarithmic, ExitCode::usage, "--sweep {}: log: requires a range LOW..HIGH", axis);
    return std::nullopt;
  }
  range.low = number(std::string(values.substr(0, dots)), axis);
  range.high = number(std::string(values.substr(dots + 2)), axis);
  check(range.low < range.high, ExitCode::usage, "--sweep {}: {} is not less than {}", axis, range.low, range.high);
  check(!range.logarithmic || range.low > 0, ExitCode::usage, "--sweep {}: log: requires positive bounds", axis);
  return range;
}

Axis axis_in(const std::string& text) {
  const std::size_t equals = text.find('=');
  check(equals != std::string::npos && equals > 0, ExitCode::usage, "--sweep {}: expected KEY=V1,V2,...", text);
  Axis axis;
  axis.key = text.substr(0, equals);
  if (axis.key.starts_with("--")) axis.key.erase(0, 2);
  const std::string values = text.substr(equals + 1);
  axis.range = range_in(values, text);
  if (axis.range) return axis;
  std::istringstream words(values);
  for (std::string value; std::getline(words, value, ',');) {
    check(!value.empty(), ExitCode::usage, "--sweep {}: has an empty value", text);
    axis.values.push_back(value);
  }
  check(!axis.values.empty(), ExitCode::usage, "--sweep {}: has no values", text);
  return axis;
}

std::vector<Axis> axes_in(const SweepOptions& options) {
  std::vector<Axis> axes;
  std::set<std::string> keys;
  for (const std::string& text : options.axes) {
    axes.push_back(axis_in(text));
    check(keys.insert(axes.back().key).second, ExitCode::usage,
          "--sweep {}: {} is given twice; list all of its values together", text, axes.back().key);
    check(!axes.back().range || options.draws > 0, ExitCode::usage,
          "--sweep {}: a range requires --sweep-draws N, the number of settings to draw", text);
  }
  return axes;
}

std::vector<Setting> grid(const std::vector<Axis>& axes, std::int64_t most) {
  double count = 1;
  for (const Axis& axis : axes) count *= static_cast<double>(axis.values.size());
  check(count <= static_cast<double>(most), ExitCode::usage,
        "--sweep has {:.0f} combinations, more than --sweep-max-trials {}; draw from them with --sweep-draws", count,
        most);
  std::vector<Setting> settings(1);
  for (const Axis& axis : axes) {
    std::vector<Setting> longer;
    for (const Setting& setting : settings) {
      for (const std::string& value : axis.values) {
        longer.push_back(setting);
        longer.back().push_back({axis.key, value});
      }
    }
    settings = std::move(longer);
  }
  return settings;
}

std::string draw(const Axis& axis, Random& random) {
  if (!axis.range) return axis.values[random.below(axis.values.size())];
  const Range& range = *axis.range;
  const double at = random.uniform_double();
  const double value =
      range.logarithmic ? range.low * std::pow(range.high / range.low, at) : range.low + at * (range.high - range.low);
  return fmt::format("{:.6g}", value);
}

std::vector<Setting> drawn(const std::vector<Axis>& axes, std::int64_t draws, std::uint64_t seed) {
  constexpr std::uint64_t kStream = 0x5357454550;  // differs from those of training
  std::vector<Setting> settings;
  for (std::int64_t i = 0; i < draws; ++i) {
    Random random(seed, kStream, static_cast<std::uint32_t>(i));
    Setting& setting = settings.emplace_back();
    for (const Axis& axis : axes) setting.push_back({axis.key, draw(axis, random)});
  }
  return settings;
}

std::vector<Setting> listed(const std::string& file) {
  std::istringstream lines(read_text(file, ExitCode::usage, kMaxListBytes));
  std::vector<Setting> settings;
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    Setting setting;
    for (std::string word; words >> word;) {
      const std::size_t equals = word.find('=');
      check(equals != std::string::npos && equals > 0, ExitCode::usage, "{}:{}: '{}' is not of the form KEY=VALUE",
            file, number, word);
      setting.push_back({word.substr(0, equals), word.substr(equals + 1)});
    }
    if (!setting.empty()) settings.push_back(std::move(setting));
  }
  check(!settings.empty(), ExitCode::usage, "--sweep-list {}: contains no settings", file);
  return settings;
}

}  // namespace

std::string text_of(const Setting& setting) {
  std::string text;
  for (const OptionSetting& one : setting) text += fmt::format("{}{}={}", text.empty() ? "" : " ", one.key, one.value);
  return text;
}

std::vector<Setting> expand_sweep(const SweepOptions& options, std::uint64_t seed) {
  check(options.axes.empty() != options.list.empty(), ExitCode::usage, "{}",
        options.list.empty() ? "sweep requires --sweep KEY=V1,V2,... or --sweep-list FILE"
                             : "--sweep and --sweep-list are alternatives; remove one");
  check(options.list.empty() || options.draws == 0, ExitCode::usage,
        "--sweep-draws draws from --sweep, not from --sweep-list; remove one");
  const std::vector<Axis> axes = axes_in(options);
  std::vector<Setting> settings = !options.list.empty() ? listed(options.list)
                                  : options.draws > 0   ? drawn(axes, options.draws, seed)
                                                        : grid(axes, options.max_trials);
  check(settings.size() <= static_cast<std::size_t>(options.max_trials), ExitCode::usage,
        "{} settings are more than --sweep-max-trials {}", settings.size(), options.max_trials);
  std::set<std::string> seen;
  const auto repeated = [&](const Setting& setting) { return !seen.insert(text_of(setting)).second; };
  // Draws from lists may repeat; a repeated line is a mistake.
  if (options.draws > 0) {
    std::erase_if(settings, repeated);
  } else {
    const auto twice = std::find_if(settings.begin(), settings.end(), repeated);
    check(twice == settings.end(), ExitCode::usage, "the setting {} occurs twice; remove one",
          twice == settings.end() ? "" : text_of(*twice));
  }
  return settings;
}

}  // namespace ddp
