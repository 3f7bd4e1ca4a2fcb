// ddp_train compare A B: the first step at which two runs differ, and in what.
#include "explain/compare.h"

#include <fmt/core.h>

#include <filesystem>
#include <string>
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

// The options that affect the result and differ; "" if the configurations cannot be read.
std::string option_differences(const std::filesystem::path& a, const std::filesystem::path& b) {
  const auto text = [](const std::filesystem::path& run) {
    return read_text(run / "config.cfg", ExitCode::checkpoint, std::uint64_t{1} << 20U);
  };
  return differences(options_fingerprint(text(a)), options_fingerprint(text(b)));
}

}  // namespace

int run_compare(const MpiSession& session, const Options& options) {
  together(session, [&] {
    if (session.rank() != 0) return;
    const std::filesystem::path a = options.folders[0];
    const std::filesystem::path b = options.folders[1];
    const Comparison steps = compare(read_steps(a), read_steps(b));
    const Comparison found = compare(steps, read_history(a), read_history(b));
    fmt::print("{}", describe(found, a.string(), b.string()));
    const std::string changed = option_differences(a, b);
    if (!changed.empty()) fmt::print("options: {} has {}\n", a.string(), changed);
  });
  return static_cast<int>(ExitCode::done);
}

}  // namespace ddp
