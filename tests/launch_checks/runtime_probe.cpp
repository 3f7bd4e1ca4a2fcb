// Starts like the real program, prints what it detects, and ends as requested:
//
//   runtime_probe RANKS                      fails unless there are RANKS ranks; prints topology and binding
//   runtime_probe RANKS setup HOW RANK       fails during setup: on RANK, or on all ranks if it is -1
//   runtime_probe RANKS run HOW RANK         fails while the other ranks wait for it
//   runtime_probe RANKS signals              waits for a signal to stop
// HOW: error, memory, logic, number (not a std::exception), own (a different message on each rank), hang, kill.
// Options follow: --bind none, --threads N.
#include <omp.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "job/mpi_session.h"
#include "job/report.h"
#include "job/signals.h"
#include "machine/binding.h"
#include "machine/topology.h"
#include "options/parse.h"

namespace ddp {
namespace {

struct Plan {
  int ranks = 1;
  std::string where;
  std::string how;
  int rank = 0;
  Options options;
};

void hang() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

// Its destructor would wait for ranks that no longer answer.
struct NeverEnds {
  NeverEnds() = default;
  NeverEnds(const NeverEnds&) = delete;
  NeverEnds& operator=(const NeverEnds&) = delete;
  ~NeverEnds() { hang(); }
};

void fail(const std::string& how, int rank) {
  if (how == "error") throw Error(ExitCode::data, "the probe was told to fail;\nso it does");
  if (how == "own")
    throw Error(ExitCode::checkpoint, "the probe fails on rank " + std::to_string(rank) + " in its way");
  if (how == "memory") throw std::bad_alloc();
  if (how == "logic") throw std::logic_error("the probe's own mistake");
  if (how == "number") throw 42;
  if (how == "hang") hang();
  if (how == "kill") kill(getpid(), SIGKILL);
  throw Error(ExitCode::usage, "unknown way to fail: " + how);
}

Plan read_plan(const std::vector<const char*>& args) {
  Plan plan;
  std::size_t next = 0;
  const auto word = [&]() -> std::string {
    check(next < args.size(), ExitCode::usage, "an argument is missing");
    return args[next++];
  };
  plan.ranks = std::stoi(word());
  if (next < args.size() && args[next][0] != '-') {
    plan.where = word();
    if (plan.where != "signals") {
      plan.how = word();
      plan.rank = std::stoi(word());
    }
  }
  plan.options = parse_options(std::span(args).subspan(next));
  return plan;
}

int wait_for_signals() {
  Signals& signals = *Signals::current();
  signals.set_stop_mode(StopMode::by_step);
  std::printf("ready\n");
  std::fflush(stdout);
  int checkpoints = 0;
  while (!signals.stop_requested()) {
    if (signals.take_checkpoint_request()) std::printf("checkpoint %d\n", ++checkpoints);
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::printf("stopped by %s\n", std::string(signals.stop_reason()).c_str());
  std::fflush(stdout);
  // Time for the second INT.
  std::this_thread::sleep_for(std::chrono::seconds(2));
  return static_cast<int>(ExitCode::stopped);
}

int body(MpiSession& session, const std::vector<const char*>& args) {
  const Plan plan = together(session, [&] { return read_plan(args); });
  together(session, [&] {
    check(session.size() == plan.ranks, ExitCode::preflight, "{} ranks wanted, {} there", plan.ranks, session.size());
  });
  const Topology topology = discover_topology(session);
  const Binding binding = bind_ranks(session, topology, plan.options.distributed);
  const bool mine = plan.rank == -1 || plan.rank == session.rank();
  const double timeout = plan.how == "hang" ? 1 : 60;
  if (plan.where == "setup") {
    together(
        session,
        [&] {
          if (mine) fail(plan.how, session.rank());
        },
        timeout);
  }
  if (plan.where == "run") {
    const NeverEnds outer;
    or_abort(session, [&] {
      if (mine) fail(plan.how, session.rank());
      agree(session, nullptr, timeout);
    });
  }
  if (plan.where == "signals") return wait_for_signals();

  int omp_threads = 0;
#pragma omp parallel reduction(+ : omp_threads)
  omp_threads += 1;
  // One write per rank, so that lines of different ranks do not mix.
  std::printf("rank %d of %d, local %d of %d, hosts %d, threads %d, omp %d, cpus %s\n", topology.rank, topology.size,
              topology.local_rank, topology.local_size, topology.hosts, binding.threads, omp_threads,
              format_cpus(affinity()).c_str());
  std::fflush(stdout);
  log_info("{}", binding.sentence);
  return 0;
}

}  // namespace
}  // namespace ddp

int main(int argc, char** argv) {
  const std::vector<const char*> args(argv + 1, argv + argc);
  return ddp::run_program([&](ddp::MpiSession& session) { return ddp::body(session, args); });
}
