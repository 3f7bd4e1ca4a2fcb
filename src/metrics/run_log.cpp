#include "metrics/run_log.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/log.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr ExitCode kCode = ExitCode::checkpoint;
constexpr std::string_view kSummaryHeader =
    "epoch,step,train_loss,val_loss,val_accuracy,lr,seconds,images_per_second\n";

// The step of a line of metrics.jsonl; nothing for a damaged one.
std::optional<std::int64_t> step_of_json(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto step = json.is_object() ? json.find("step") : json.end();
  if (step == json.end() || !step->is_number_integer()) return std::nullopt;
  return step->get<std::int64_t>();
}

// The step of a row of summary.csv, its second cell; nothing for a damaged one.
std::optional<std::int64_t> step_of_row(std::string_view row) {
  constexpr auto columns = std::count(kSummaryHeader.begin(), kSummaryHeader.end(), ',');
  if (std::count(row.begin(), row.end(), ',') != columns) return std::nullopt;
  row.remove_prefix(row.find(',') + 1);
  std::int64_t step = 0;
  const auto result = std::from_chars(row.data(), row.data() + row.size(), step);
  if (result.ec != std::errc() || *result.ptr != ',') return std::nullopt;
  return step;
}

// The lines up to and of `last_step`. A line without its newline is one whose writing was cut short.
template <class StepOf>
std::string lines_until(std::string_view text, std::int64_t last_step, const fs::path& path, StepOf step_of) {
  std::string kept;
  int damaged = 0;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    const std::string_view line = text.substr(0, end + 1);
    const std::optional<std::int64_t> step = step_of(line);
    if (!step) ++damaged;
    if (step && *step <= last_step) kept += line;
    text.remove_prefix(end + 1);
  }
  if (damaged > 0) log_warning("{}: {} damaged lines are left out", path.string(), damaged);
  return kept;
}

std::string text_if_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error) ? read_text(path, kCode) : std::string();
}

File open_metrics(const fs::path& run_dir, std::optional<std::int64_t> resumed_step) {
  make_folders(run_dir, kCode);
  const fs::path path = run_dir / "metrics.jsonl";
  if (!resumed_step) return {path, File::Mode::create, kCode};
  const std::string text = text_if_there(path);
  const std::string kept = lines_until(text, *resumed_step, path, step_of_json);
  if (kept != text) replace_file(path, kept, kCode);
  return {path, File::Mode::append, kCode};
}

File open_summary(const fs::path& run_dir, std::optional<std::int64_t> resumed_step) {
  const fs::path path = run_dir / "summary.csv";
  const std::string text = resumed_step ? text_if_there(path) : std::string();
  if (text.find('\n') == std::string::npos) {
    File file(path, File::Mode::create, kCode);
    file.write(kSummaryHeader);
    return file;
  }
  check(text.starts_with(kSummaryHeader), kCode,
        "{}: not the columns that this program writes; move the file away to go on", path.string());
  const std::string_view rows = std::string_view(text).substr(kSummaryHeader.size());
  const std::string kept = std::string(kSummaryHeader) + lines_until(rows, *resumed_step, path, step_of_row);
  if (kept != text) replace_file(path, kept, kCode);
  return {path, File::Mode::append, kCode};
}

void write_line(File& file, const Json& json) { file.write(json.dump() + "\n"); }

std::string cell(const std::optional<double>& value) { return value ? fmt::format("{}", *value) : std::string(); }

}  // namespace

RunLog::RunLog(const fs::path& run_dir, std::optional<std::int64_t> resumed_step)
    : metrics_(open_metrics(run_dir, resumed_step)), summary_(open_summary(run_dir, resumed_step)) {}

void RunLog::write(const TrainRecord& record) {
  Json seconds;
  for (const Phase phase : kPhases) seconds[phase_key(phase)] = record.phases[phase];
  write_line(metrics_, {{"step", record.step},
                        {"epoch", record.epoch},
                        {"loss", record.loss},
                        {"lr", record.lr},
                        {"images_per_second", record.images_per_second},
                        {"seconds", std::move(seconds)}});
}

void RunLog::write(const EvalRecord& record) {
  write_line(metrics_, {{"step", record.step},
                        {"epoch", record.epoch},
                        {"val_loss", record.val_loss},
                        {"val_accuracy", record.val_accuracy}});
}

void RunLog::write(const EpochRecord& record) {
  summary_.write(fmt::format("{},{},{},{},{},{},{},{}\n", record.epoch, record.step, record.train_loss,
                             cell(record.val_loss), cell(record.val_accuracy), record.lr, record.seconds,
                             record.images_per_second));
}

void RunLog::sync() {
  metrics_.sync();
  summary_.sync();
}

}  // namespace ddp
