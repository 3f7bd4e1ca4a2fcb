#include "metrics/logs/run_log.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "metrics/recorder.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr ExitCode kCode = ExitCode::checkpoint;
constexpr const char* kMetricsFile = "metrics.jsonl";
constexpr const char* kSummaryFile = "summary.csv";
constexpr const char* kStepsFile = "steps.csv";
// Bytes of lines of steps.csv that are collected before they are written.
constexpr std::size_t kMostStepBytes = 65536;

// The step of a line of metrics.jsonl; nullopt for a damaged one.
std::optional<std::int64_t> step_of_json(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto step = json.is_object() ? json.find("step") : json.end();
  if (step == json.end() || !step->is_number_integer()) return std::nullopt;
  return step->get<std::int64_t>();
}

// The step of a row of summary.csv, its second cell; nullopt for a damaged one.
std::optional<std::int64_t> step_of_row(std::string_view row) {
  constexpr auto columns = std::count(kSummaryHeader.begin(), kSummaryHeader.end(), ',');
  if (std::count(row.begin(), row.end(), ',') != columns) return std::nullopt;
  row.remove_prefix(row.find(',') + 1);
  std::int64_t step = 0;
  const auto result = std::from_chars(row.data(), row.data() + row.size(), step);
  if (result.ec != std::errc() || *result.ptr != ',') return std::nullopt;
  return step;
}

// The step of a row of steps.csv, its first cell.
std::optional<std::int64_t> step_of_step_row(std::string_view row) {
  constexpr auto columns = std::count(kStepsHeader.begin(), kStepsHeader.end(), ',');
  if (std::count(row.begin(), row.end(), ',') != columns) return std::nullopt;
  std::int64_t step = 0;
  const auto result = std::from_chars(row.data(), row.data() + row.size(), step);
  if (result.ec != std::errc() || *result.ptr != ',') return std::nullopt;
  return step;
}

bool is_evaluation(std::string_view line) { return line.find("\"val_accuracy\"") != std::string_view::npos; }
bool is_row(std::string_view /*line*/) { return true; }
bool never(std::string_view /*line*/) { return false; }

// The lines up to and including the step; for an unfinished step without those that `again` matches. A line without a
// newline was not written completely.
template <class StepOf, class Again>
std::string lines_until(std::string_view text, const RunLog::Resume& resume, const fs::path& path, StepOf step_of,
                        Again again) {
  std::string kept;
  int damaged = 0;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    const std::string_view line = text.substr(0, end + 1);
    const std::optional<std::int64_t> step = step_of(line);
    if (!step) ++damaged;
    const bool repeated = resume.unfinished && step == resume.step && again(line);
    if (step && *step <= resume.step && !repeated) kept += line;
    text.remove_prefix(end + 1);
  }
  if (damaged > 0) log_warning("{}: skipped {} damaged lines", path.string(), damaged);
  return kept;
}

// nullopt if the file does not exist. A dangling link is an error, because it would block the new file.
std::optional<std::string> text_if_there(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path, error))) return std::nullopt;
  return read_text(path, kCode);
}

// Replaces the file by this content and opens it for appending.
LogFile begin_file(const fs::path& path, const std::string& content, bool rewrites) {
  if (rewrites) replace_file(path, content, kCode);
  return LogFile(File(path, File::Mode::append, kCode));
}

void write_line(LogFile& file, const Json& json) { file.write(json.dump() + "\n"); }

// All, or if these are many those that work longest, in order.
std::vector<std::size_t> logged_ranks(const RankPhases& sampled) {
  std::vector<std::size_t> ranks(sampled.ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0U);
  if (ranks.size() <= kLoggedRanks) return ranks;
  const auto work = [&](std::size_t rank) { return rank_work(sampled.ranks[rank]); };
  std::stable_sort(ranks.begin(), ranks.end(), [&](std::size_t a, std::size_t b) { return work(a) > work(b); });
  ranks.resize(kLoggedRanks / 2);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

// JSON has no NaN; nlohmann writes null.
Json json_of(const RankPhases& sampled) {
  Json json = {{"steps", sampled.steps}};
  const std::vector<std::size_t> logged = logged_ranks(sampled);
  if (logged.size() < sampled.ranks.size()) json["of"] = logged;
  for (const Phase phase : kPhases) {
    Json& seconds = json[phase_key(phase)] = Json::array();
    for (const std::size_t rank : logged) seconds.push_back(sampled.ranks[rank][phase]);
  }
  if (logged.size() == sampled.ranks.size()) return json;
  PhaseTotals all;
  for (const PhaseTotals& rank : sampled.ranks) all += rank;
  for (const Phase phase : kPhases) {
    json["mean"][phase_key(phase)] = all[phase] / static_cast<double>(sampled.ranks.size());
  }
  return json;
}

std::string cell(const std::optional<double>& value) { return value ? fmt::format("{}", *value) : std::string(); }

}  // namespace

RunLog::Kept RunLog::read(const fs::path& run_dir, const Resume& resume) {
  Kept kept;
  const fs::path metrics_path = run_dir / kMetricsFile;
  if (const auto text = text_if_there(metrics_path)) {
    kept.metrics = lines_until(*text, resume, metrics_path, step_of_json, is_evaluation);
    kept.rewrites_metrics = kept.metrics != *text;
  }
  const fs::path steps_path = run_dir / kStepsFile;
  // A file of other columns is from another version, and not continued.
  if (const auto text = text_if_there(steps_path); text && text->starts_with(kStepsHeader)) {
    const std::string_view rows = std::string_view(*text).substr(kStepsHeader.size());
    kept.steps = std::string(kStepsHeader) + lines_until(rows, resume, steps_path, step_of_step_row, never);
    kept.rewrites_steps = kept.steps != *text;
  }
  const fs::path summary_path = run_dir / kSummaryFile;
  const std::optional<std::string> text = text_if_there(summary_path);
  if (!text || text->find('\n') == std::string::npos) return kept;
  check(text->starts_with(kSummaryHeader), kCode, "{}: unexpected columns; move the file away to continue",
        summary_path.string());
  const std::string_view rows = std::string_view(*text).substr(kSummaryHeader.size());
  const std::string kept_rows = lines_until(rows, resume, summary_path, step_of_row, is_row);
  kept.summary = std::string(kSummaryHeader) + kept_rows;
  kept.rewrites_summary = kept.summary != *text;
  const std::size_t before = kept_rows.size() < 2 ? std::string::npos : kept_rows.rfind('\n', kept_rows.size() - 2);
  const std::size_t last = before == std::string::npos ? 0 : before + 1;
  kept.epoch_logged = step_of_row(std::string_view(kept_rows).substr(last)) == resume.step;
  return kept;
}

RunLog::RunLog(const fs::path& run_dir, const Kept& kept)
    : metrics_((make_folders(run_dir, kCode), begin_file(run_dir / kMetricsFile, kept.metrics, kept.rewrites_metrics))),
      summary_(begin_file(run_dir / kSummaryFile, kept.summary.empty() ? std::string(kSummaryHeader) : kept.summary,
                          kept.rewrites_summary)),
      steps_(begin_file(run_dir / kStepsFile, kept.steps.empty() ? std::string(kStepsHeader) : kept.steps,
                        kept.rewrites_steps)) {}

void RunLog::write(const TrainRecord& record) {
  flush();
  Json seconds;
  for (const Phase phase : kPhases) seconds[phase_key(phase)] = record.phases[phase];
  Json line = {{"step", record.step},
               {"epoch", record.epoch},
               {"loss", record.loss},
               {"lr", record.lr},
               {"images_per_second", record.images_per_second},
               {"seconds", std::move(seconds)}};
  if (!std::isnan(record.grad_norm)) line["grad_norm"] = record.grad_norm;
  if (record.mfu) line["mfu"] = *record.mfu;
  if (record.memory) line["memory"] = *record.memory;
  if (!record.sampled.ranks.empty()) line["ranks"] = json_of(record.sampled);
  write_line(metrics_, line);
  if (listener_ != nullptr) listener_->training(record);
}

void RunLog::write(const OutlierRecord& record) {
  write_line(metrics_, {{"step", record.step},
                        {"epoch", record.epoch},
                        {"outlier", record.quantity},
                        {"value", record.outlier.value},
                        {"median", record.outlier.median},
                        {"z", record.outlier.z}});
}

void RunLog::write(const EvalRecord& record) {
  Json line = {{"step", record.step},
               {"epoch", record.epoch},
               {"val_loss", record.val_loss},
               {"val_accuracy", record.val_accuracy}};
  if (record.top5_accuracy) line["val_top5_accuracy"] = *record.top5_accuracy;
  if (!record.class_accuracy.empty()) line["class_accuracy"] = record.class_accuracy;
  if (!record.confusion.empty()) line["confusion"] = record.confusion;
  write_line(metrics_, line);
  if (listener_ != nullptr) listener_->evaluation(record);
}

void RunLog::write(const StepRecord& record) {
  fmt::format_to(std::back_inserter(step_lines_), "{},{:016x},{:016x},{},{},{},{:016x},{:016x}\n", record.step,
                 record.samples, record.pixels, record.lr, record.loss, record.grad_norm, record.statistics,
                 record.weights);
  if (step_lines_.size() > kMostStepBytes) flush();
}

void RunLog::flush() {
  if (!step_lines_.empty()) steps_.write(step_lines_);
  step_lines_.clear();
}

void RunLog::write(const EpochRecord& record) {
  summary_.write(fmt::format("{},{},{},{},{},{},{},{}\n", record.epoch, record.step, record.train_loss,
                             cell(record.val_loss), cell(record.val_accuracy), record.lr, cell(record.seconds),
                             cell(record.images_per_second)));
}

void RunLog::sync() {
  steps_.sync();
  metrics_.sync();
  summary_.sync();
}

}  // namespace ddp
