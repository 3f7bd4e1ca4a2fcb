// ddp_train: parse, open the session, run the command. Errors of any rank become one line and the job's exit code in
// job/report.h.
#include <fmt/core.h>
#include <unistd.h>

#include <span>

#include "base/error.h"
#include "base/log.h"
#include "base/output.h"
#include "base/status/heartbeat.h"
#include "commands/commands.h"
#include "job/launch/spin_limit.h"
#include "job/report.h"
#include "metrics/display/terminal.h"
#include "options/parse.h"

namespace {

int run_command(const ddp::MpiSession& session, const ddp::Options& options) {
  const auto print = [&](const std::string& text) {
    if (session.rank() == 0) ddp::print_text("{}", text);
    return 0;
  };
  if (options.help) return print(ddp::help_text(options.help_topic, ddp::command_table()));
  if (options.version) return print(ddp::full_version_text());
  if (options.dump_config) return print(ddp::dump_config(options));
  return ddp::find_command(ddp::command_table(), options.command)->run(session, options);
}

// --timeout and --hang-timeout apply from MPI_Init on, before the ranks can agree on whether the options are valid.
void take_timeouts(std::span<const char* const> arguments) {
  try {
    const ddp::DistributedOptions options = ddp::parse_options(arguments, ddp::command_table()).distributed;
    ddp::set_rank_timeout(options.timeout);
    ddp::set_hang_timeout(options.hang_timeout);
  } catch (const ddp::Error&) {
    // The ranks report the error together.
  }
}

}  // namespace

int main(int argc, char** argv) {
  ddp::limit_openmp_spinning(argv);
  ddp::log_set_colours(ddp::Terminal(STDERR_FILENO).coloured());
  const std::span<const char* const> arguments(argv + 1, static_cast<std::size_t>(argc - 1));
  const auto body = [&](const ddp::MpiSession& session) {
    const ddp::Options options =
        ddp::together(session, [&] { return ddp::parse_options(arguments, ddp::command_table()); });
    ddp::log_set_level(options.run.log_level);
    return run_command(session, options);
  };
  return ddp::run_program(body, [&] { take_timeouts(arguments); });
}
