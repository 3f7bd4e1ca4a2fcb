// ddp_train compare A B: the first step at which two runs differ, and in what.
#include "explain/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/output.h"
#include "checkpoint/layout.h"
#include "checkpoint/state.h"
#include "commands/commands.h"
#include "job/report.h"
#include "metrics/logs/read_log.h"
#include "metrics/timing.h"
#include "options/parse.h"
#include "options/table/effects.h"
#include "train/inputs/fingerprint.h"

namespace ddp {
namespace {

// All options of a run.
Fingerprint options_of(const std::filesystem::path& run) {
  return options_fingerprint(read_text(run / "config.cfg", ExitCode::checkpoint, std::uint64_t{1} << 20U), true);
}

const FingerprintPart* named_part(const Fingerprint& parts, const std::string& name) {
  const auto found =
      std::find_if(parts.begin(), parts.end(), [&](const FingerprintPart& part) { return part.name == name; });
  return found == parts.end() ? nullptr : &*found;
}

// What a run was given besides its options, as far as its folder says it.
std::vector<ChangedInput> recorded_inputs(const std::filesystem::path& run) {
  using enum Effect;
  std::vector<ChangedInput> inputs;
  try {
    const RunTiming timing = read_timing(run);
    inputs.push_back({"ranks", std::to_string(timing.facts.samples.size()), "", gradient | rounding});
    inputs.push_back({"logical shards", std::to_string(timing.facts.shards), "", kShardEffects, true});
  } catch (const Error&) {
    // A run of an older version, or one that has only begun.
  }
  try {
    const std::filesystem::path file = run / "latest" / kStateFile;
    const TrainingState state = parse_state(read_text(file, ExitCode::checkpoint), file);
    inputs.push_back(
        {"revisions of the defaults", std::to_string(state.defaults), "", kDataEffects | kShardEffects | update, true});
    for (const auto& [name, value] : state.fingerprint) {
      OptionEffects effects = nothing;
      if (name.starts_with("training ")) effects = kDataEffects;
      if (name.starts_with("test ")) effects = evaluation;
      if (name == "normalisation") effects = loss | gradient | evaluation;
      if (name == "network") effects = loss | gradient | weights;
      if (name == "kernels" || name == "plan") effects = gradient | rounding;
      if (name == "version") effects = loss | gradient | rounding | update;
      const bool derived = !name.starts_with("training ") && !name.starts_with("test ");
      inputs.push_back({name, value, "", effects, derived});
    }
  } catch (const Error&) {
    // No checkpoint yet.
  }
  return inputs;
}

// Whether people can read a value: not a hash.
bool is_readable(const std::string& value) { return value.size() < 24; }

// Those that both runs have with different values.
std::vector<ChangedInput> changed_inputs(const Fingerprint& a, const Fingerprint& b, const std::filesystem::path& run_a,
                                         const std::filesystem::path& run_b) {
  std::vector<ChangedInput> changed;
  for (const FingerprintPart& mine : a) {
    const FingerprintPart* other = named_part(b, mine.name);
    if (other == nullptr || other->value == mine.value) continue;
    const OptionEffects effects = effects_of(mine.name.substr(2)).value_or(Effect::nothing);
    changed.push_back({mine.name, mine.value, other->value, effects});
  }
  const std::vector<ChangedInput> others = recorded_inputs(run_b);
  for (ChangedInput input : recorded_inputs(run_a)) {
    const auto same =
        std::find_if(others.begin(), others.end(), [&](const ChangedInput& o) { return o.name == input.name; });
    if (same == others.end() || same->a == input.a) continue;
    const bool readable = is_readable(input.a) && is_readable(same->a);
    input.b = readable ? same->a : "";
    if (!readable) input.a = "";
    changed.push_back(input);
  }
  return changed;
}

// The options that affect results, and all others that differ only as far as they are causes.
Fingerprint without_places(const std::filesystem::path& run) {
  return options_fingerprint(read_text(run / "config.cfg", ExitCode::checkpoint, std::uint64_t{1} << 20U));
}

// Whether a run has the option with another value than this one, which is its default; one of an older version may lack it.
bool has_changed(const Fingerprint& options, std::string_view name, std::string_view value) {
  return std::any_of(options.begin(), options.end(),
                     [&](const FingerprintPart& part) { return part.name == name && part.value != value; });
}

bool divides_network(const Fingerprint& options) {
  return has_changed(options, "--pipeline", "1") || has_changed(options, "--split-linear", "none");
}

}  // namespace

int run_compare(const MpiSession& session, const Options& options) {
  together(session, [&] {
    if (session.rank() != 0) return;
    const std::filesystem::path a = options.folders[0];
    const std::filesystem::path b = options.folders[1];
    // First, since their absence is what tells that a folder is not that of a run.
    const auto steps_a = read_steps(a);
    const auto steps_b = read_steps(b);
    const Fingerprint options_a = options_of(a);
    const Fingerprint options_b = options_of(b);
    const ComparedOptions compared = {.deterministic = has_changed(options_a, "--deterministic", "off") &&
                                                       has_changed(options_b, "--deterministic", "off"),
                                      .divided = divides_network(options_a) || divides_network(options_b),
                                      .changed = changed_inputs(options_a, options_b, a, b)};
    const Comparison steps = compare(steps_a, steps_b, compared);
    const Comparison found = compare(steps, read_history(a), read_history(b));
    print_text("{}", describe(found, a.string(), b.string()));
    const std::string changed = differences(without_places(a), without_places(b), options_a.size());
    if (!changed.empty()) print_text("options: {} has {}\n", a.string(), changed);
  });
  return static_cast<int>(ExitCode::done);
}

}  // namespace ddp
