#include "sweep/leaderboard.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/text/csv.h"
#include "base/text/text.h"
#include "base/text/text_table.h"

namespace ddp {
namespace {

std::string value_of(const Setting& setting, const std::string& key) {
  const auto found =
      std::find_if(setting.begin(), setting.end(), [&](const OptionSetting& one) { return one.key == key; });
  return found == setting.end() ? "" : found->value;
}

// The whole reason is in the file and in the trial's output.
std::string brief(const std::string& reason) {
  constexpr std::size_t kLongest = 70;
  const std::string clause = reason.substr(0, reason.find(';'));
  return clause.size() <= kLongest ? clause : clause.substr(0, kLongest - 3) + "...";
}

// The options of all settings in the order of their first occurrence.
std::vector<std::string> keys_of(std::span<const TrialResult> results) {
  std::vector<std::string> keys;
  for (const TrialResult& result : results) {
    for (const OptionSetting& one : result.setting) {
      if (std::find(keys.begin(), keys.end(), one.key) == keys.end()) keys.push_back(one.key);
    }
  }
  return keys;
}

}  // namespace

std::vector<TrialResult> ranked(std::span<const TrialResult> results) {
  std::vector<TrialResult> sorted(results.begin(), results.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const TrialResult& a, const TrialResult& b) {
    if (a.accuracy.has_value() != b.accuracy.has_value()) return a.accuracy.has_value();
    if (a.accuracy && *a.accuracy != *b.accuracy) return *a.accuracy > *b.accuracy;
    return a.trial < b.trial;
  });
  return sorted;
}

std::string board_text(std::span<const TrialResult> results, std::size_t rows) {
  std::vector<std::vector<std::string>> table = {
      {"place", "trial", "state", "epochs", "val accuracy", "val loss", "time", "setting"}};
  const std::size_t shown = std::min(rows, results.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const TrialResult& r = results[i];
    table.push_back({std::to_string(i + 1), std::to_string(r.trial), std::string(name_of(r.state)),
                     std::to_string(r.epochs), r.accuracy ? fmt::format("{:.4f}", *r.accuracy) : kUnknownCell,
                     r.val_loss ? fmt::format("{:.4f}", *r.val_loss) : kUnknownCell, fmt::format("{:.1f} s", r.seconds),
                     text_of(r.setting) + (r.reason.empty() ? "" : "; " + brief(r.reason))});
  }
  std::string text = text_table(table, std::vector{Align::right, Align::right, Align::left, Align::right, Align::right,
                                                   Align::right, Align::right, Align::left});
  if (shown < results.size()) text += fmt::format("and {} more in leaderboard.csv\n", results.size() - shown);
  return text;
}

std::string folds_text(std::span<const TrialResult> results) {
  struct Group {
    Setting setting;
    std::vector<double> accuracies;
  };
  std::vector<Group> groups;
  for (const TrialResult& result : results) {
    Setting others = result.setting;
    const auto is_fold = [](const OptionSetting& one) { return one.key == "fold"; };
    if (std::erase_if(others, is_fold) == 0 || !result.accuracy) continue;
    const auto same = [&](const Group& group) { return text_of(group.setting) == text_of(others); };
    auto found = std::find_if(groups.begin(), groups.end(), same);
    if (found == groups.end()) found = groups.insert(groups.end(), {std::move(others), {}});
    found->accuracies.push_back(*result.accuracy);
  }
  std::string text;
  for (const Group& group : groups) {
    const auto count = static_cast<double>(group.accuracies.size());
    const double mean = std::accumulate(group.accuracies.begin(), group.accuracies.end(), 0.0) / count;
    double squares = 0;
    for (const double accuracy : group.accuracies) squares += (accuracy - mean) * (accuracy - mean);
    const std::string deviation =
        count < 2 ? "" : fmt::format(", standard deviation {:.4f}", std::sqrt(squares / (count - 1)));
    text += fmt::format("{}: mean accuracy {:.4f}{}{}\n", counted(group.accuracies.size(), "fold"), mean, deviation,
                        group.setting.empty() ? "" : "; " + text_of(group.setting));
  }
  return text;
}

std::string board_csv(std::span<const TrialResult> results) {
  const std::vector<std::string> keys = keys_of(results);
  std::string text = "place,trial,state,epochs,val_accuracy,best_epoch,val_loss,seconds";
  for (const std::string& key : keys) text += "," + csv_cell(key);
  text += ",reason\n";
  for (std::size_t i = 0; i < results.size(); ++i) {
    const TrialResult& r = results[i];
    text +=
        fmt::format("{},{},{},{},{},{},{},{:.3f}", i + 1, r.trial, name_of(r.state), r.epochs,
                    r.accuracy ? fmt::format("{}", *r.accuracy) : "", r.accuracy ? std::to_string(r.best_epoch) : "",
                    r.val_loss ? fmt::format("{}", *r.val_loss) : "", r.seconds);
    for (const std::string& key : keys) text += "," + csv_cell(value_of(r.setting, key));
    text += "," + csv_cell(r.reason) + "\n";
  }
  return text;
}

}  // namespace ddp
