// The commands of the program, one file each, and their table. Every function is collective over the session's ranks, writes
// its result to standard output on rank 0, and returns the exit code of the job.
//
//   const Options options = parse_options({argv + 1, argv + argc}, command_table());
//   const int code = find_command(command_table(), options.command)->run(session, options);
#pragma once

#include <span>
#include <string>

#include "job/mpi_session.h"
#include "options/command.h"
#include "options/options.h"

namespace ddp {

int run_train(const MpiSession& session, const Options& given);
int run_eval(const MpiSession& session, const Options& given);
int run_plan(const MpiSession& session, const Options& options);
int run_bench(const MpiSession& session, const Options& options);
int run_check(const MpiSession& session, const Options& options);
int run_pack(const MpiSession& session, const Options& given);
int run_export(const MpiSession& session, const Options& options);
int run_replay(const MpiSession& session, const Options& options);
int run_sweep(const MpiSession& session, const Options& options);
int run_scaling(const MpiSession& session, const Options& options);
int run_report(const MpiSession& session, const Options& options);
int run_compare(const MpiSession& session, const Options& options);
int run_explain(const MpiSession& session, const Options& options);
int run_devices(const MpiSession& session, const Options& options);

// One row a command; the first is the default.
std::span<const CommandSpec> command_table();

// The text of --version with the libraries of all folders.
std::string full_version_text();

}  // namespace ddp
