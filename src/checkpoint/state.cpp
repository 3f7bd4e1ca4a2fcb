#include "checkpoint/state.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/text/utf8.h"

namespace ddp {
namespace {

using Json = nlohmann::ordered_json;

// The keys of state.json beside format_version, in their order; `visit(key, member)` for each.
template <class State, class Visit>
void for_each_key(State& state, Visit visit) {
  visit("model", state.model);
  visit("dataset", state.dataset);
  visit("optimizer", state.optimizer);
  visit("seed", state.seed);
  visit("step", state.step);
  visit("epoch", state.epoch);
  visit("step_in_epoch", state.step_in_epoch);
  visit("global_batch", state.global_batch);
  visit("samples_seen", state.samples_seen);
  visit("logical_shards", state.logical_shards);
  visit("best_accuracy", state.best_accuracy);
  visit("epoch_loss_sum", state.epoch_loss_sum);
  visit("epoch_samples", state.epoch_samples);
  visit("plan", state.plan);
  visit("config", state.config);
}

// The keys that are omitted if empty.
template <class State, class Visit>
void for_each_optional_key(State& state, Visit visit) {
  visit("image", state.image);
  visit("class_count", state.class_count);
  visit("mean", state.mean);
  visit("std", state.deviation);
  visit("model_hash", state.model_hash);
  visit("classes", state.classes);
  visit("plans", state.plans);
  visit("fingerprint", state.fingerprint);
  visit("loss_scale", state.loss_scale);
  visit("loss_scale_since", state.loss_scale_since);
  visit("bucket_bytes", state.bucket_bytes);
  visit("bucket_ranks", state.bucket_ranks);
  visit("pipeline_first", state.pipeline_first);
  visit("defaults", state.defaults);
}

// Calls `change` with every text that a member holds.
template <class Change>
void for_each_text(std::string& member, Change change) {
  change(member);
}
template <class Change>
void for_each_text(std::vector<std::string>& member, Change change) {
  for (std::string& text : member) change(text);
}
template <class Change>
void for_each_text(std::map<std::string, std::string>& member, Change change) {
  for (auto& [key, text] : member) change(text);
}
template <class T, class Change>
void for_each_text(T& /*no text*/, Change /*change*/) {}

bool take(const Json& value, std::string& member) {
  if (!value.is_string()) return false;
  member = value.get<std::string>();
  return true;
}

bool take(const Json& value, double& member) {
  if (!value.is_number()) return false;
  member = value.get<double>();
  return true;
}

bool take(const Json& value, std::vector<std::string>& member) {
  if (!value.is_array()) return false;
  member.clear();
  for (const Json& element : value) {
    if (!element.is_string()) return false;
    member.push_back(element.get<std::string>());
  }
  return true;
}

bool take(const Json& value, std::map<std::string, std::string>& member) {
  if (!value.is_object()) return false;
  member.clear();
  for (const auto& [key, element] : value.items()) {
    if (!element.is_string()) return false;
    member[key] = element.get<std::string>();
  }
  return true;
}

// Counts: integers from 0 to the maximum of their type.
template <std::integral T>
bool take(const Json& value, T& member) {
  if (!value.is_number_unsigned() || !std::in_range<T>(value.get<std::uint64_t>())) return false;
  member = static_cast<T>(value.get<std::uint64_t>());
  return true;
}

template <class T>
bool take(const Json& value, std::vector<T>& member) {
  if (!value.is_array()) return false;
  member.assign(value.size(), T{});
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (!take(value[i], member[i])) return false;
  }
  return true;
}

}  // namespace

std::string to_json(const TrainingState& state) {
  DDP_ASSERT(std::isfinite(state.best_accuracy) && std::isfinite(state.epoch_loss_sum) &&
             std::isfinite(state.loss_scale));
  Json json;
  json["format_version"] = state.format_version;
  std::vector<std::string> escaped_keys;
  const auto put = [&](const char* key, auto member) {
    bool fits = true;
    for_each_text(member, [&](std::string& text) { fits = fits && is_utf8(text); });
    if (!fits) {
      for_each_text(member, [](std::string& text) { text = escape_bytes(text); });
      escaped_keys.emplace_back(key);
    }
    json[key] = std::move(member);
  };
  for_each_key(state, put);
  for_each_optional_key(state, [&](const char* key, const auto& member) {
    if (member != std::decay_t<decltype(member)>{}) put(key, member);
  });
  if (!escaped_keys.empty()) json["escaped"] = escaped_keys;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

TrainingState parse_state(const std::string& text, const std::filesystem::path& path) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  check(json.is_object(), ExitCode::checkpoint,
        "{}: not a JSON object; the checkpoint is damaged, resume from another one", path.string());
  TrainingState state;
  std::vector<std::string> escaped_keys;
  const auto read_key = [&](const char* key, auto& member) {
    const auto found = json.find(key);
    if (found == json.end() && key == std::string_view("optimizer")) return;
    check(found != json.end(), ExitCode::checkpoint,
          "{}: '{}' is missing; the checkpoint is damaged, resume from another one", path.string(), key);
    check(take(*found, member), ExitCode::checkpoint,
          "{}: '{}' has an invalid value: {}; the checkpoint is damaged, resume from another one", path.string(), key,
          found->dump().substr(0, 60));
    if (std::find(escaped_keys.begin(), escaped_keys.end(), key) == escaped_keys.end()) return;
    for_each_text(member, [](std::string& each) { each = unescape_bytes(each); });
  };
  read_key("format_version", state.format_version);
  check(state.format_version == kCheckpointFormatVersion, ExitCode::checkpoint,
        "{}: the checkpoint has format version {}, this program reads version {}; resume with the ddp_train that wrote "
        "it",
        path.string(), state.format_version, kCheckpointFormatVersion);
  if (json.contains("escaped")) read_key("escaped", escaped_keys);
  for_each_key(state, read_key);
  for_each_optional_key(state, [&](const char* key, auto& member) {
    if (json.contains(key)) read_key(key, member);
  });
  check(state.loss_scale >= 0 && std::isfinite(state.loss_scale) && state.loss_scale_since <= state.step,
        ExitCode::checkpoint,
        "{}: a loss scale of {} from step {} on is impossible at step {}; the checkpoint is damaged, resume from "
        "another one",
        path.string(), state.loss_scale, state.loss_scale_since, state.step);
  return state;
}

}  // namespace ddp
