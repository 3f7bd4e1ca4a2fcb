// ddp_train report RUN...: one HTML file that shows one or several runs.
#include "explain/report/report.h"

#include <fmt/core.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/output.h"
#include "checkpoint/reader.h"
#include "commands/commands.h"
#include "job/report.h"

namespace ddp {

namespace {

// Those of its newest checkpoint; empty if there is none.
std::vector<std::string> class_names(const std::filesystem::path& run) {
  try {
    return open_checkpoint(run / "latest").state.classes;
  } catch (const Error&) {
    return {};  // the numbers of the classes are shown
  }
}

std::string page_of(const std::vector<std::string>& folders) {
  if (folders.size() == 1 && is_sweep(folders[0])) {
    ReportedSweep sweep = read_reported_sweep(folders[0]);
    for (ReportedRun& run : sweep.runs) run.classes = class_names(run.folder);
    return report(sweep);
  }
  std::vector<ReportedRun> runs;
  for (const std::string& folder : folders) {
    check(!is_sweep(folder), ExitCode::usage,
          "{} is the folder of a sweep; give it alone, or the folders of its trials", folder);
    runs.push_back(read_reported_run(folder));
    runs.back().classes = class_names(folder);
  }
  return report(runs);
}

}  // namespace

int run_report(const MpiSession& session, const Options& options) {
  together(session, [&] {
    if (session.rank() != 0) return;
    const std::string html = page_of(options.folders);
    const std::filesystem::path to = options.exported.to.empty()
                                         ? std::filesystem::path(options.folders[0]) / "report.html"
                                         : std::filesystem::path(options.exported.to);
    replace_file(to, html, ExitCode::checkpoint);
    print_text("{}\n", to.string());
  });
  return static_cast<int>(ExitCode::done);
}

}  // namespace ddp
