#include "run_folder/run_folder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/layout.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

constexpr ExitCode kCode = ExitCode::checkpoint;
constexpr const char* kConfigFile = "config.cfg";
// A file in RUN/earlier-N while a move is in progress: "all", or the step after which checkpoints are moved.
constexpr const char* kMovingFile = ".moving";
constexpr const char* kAll = "all\n";
constexpr double kLongestRetry = 60;  // seconds

bool there(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

// What a note says; nullopt if this program has not written it.
struct Move {
  std::optional<std::int64_t> after;  // the step; nullopt: everything
};
std::optional<Move> parse_move(std::string_view note) {
  if (note == kAll) return Move{};
  std::int64_t step = 0;
  const auto end = std::from_chars(note.data(), note.data() + note.size(), step);
  if (end.ec != std::errc() || step < 0 || note != fmt::format("{}\n", step)) return std::nullopt;
  return Move{step};
}

std::optional<Move> read_move(const fs::path& note) {
  try {
    return parse_move(read_text(note, kCode, 100));
  } catch (const Error&) {
    return std::nullopt;  // a folder, too long
  }
}

void move(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  check(!error, kCode, "cannot move {} to {}: {}; give another --output", from.string(), to.string(), error.message());
}

// The step of the checkpoint that a link like `best` names; nullopt unless it is a link to an existing one.
std::optional<std::int64_t> step_of_link(const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  if (error || !fs::exists(link, error)) return std::nullopt;
  return step_of(target.filename().string());
}

}  // namespace

RunFolder::RunFolder(fs::path path, const LockTiming& timing) : path_(std::move(path)), lock_(path_, timing) {
  finish_moving();
}

std::optional<ResumePoint> RunFolder::find(const std::string& resume) {
  if (resume == "none") return std::nullopt;
  checkpoint_ = resume == "auto" ? find_checkpoint(path_) : std::optional(open_checkpoint(resume));
  if (!checkpoint_) return std::nullopt;
  std::error_code error;
  here_ = fs::equivalent(checkpoint_->path.parent_path(), path_ / kCheckpointsFolder, error) && !error;
  evaluation_ = read_evaluation(checkpoint_->path);
  ResumePoint point{checkpoint_->state, evaluation_, true};
  if (!here_) return point;
  for (const char* name : {kConfigFile, kModelCopyFile, kSplitFile}) {
    check(!fs::is_directory(fs::symlink_status(path_ / name, error)), kCode,
          "{} is a folder, but must be a file of the run; move it away", (path_ / name).string());
  }
  // The lines of an unfinished evaluation and the row of its epoch are written again.
  const bool unfinished = !evaluation_ && point.state.epoch_samples > 0;
  kept_ = RunLog::read(path_, {point.state.step, unfinished});
  point.epoch_logged = kept_.epoch_logged;
  return point;
}

// RUN/earlier-N, created by the first call.
fs::path RunFolder::earlier_folder() {
  for (int n = 1; earlier_.empty(); ++n) {
    const fs::path candidate = path_ / fmt::format("earlier-{}", n);
    std::error_code error;
    if (fs::create_directory(candidate, error)) earlier_ = candidate;
    if (error && error != std::errc::file_exists) file_error(kCode, "create the folder", candidate, error.value());
  }
  return earlier_;
}

void RunFolder::move_away(const std::string& name) {
  if (there(path_ / name)) move(path_ / name, earlier_folder() / name);
}

// Moves everything, or what is behind a step, to RUN/earlier-N; if killed meanwhile, the note lets the next start
// continue the move.
void RunFolder::move_to_earlier(std::optional<std::int64_t> after) {
  replace_file(earlier_folder() / kMovingFile, after ? fmt::format("{}\n", *after) : kAll, kCode);
  if (after) {
    move_later(*after);
  } else {
    move_all();
  }
  sync_folder(path_, kCode);
  std::error_code error;
  fs::remove(earlier_ / kMovingFile, error);
  if (error) file_error(kCode, "remove", earlier_ / kMovingFile, error.value());
}

void RunFolder::finish_moving() {
  std::error_code error;
  for (int n = 1; there(path_ / fmt::format("earlier-{}", n)); ++n) {
    const fs::path candidate = path_ / fmt::format("earlier-{}", n);
    if (!fs::is_directory(fs::symlink_status(candidate, error))) continue;
    // Left by a process that was killed while it wrote the note.
    try {
      remove_temporaries(candidate, kCode);
    } catch (const Error& failed) {
      log_warning("{}", failed.what());
    }
    if (!there(candidate / kMovingFile)) {
      // Killed before the note was complete: nothing has been moved yet.
      std::error_code ignored;
      if (fs::is_empty(candidate, ignored)) fs::remove(candidate, ignored);
      continue;
    }
    const std::optional<Move> found = read_move(candidate / kMovingFile);
    if (!found) {
      log_warning("{} is not a note of this program about a move that was interrupted, so nothing is moved; remove it",
                  (candidate / kMovingFile).string());
      continue;
    }
    earlier_ = candidate;
    move_to_earlier(found->after);
    earlier_.clear();
  }
}

constexpr std::array kRunFiles = {"latest",       "best",        "metrics.jsonl",   "summary.csv",
                                  "steps.csv",    "timing.json", "trace.json",      kConfigFile,
                                  kModelCopyFile, kSplitFile,    kCheckpointsFolder};

// The beginnings of names that go on with a time or a step: TensorBoard's files, non-finite steps, tables of hangs.
constexpr std::array<std::string_view, 3> kNumbered = {"events.out.tfevents.", "nonfinite-", "hang-"};

void RunFolder::move_all() {
  remove_temporaries_of_checkpoints(path_);
  for (const char* name : kRunFiles) move_away(name);
  std::vector<std::string> numbered;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    const std::string name = entry.path().filename().string();
    const auto begins = [&](std::string_view beginning) { return name.starts_with(beginning); };
    if (std::any_of(kNumbered.begin(), kNumbered.end(), begins)) numbered.push_back(name);
  }
  for (const std::string& name : numbered) {
    if (fs::is_directory(fs::symlink_status(path_ / name, error))) remove_temporaries(path_ / name, kCode);
    move_away(name);
  }
}

// A new run never overwrites an earlier one.
void RunFolder::move_earlier_run() {
  if (std::none_of(kRunFiles.begin(), kRunFiles.end(), [&](const char* name) { return there(path_ / name); })) return;
  move_to_earlier(std::nullopt);
  log_info("{} contained an earlier run, which was moved to {}", path_.string(), earlier_.string());
}

// If a save was killed between its two renames, the checkpoint still has its temporary name.
void RunFolder::settle_replaced() {
  const fs::path place = path_ / kCheckpointsFolder / step_folder_name(checkpoint_->state.step);
  if (checkpoint_->path.filename() == place.filename()) return;
  if (there(place)) {
    make_folders(earlier_folder() / kCheckpointsFolder, kCode);
    move(place, earlier_folder() / kCheckpointsFolder / place.filename());
  }
  move(checkpoint_->path, place);
  checkpoint_->path = place;
}

// Checkpoints after `step`, with a copy of the logs, and links to them.
void RunFolder::move_later(std::int64_t step) {
  const fs::path earlier = earlier_folder();
  make_folders(earlier / kCheckpointsFolder, kCode);
  for (const char* name :
       {"metrics.jsonl", "summary.csv", "steps.csv", "timing.json", kConfigFile, kModelCopyFile, kSplitFile}) {
    std::error_code error;
    if (!fs::is_regular_file(path_ / name, error)) continue;
    fs::copy_file(path_ / name, earlier / name, fs::copy_options::overwrite_existing, error);
    if (error) file_error(kCode, "copy to", earlier / name, error.value());
  }
  for (const char* name : {"latest", "best"}) {
    if (const auto target = step_of_link(path_ / name); target > step) move(path_ / name, earlier / name);
  }
  for (const CheckpointFolder& found : list_checkpoints(path_)) {
    if (found.step > step) move(found.path, earlier / kCheckpointsFolder / found.path.filename());
  }
  sync_folder(earlier / kCheckpointsFolder, kCode);
  sync_folder(path_ / kCheckpointsFolder, kCode);
}

// Resuming from an older checkpoint keeps the later ones.
void RunFolder::fork() {
  settle_replaced();
  const std::int64_t step = checkpoint_->state.step;
  const std::vector<CheckpointFolder> all = list_checkpoints(path_);
  const auto later = std::count_if(all.begin(), all.end(), [&](const auto& found) { return found.step > step; });
  if (later == 0) return;
  move_to_earlier(step);
  log_info("resuming {} from step {}; {} of later steps {} moved to {}", path_.string(), step,
           later == 1 ? "the checkpoint" : "the checkpoints", later == 1 ? "was" : "were", earlier_.string());
}

void RunFolder::open(const Content& content) {
  lock_.check_held_now();
  if (here_) {
    fork();
    for (const char* name : {"latest", "best"}) {
      std::error_code error;
      const auto type = fs::symlink_status(path_ / name, error).type();
      if (type != fs::file_type::not_found && type != fs::file_type::symlink) move_away(name);
    }
  } else {
    move_earlier_run();
  }
  writer_.emplace(path_, content.keep_checkpoints);
  retry_saves_ = content.retry_saves;
  background_.emplace([this](const TrainingState& state, std::span<const TensorView> model,
                             std::span<const TensorView> optimizer) { write_or_warn(state, model, optimizer); });
  replace_file(path_ / kConfigFile, content.config, kCode);
  if (!content.onnx.empty()) replace_file(path_ / kModelCopyFile, content.onnx, kCode);
  if (!content.split.empty()) replace_file(path_ / kSplitFile, content.split, kCode);
  log_.emplace(path_, std::move(kept_));
  if (here_) repair_links();
}

// A killed run may have left missing or outdated links.
void RunFolder::repair_links() {
  const std::int64_t step = checkpoint_->state.step;
  if (step_of_link(path_ / "latest") != step) writer_->point_link("latest", step);
  const std::optional<std::int64_t> linked = step_of_link(path_ / "best");
  std::optional<std::int64_t> best = linked;
  // Without evaluation.json, in runs of older versions, the state contains the best result.
  double accuracy = checkpoint_->state.best_accuracy;
  if (linked) {
    if (const auto found = read_evaluation(path_ / "best")) accuracy = found->accuracy;
  } else {
    accuracy = -1;
    writer_->remove_link("best");
  }
  std::vector<CheckpointFolder> all = list_checkpoints(path_);
  std::reverse(all.begin(), all.end());  // the earliest of equal ones wins
  for (const CheckpointFolder& found : all) {
    const auto evaluation = read_evaluation(found.path);
    if (!evaluation || !std::isfinite(evaluation->loss) || !(evaluation->accuracy > accuracy)) continue;
    accuracy = evaluation->accuracy;
    best = found.step;
  }
  if (best && best != linked) writer_->point_link("best", *best);
}

void RunFolder::check_held() {
  lock_.check_held();
  if (!retry_saves_ && background_ && background_->failed()) background_->check();
}

void RunFolder::write(const TrainingState& state, std::span<const TensorView> model,
                      std::span<const TensorView> optimizer) {
  log_->sync();
  (void)writer_->save(state, model, optimizer);
  written_ = state.step;
  failures_ = 0;
}

// On the thread of background_.
void RunFolder::write_or_warn(const TrainingState& state, std::span<const TensorView> model,
                              std::span<const TensorView> optimizer) {
  try {
    write(state, model, optimizer);
  } catch (const Error& error) {
    if (!retry_saves_) throw;
    const double wait = std::min(std::ldexp(1.0, std::min(failures_++, 10)), kLongestRetry);
    retry_at_ = now() + wait;
    log_warning("the checkpoint of step {} was not written: {}; training continues, the next attempt is in {:g} s",
                state.step, error.what(), wait);
    throw;
  }
}

void RunFolder::save(const TrainingState& state, std::span<const TensorView> model,
                     std::span<const TensorView> optimizer) {
  lock_.check_held_now();
  background_->wait();
  log_->flush();
  write(state, model, optimizer);
  background_->forget_failure();
}

void RunFolder::save_in_background(const TrainingState& state, std::span<const TensorView> model,
                                   std::span<const TensorView> optimizer) {
  lock_.check_held_now();
  log_->flush();
  background_->start(state, model, optimizer);
}

bool RunFolder::retry_due() const { return retry_saves_ && background_ && background_->failed() && now() >= retry_at_; }

void RunFolder::finish_saving() {
  log_->flush();
  background_->finish(
      [this](const TrainingState& state, std::span<const TensorView> model, std::span<const TensorView> optimizer) {
        lock_.check_held_now();
        write(state, model, optimizer);
      });
  log_->sync();
}

std::optional<std::int64_t> RunFolder::last_written() {
  background_->wait();
  return written_;
}

void RunFolder::evaluated(std::int64_t step, const Evaluation& evaluation, bool best) {
  lock_.check_held_now();
  background_->wait();
  if (background_->failed()) return;  // there is no checkpoint of this step
  try {
    log_->sync();
  } catch (const Error& error) {
    if (!retry_saves_) throw;
    log_warning("the evaluation of step {} is not in its checkpoint: {}", step, error.what());
    return;
  }
  writer_->note_evaluation(step, evaluation, best);
}

}  // namespace ddp
