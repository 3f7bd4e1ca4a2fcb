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
#include "commands/commands.h"
#include "job/report.h"
#include "metrics/read_log.h"
#include "options/parse.h"
#include "train/fingerprint.h"

namespace ddp {
namespace {

// The options of a run that affect its result.
Fingerprint options_of(const std::filesystem::path& run) {
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
                                      .divided = divides_network(options_a) || divides_network(options_b)};
    const Comparison steps = compare(steps_a, steps_b, compared);
    const Comparison found = compare(steps, read_history(a), read_history(b));
    fmt::print("{}", describe(found, a.string(), b.string()));
    const std::string changed = differences(options_a, options_b);
    if (!changed.empty()) fmt::print("options: {} has {}\n", a.string(), changed);
  });
  return static_cast<int>(ExitCode::done);
}

}  // namespace ddp
