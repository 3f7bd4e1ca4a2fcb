// ddp_train report RUN...: one HTML file that shows one or several runs.
#include "explain/report.h"

#include <fmt/core.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "commands/commands.h"
#include "job/report.h"

namespace ddp {

int run_report(const MpiSession& session, const Options& options) {
  together(session, [&] {
    if (session.rank() != 0) return;
    std::vector<ReportedRun> runs;
    for (const std::string& folder : options.folders) runs.push_back(read_reported_run(folder));
    const std::filesystem::path to = options.exported.to.empty()
                                         ? std::filesystem::path(options.folders[0]) / "report.html"
                                         : std::filesystem::path(options.exported.to);
    replace_file(to, report(runs), ExitCode::checkpoint);
    fmt::print("{}\n", to.string());
  });
  return static_cast<int>(ExitCode::done);
}

}  // namespace ddp
