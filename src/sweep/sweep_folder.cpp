#include "sweep/sweep_folder.h"

#include <fmt/core.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "options/parse.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr ExitCode kCode = ExitCode::checkpoint;
constexpr const char* kStateFile = "sweep.json";

// The options that two parts of one sweep must share, as text.
std::string options_text(const Options& base) {
  Options same = base;
  same.output = OutputOptions{};
  same.output.checkpoint_every = base.output.checkpoint_every;
  same.output.eval_every = base.output.eval_every;
  same.distributed.threads = 0;
  same.distributed.timeout = DistributedOptions{}.timeout;
  same.run = RunOptions{};
  return dump_config(same);
}

TrialState state_in(const std::string& name) {
  for (const TrialState state : {TrialState::waiting, TrialState::paused, TrialState::finished, TrialState::failed}) {
    if (name == name_of(state)) return state;
  }
  // It was running when the sweep ended.
  return TrialState::waiting;
}

Json json_of(const TrialResult& r) {
  Json json = {{"trial", r.trial},   {"setting", Json::array()},   {"state", name_of(r.state)},
               {"epochs", r.epochs}, {"best_epoch", r.best_epoch}, {"seconds", r.seconds},
               {"reason", r.reason}};
  for (const OptionSetting& one : r.setting) json["setting"].push_back({one.key, one.value});
  if (r.accuracy) json["val_accuracy"] = *r.accuracy;
  if (r.val_loss) json["val_loss"] = *r.val_loss;
  return json;
}

TrialResult result_in(const Json& json) {
  TrialResult r;
  r.trial = json.at("trial").get<int>();
  for (const Json& one : json.at("setting"))
    r.setting.push_back({one.at(0).get<std::string>(), one.at(1).get<std::string>()});
  r.state = state_in(json.at("state").get<std::string>());
  r.epochs = json.at("epochs").get<std::int64_t>();
  r.best_epoch = json.at("best_epoch").get<std::int64_t>();
  r.seconds = json.at("seconds").get<double>();
  r.reason = json.at("reason").get<std::string>();
  if (json.contains("val_accuracy")) r.accuracy = json["val_accuracy"].get<double>();
  if (json.contains("val_loss")) r.val_loss = json["val_loss"].get<double>();
  return r;
}

std::string name_of_trial(int trial) { return fmt::format("trial-{:04}", trial); }

}  // namespace

SweepFolder::SweepFolder(fs::path path, const Options& base, const std::vector<Setting>& settings)
    : paths_{std::move(path)}, base_(base) {
  for (std::size_t i = 0; i < settings.size(); ++i) {
    results_.push_back({.trial = static_cast<int>(i) + 1, .setting = settings[i]});
  }
  const fs::path file = paths_.folder / kStateFile;
  std::error_code error;
  if (!fs::exists(file, error)) return;
  check(base.output.resume == "auto", ExitCode::usage,
        "{} holds a sweep already; continue it with --resume auto, or choose another --output", paths_.folder.string());
  std::vector<TrialResult> earlier;
  std::string options;
  try {
    const Json json = Json::parse(read_text(file, kCode));
    options = json.at("options").get<std::string>();
    for (const Json& one : json.at("trials")) earlier.push_back(result_in(one));
  } catch (const nlohmann::json::exception&) {
    throw Error(kCode, fmt::format("{}: is damaged; move it away, or choose another --output", file.string()));
  }
  bool same = options == options_text(base) && earlier.size() == results_.size();
  for (std::size_t i = 0; same && i < earlier.size(); ++i) {
    same = text_of(earlier[i].setting) == text_of(results_[i].setting) && earlier[i].trial == results_[i].trial;
  }
  check(same, ExitCode::usage,
        "{}: the sweep there has other settings or options; repeat its command, or choose another --output",
        file.string());
  results_ = std::move(earlier);
  resumed_ = true;
}

void SweepFolder::open() {
  make_folders(paths_.folder / "configs", kCode);
  remove_temporaries(paths_.folder, kCode);
  remove_temporaries(paths_.folder / "configs", kCode);
  for (const TrialResult& result : results_) {
    make_folders(paths_.run(result.trial), kCode);
    Options options = with_settings(base_, result.setting);
    options.command = "train";
    options.output.output = literal_output(paths_.run(result.trial));
    options.output.resume = "auto";
    options.output.progress = ProgressStyle::none;
    replace_file(paths_.config(result.trial), dump_config(options), kCode);
  }
  save(results_);
}

void SweepFolder::save(const std::vector<TrialResult>& results) {
  Json json = {{"options", options_text(base_)}, {"trials", Json::array()}};
  for (const TrialResult& result : results) json["trials"].push_back(json_of(result));
  replace_file(paths_.folder / kStateFile, json.dump(1) + "\n", kCode);
  replace_file(paths_.folder / "leaderboard.csv", board_csv(ranked(results)), kCode);
}

fs::path SweepPaths::config(int trial) const { return folder / "configs" / (name_of_trial(trial) + ".cfg"); }
fs::path SweepPaths::log(int trial) const { return folder / (name_of_trial(trial) + ".log"); }
fs::path SweepPaths::run(int trial) const { return folder / name_of_trial(trial); }

std::string last_error(const fs::path& log) {
  constexpr std::string_view kMark = "error: ";
  std::error_code error;
  if (!fs::exists(log, error)) return "";
  std::istringstream lines(read_text(log, kCode));
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find(kMark);
    if (at != std::string::npos) found = line.substr(at + kMark.size());
  }
  return found;
}

}  // namespace ddp
