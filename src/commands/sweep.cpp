// ddp_train sweep: trains many settings, each as a process of its own on its own ranks, so that one that diverges, runs out of
// memory or is killed disturbs no other.
//
// Note [Rounds of a sweep]
// Five times a second all ranks exchange what has happened: the leader of each group of --ranks-per-trial ranks reports the
// evaluations and the end of its trial, and rank 0, which alone knows all trials, answers which group starts which one, and
// which trials are to be paused. A trial is paused and stopped by SIGUSR1, after which its run folder has a checkpoint, and
// continues with --resume auto. The ranks themselves only wait; they leave the cores and GPUs to the trials.
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/output.h"
#include "base/status/heartbeat.h"
#include "base/text/text.h"
#include "commands/commands.h"
#include "commands/sweep_group.h"
#include "job/exchange.h"
#include "job/report.h"
#include "job/signals.h"
#include "machine/topology.h"
#include "metrics/display/progress_text.h"
#include "metrics/display/terminal.h"
#include "metrics/logs/read_log.h"
#include "options/batch.h"
#include "run_folder/run_lock.h"
#include "sweep/child_process.h"
#include "sweep/leaderboard.h"
#include "sweep/scheduler.h"
#include "sweep/settings.h"
#include "sweep/sweep_folder.h"

namespace ddp {
namespace {

using Json = nlohmann::json;

constexpr double kRound = 0.2;          // seconds
constexpr double kGrace = 60;           // seconds that a trial may take to save and stop
constexpr std::size_t kBoardRows = 20;  // in the terminal

// A trial's epochs that were evaluated, in order, as far as its run has written them.
class TrialEpochs {
 public:
  explicit TrialEpochs(std::filesystem::path run) : run_(std::move(run)) {}

  // Reads the file if it has changed. Returns whether the epochs may be others than before.
  bool refresh() {
    const std::filesystem::path file = run_ / "summary.csv";
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(file, error);
    if (error) return false;
    const std::filesystem::file_time_type written = std::filesystem::last_write_time(file, error);
    if (error || (size == size_ && written == written_)) return false;
    const bool had = !epochs_.empty();
    try {
      epochs_ = read_summary(run_);
    } catch (const Error&) {
      // A run that begins anew moves the file of an earlier one away.
      if (std::filesystem::exists(file, error)) throw;
      return false;
    }
    std::erase_if(epochs_, [](const EpochRecord& e) { return !e.val_loss || !e.val_accuracy; });
    size_ = size;
    written_ = written;
    return had || !epochs_.empty();
  }
  const std::vector<EpochRecord>& epochs() const& { return epochs_; }
  // A loop over the epochs of a temporary object would read freed memory.
  const std::vector<EpochRecord>& epochs() && = delete;

 private:
  std::filesystem::path run_;
  std::uintmax_t size_ = 0;
  std::filesystem::file_time_type written_;
  std::vector<EpochRecord> epochs_;
};

// The trial of this group.
class Runner {
 public:
  Runner(const Options& options, const Group& group, SweepPaths paths)
      : options_(options), group_(group), paths_(std::move(paths)) {
    if (!group.leader || options.sweep.ranks_per_trial == 1) return;
    std::string name = (std::filesystem::temp_directory_path() / "ddp_train-sweep-XXXXXX").string();
    check(::mkdtemp(name.data()) != nullptr, ExitCode::checkpoint,
          "cannot create {}: {}; set TMPDIR to a folder that can be written", name, errno_text(errno));
    scratch_ = name;
  }
  ~Runner() {
    child_.reset();
    std::error_code ignored;
    if (!scratch_.empty()) std::filesystem::remove_all(scratch_, ignored);
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  bool busy() const { return child_ != nullptr; }

  void start(int trial) {
    trial_ = trial;
    epochs_ = TrialEpochs(paths_.run(trial));
    begun_ = now();
    stop_at_ = -1;
    child_ = std::make_unique<ChildProcess>(ChildProcess::Start{
        .arguments = arguments(), .environment = environment(), .output = paths_.log(trial), .cpus = group_.cpus});
  }

  void pause(int trial) {
    if (trial == trial_) stop();
  }
  // The trial is to save and stop.
  void stop() {
    if (!child_ || stop_at_ >= 0) return;
    stop_at_ = now();
    signalled_ = stop_at_;
    child_->signal(SIGUSR1);
  }

  // What has happened since the last call: {"epochs": [[epoch, loss, accuracy], ...], "end": {...}}. If there are other epochs,
  // all of them: those that an earlier process of the trial has written may not have been counted yet, and a trial that
  // continues from an earlier checkpoint repeats some.
  Json news() {
    Json news = {{"trial", trial_}};
    if (!child_) return news;
    const std::optional<ChildProcess::End> end = child_->ended();
    if (epochs_.refresh()) {
      Json& epochs = news["epochs"] = Json::array();
      for (const EpochRecord& e : epochs_.epochs()) {
        epochs.push_back({e.epoch, number(*e.val_loss), number(*e.val_accuracy)});
      }
    }
    if (end) {
      // A request to stop ends a process that does not handle signals yet, or no more.
      const bool early = stop_at_ >= 0 && end->signal == SIGUSR1;
      const int code = early ? static_cast<int>(ExitCode::stopped) : end->code;
      const bool stopped = code == static_cast<int>(ExitCode::stopped);
      const std::string reason = code == 0 || stopped ? "" : last_error(paths_.log(trial_));
      news["end"] = {{"code", code}, {"signal", end->signal}, {"reason", reason}, {"seconds", now() - begun_}};
      child_.reset();
    } else if (stop_at_ >= 0) {
      insist();
    }
    return news;
  }

 private:
  static Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

  std::vector<std::string> arguments() const {
    std::vector<std::string> words;
    if (options_.sweep.ranks_per_trial > 1) {
      words = {"/usr/bin/env", "mpirun", "--bind-to", "none", "-np", std::to_string(options_.sweep.ranks_per_trial)};
    }
    words.insert(words.end(), {program_path().string(), "train", "--config", paths_.config(trial_).string()});
    if (!group_.gpus.empty()) {
      std::string list;
      for (const int gpu : group_.gpus) list += (list.empty() ? "" : ",") + std::to_string(gpu);
      words.insert(words.end(), {"--gpus", list});
    }
    return words;
  }

  std::vector<std::pair<std::string, std::string>> environment() const {
    if (options_.sweep.ranks_per_trial == 1) return {};
    // MPI's files of this trial, which another job of this user must not remove; more ranks than cores are the user's choice.
    std::vector<std::pair<std::string, std::string>> result = {{"OMPI_MCA_orte_tmpdir_base", scratch_.string()},
                                                               {"OMPI_MCA_rmaps_base_oversubscribe", "1"}};
    if (::geteuid() == 0) {
      result.insert(result.end(), {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
    }
    return result;
  }

  // A signal before the process handles it ends it, which is well; mpirun may lose one.
  void insist() {
    if (now() - stop_at_ > kGrace) {
      child_->signal(SIGKILL);
    } else if (now() - signalled_ > 1) {
      signalled_ = now();
      child_->signal(SIGUSR1);
    }
  }

  const Options& options_;
  const Group& group_;
  const SweepPaths paths_;
  std::filesystem::path scratch_;  // of mpirun
  std::unique_ptr<ChildProcess> child_;
  int trial_ = 0;
  TrialEpochs epochs_{{}};
  double begun_ = 0;
  double stop_at_ = -1;  // when it was told to stop
  double signalled_ = 0;
};

// The epochs that a complete trial reports. A part of an epoch at the end is not one of them.
std::int64_t whole_epochs(const Options& options) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(options.optimizer.epochs));
}

// All trials; on rank 0.
class Leader {
 public:
  Leader(const Options& options, SweepFolder& folder)
      : folder_(folder),
        results_(folder.results()),
        scheduler_(static_cast<int>(results_.size()),
                   {options.sweep.halving, options.sweep.halving_epochs, whole_epochs(options)}),
        epochs_(whole_epochs(options)),
        redraws_(options.output.progress != ProgressStyle::lines && options.output.progress != ProgressStyle::none &&
                 terminal_.interactive()),
        quiet_(options.output.progress == ProgressStyle::none) {
    for (TrialResult& result : results_) {
      // Some of these may not have been reported when the sweep was killed.
      TrialEpochs trial(folder.paths().run(result.trial));
      if (trial.refresh()) (void)evaluated(result, trial.epochs(), 0);
      scheduler_.restore(result.trial - 1, result.state);
    }
  }

  // From the news of all ranks to orders: {"start": {rank: trial}, "pause": [trial, ...], "stop": .., "done": ..}.
  Json round(const std::vector<Json>& news, const std::vector<int>& leaders, bool stop) {
    Json orders = {{"start", Json::object()}, {"pause", Json::array()}};
    bool changed = false;
    for (const Json& one : news) changed |= take(one, orders);
    bool busy = false;
    for (const int rank : leaders) {
      const bool running = news[static_cast<std::size_t>(rank)].contains("busy");
      busy |= running;
      if (running || stop) continue;
      const std::optional<int> trial = scheduler_.start();
      if (!trial) continue;
      orders["start"][std::to_string(rank)] = *trial + 1;
      result(*trial + 1).state = TrialState::running;
      busy = changed = true;
    }
    if (changed) {
      folder_.save(results_);
      draw();
    }
    orders["stop"] = stop;
    orders["done"] = !busy && (stop || scheduler_.done());
    return orders;
  }

  // The exit code of the command.
  ExitCode finish(bool stopped) {
    clear();
    if (!quiet_) print_text("{}", board_text(ranked(results_), kBoardRows) + folds_text(results_));
    std::size_t failed = 0;
    for (const TrialResult& r : results_) {
      if (r.state != TrialState::failed) continue;
      ++failed;
      log_warning("trial {} ({}) failed: {}", r.trial, text_of(r.setting), r.reason);
    }
    if (stopped) {
      log_info("stopped; continue with --resume auto");
      return ExitCode::stopped;
    }
    return failed == results_.size() ? first_failure_ : ExitCode::done;
  }

 private:
  TrialResult& result(int trial) { return results_[static_cast<std::size_t>(trial) - 1]; }

  // All evaluations of a trial so far, of which the scheduler knows those of the first `known` epochs. A loss or accuracy that
  // is not finite is left out. Returns false if the trial is to be paused.
  bool evaluated(TrialResult& r, const std::vector<EpochRecord>& epochs, std::int64_t known) {
    r.epochs = r.best_epoch = 0;
    r.accuracy = r.val_loss = std::nullopt;
    bool goes_on = true;
    for (const EpochRecord& e : epochs) {
      r.epochs = e.epoch;
      if (!std::isfinite(*e.val_accuracy)) continue;
      if (!r.accuracy || *e.val_accuracy > *r.accuracy) {
        r.accuracy = e.val_accuracy;
        r.best_epoch = e.epoch;
        r.val_loss = std::isfinite(*e.val_loss) ? e.val_loss : std::nullopt;
      }
      if (e.epoch > known) goes_on &= scheduler_.evaluated(r.trial - 1, e.epoch, *e.val_accuracy);
    }
    return goes_on;
  }

  // The news of one rank. Returns whether the board has changed.
  bool take(const Json& news, Json& orders) {
    if (!news.contains("epochs") && !news.contains("end")) return false;
    TrialResult& r = result(news["trial"].get<int>());
    if (news.contains("epochs")) {
      std::vector<EpochRecord> epochs;
      for (const Json& e : news["epochs"]) {
        EpochRecord record;
        record.epoch = e[0].get<std::int64_t>();
        record.val_loss = e[1].is_null() ? std::nan("") : e[1].get<double>();
        record.val_accuracy = e[2].is_null() ? std::nan("") : e[2].get<double>();
        epochs.push_back(record);
      }
      if (!evaluated(r, epochs, r.epochs)) orders["pause"].push_back(r.trial);
    }
    if (news.contains("end")) end(r, news["end"]);
    return true;
  }

  void end(TrialResult& r, const Json& end) {
    const int code = end["code"].get<int>();
    r.seconds += end["seconds"].get<double>();
    r.state = code == 0 ? TrialState::finished : TrialState::failed;
    if (code == static_cast<int>(ExitCode::stopped)) {
      // It has stopped as it was told: behind a rung, or with the sweep.
      r.state = TrialState::paused;
    } else if (code != 0) {
      const auto reason = end["reason"].get<std::string>();
      const int signal = end["signal"].get<int>();
      r.reason = signal != 0 ? fmt::format("ended by signal {}", signal)
                             : fmt::format("exit code {}{}", code, reason.empty() ? "" : ": " + reason);
      const bool known = code > 0 && code <= static_cast<int>(ExitCode::checkpoint);
      if (first_failure_ == ExitCode::done) first_failure_ = known ? static_cast<ExitCode>(code) : ExitCode::rank_lost;
    }
    const bool complete = r.epochs >= epochs_;
    if (r.state == TrialState::paused && (complete || !scheduler_.held(r.trial - 1))) r.state = TrialState::waiting;
    scheduler_.ended(r.trial - 1, r.state);
    if (!redraws_ && !quiet_) {
      print_text("trial {}: {}, {}, {}, {:.1f} s: {}{}\n", r.trial, name_of(r.state),
                 counted(static_cast<std::uint64_t>(r.epochs), "epoch"),
                 r.accuracy ? fmt::format("accuracy {:.4f}", *r.accuracy) : "no accuracy", r.seconds,
                 text_of(r.setting), r.reason.empty() ? "" : "; " + r.reason);
      std::fflush(stdout);
    }
  }
  void clear() {
    if (drawn_ > 0) fmt::print("\x1b[{}A\x1b[J", drawn_);
    drawn_ = 0;
  }
  void draw() {
    if (!redraws_) return;
    clear();
    std::istringstream lines(board_text(ranked(results_), kBoardRows));
    for (std::string line; std::getline(lines, line); ++drawn_) {
      // A line that wraps would be two.
      print_text("{}\n", shortened(line, terminal_.columns() - 1));
    }
    std::fflush(stdout);
  }

  SweepFolder& folder_;
  std::vector<TrialResult> results_;
  Scheduler scheduler_;
  std::int64_t epochs_;  // of a complete trial
  Terminal terminal_{STDOUT_FILENO};
  bool redraws_;
  bool quiet_;
  std::ptrdiff_t drawn_ = 0;  // lines of the board on the terminal
  ExitCode first_failure_ = ExitCode::done;
};

// Rounds until all trials have ended, or have stopped on request. Returns whether they were stopped.
bool run_rounds(Communicator& ranks, const Group& group, Runner& runner, Leader* leader, int ranks_per_trial) {
  std::vector<int> leaders;
  for (int rank = 0; rank < ranks.size(); rank += ranks_per_trial) leaders.push_back(rank);
  for (;;) {
    heartbeat();
    Json mine = group.leader ? runner.news() : Json::object();
    if (runner.busy()) mine["busy"] = true;
    if (Signals::current()->stop_requested()) mine["stop"] = true;
    const std::vector<std::string> texts = ranks.all_gather_text(mine.dump(), "news of the trials");
    std::string answer;
    if (leader != nullptr) {
      std::vector<Json> news;
      bool stop = false;
      for (const std::string& text : texts) stop |= news.emplace_back(Json::parse(text)).contains("stop");
      answer = leader->round(news, leaders, stop).dump();
    }
    const Json orders = Json::parse(ranks.broadcast_text(answer, 0));
    if (orders["done"].get<bool>()) return orders["stop"].get<bool>();
    const std::string me = std::to_string(ranks.rank());
    if (orders["start"].contains(me)) runner.start(orders["start"][me].get<int>());
    if (orders["stop"].get<bool>()) runner.stop();
    for (const Json& trial : orders["pause"]) runner.pause(trial.get<int>());
    std::this_thread::sleep_for(std::chrono::duration<double>(kRound));
  }
}

// The folder of the sweep: --output, or runs/sweep-MODEL-DATASET.
std::filesystem::path sweep_directory(const Options& options) {
  if (!options.output.output.empty()) return run_directory(options);
  const std::filesystem::path folder = run_directory(options);
  return folder.parent_path() / ("sweep-" + folder.filename().string());
}

}  // namespace

int run_sweep(const MpiSession& session, const Options& options) {
  const std::vector<Setting> settings = together(session, [&] {
    check(options.output.resume == "none" || options.output.resume == "auto", ExitCode::usage,
          "--resume {}: a sweep is continued with --resume auto", options.output.resume);
    std::vector<Setting> expanded = expand_sweep(options.sweep, options.optimizer.seed);
    for (const Setting& setting : expanded) (void)with_settings(options, setting);
    return expanded;
  });
  const Topology topology = discover_topology(session, options.distributed.timeout);
  const std::unique_ptr<Communicator> ranks = session.ranks().duplicate();
  ranks->set_timeout(options.distributed.timeout + kAfterWatchdog);
  const Group group = form_group(session, *ranks, topology, options);
  const std::filesystem::path path =
      together(session, [&] { return std::filesystem::absolute(sweep_directory(options)); });
  std::optional<RunLock> lock;
  std::optional<SweepFolder> folder;
  together(session, [&] {
    if (session.rank() == 0) {
      lock.emplace(path);
      folder.emplace(path, options, settings);
      folder->open();
    }
  });
  std::optional<Leader> leader;
  if (session.rank() == 0) {
    leader.emplace(options, *folder);
    print_text("{} of {} on {} of {}{}; {}\n", counted(settings.size(), "trial"), options.model.model,
               counted(static_cast<std::uint64_t>(session.size() / options.sweep.ranks_per_trial), "group"),
               counted(static_cast<std::uint64_t>(options.sweep.ranks_per_trial), "rank"),
               folder->resumed() ? ", continued" : "", path.string());
    std::fflush(stdout);
  }
  Signals::current()->set_stop_mode(StopMode::by_step);
  return or_abort(session, [&] {
    Runner runner(options, group, SweepPaths{path});
    const bool stopped = run_rounds(*ranks, group, runner, leader ? &*leader : nullptr, options.sweep.ranks_per_trial);
    Signals::current()->set_stop_mode(StopMode::finished);
    std::int64_t code = leader ? static_cast<std::int64_t>(leader->finish(stopped)) : 0;
    ranks->all_reduce(std::span(&code, 1), ReduceOp::max);
    return static_cast<int>(code);
  });
}

}  // namespace ddp
