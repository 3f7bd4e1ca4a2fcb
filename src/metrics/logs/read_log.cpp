#include "metrics/logs/read_log.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/file.h"

namespace ddp {
namespace {

using ReadJson = nlohmann::json;

// Reads the cells of a row one after the other.
class Cells {
 public:
  explicit Cells(std::string_view row) : rest_(row) {}

  template <class T, class... Base>
  void read(T& value, Base... base) {
    const std::string_view cell = rest_.substr(0, rest_.find(','));
    const auto result = std::from_chars(cell.data(), cell.data() + cell.size(), value, base...);
    good_ = good_ && result.ec == std::errc() && result.ptr == cell.data() + cell.size();
    rest_.remove_prefix(std::min(rest_.size(), cell.size() + 1));
  }
  // An empty cell is an unknown value.
  void read(std::optional<double>& value) {
    double known = 0;
    if (rest_.empty() || rest_.front() == ',') {
      rest_.remove_prefix(std::min<std::size_t>(rest_.size(), 1));
    } else {
      read(known);
      value = known;
    }
  }
  bool complete() const { return good_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool good_ = true;
};

std::optional<StepRecord> step_of(std::string_view row) {
  constexpr int kHex = 16;
  StepRecord record;
  Cells cells(row);
  cells.read(record.step);
  cells.read(record.samples, kHex);
  cells.read(record.pixels, kHex);
  cells.read(record.lr);
  cells.read(record.loss);
  cells.read(record.grad_norm);
  cells.read(record.statistics, kHex);
  cells.read(record.weights, kHex);
  return cells.complete() ? std::optional(record) : std::nullopt;
}

std::optional<EpochRecord> epoch_of(std::string_view row) {
  EpochRecord record;
  Cells cells(row);
  cells.read(record.epoch);
  cells.read(record.step);
  cells.read(record.train_loss);
  cells.read(record.val_loss);
  cells.read(record.val_accuracy);
  cells.read(record.lr);
  cells.read(record.seconds);
  cells.read(record.images_per_second);
  return cells.complete() ? std::optional(record) : std::nullopt;
}

std::string text_of(const std::filesystem::path& run_dir, const char* name, const char* what) {
  std::error_code error;
  check(std::filesystem::is_directory(run_dir, error), ExitCode::checkpoint,
        "{}: no such folder; give the folder of a run", run_dir.string());
  check(std::filesystem::exists(run_dir / name, error), ExitCode::checkpoint,
        "{}: no {}; it is not the folder of a run, or {}", run_dir.string(), name, what);
  return read_text(run_dir / name, ExitCode::checkpoint);
}

// Calls `read` for each complete line.
template <class Read>
void for_lines(std::string_view text, Read read) {
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    read(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
}

double number(const ReadJson& json) { return json.is_null() ? std::nan("") : json.get<double>(); }

std::optional<double> if_there(const ReadJson& line, const char* key) {
  return line.contains(key) ? std::optional(number(line[key])) : std::nullopt;
}

EvalRecord evaluation_of(const ReadJson& line) {
  EvalRecord record{line.at("step").get<std::int64_t>(), line.at("epoch").get<std::int64_t>(),
                    number(line.at("val_loss")), number(line.at("val_accuracy"))};
  record.top5_accuracy = if_there(line, "val_top5_accuracy");
  if (line.contains("class_accuracy")) {
    for (const ReadJson& each : line["class_accuracy"]) record.class_accuracy.push_back(number(each));
  }
  if (line.contains("confusion")) line["confusion"].get_to(record.confusion);
  return record;
}

TrainRecord training_of(const ReadJson& line) {
  TrainRecord record;
  line.at("step").get_to(record.step);
  line.at("epoch").get_to(record.epoch);
  record.loss = number(line.at("loss"));
  record.lr = number(line.at("lr"));
  record.images_per_second = number(line.at("images_per_second"));
  for (const Phase phase : kPhases) record.phases[phase] = number(line.at("seconds").at(phase_key(phase)));
  record.grad_norm = if_there(line, "grad_norm").value_or(std::nan(""));
  record.mfu = if_there(line, "mfu");
  record.memory = if_there(line, "memory");
  if (!line.contains("ranks")) return record;
  const ReadJson& ranks = line["ranks"];
  ranks.at("steps").get_to(record.sampled.steps);
  record.sampled.ranks.resize(ranks.at(phase_key(Phase::forward)).size());
  for (const Phase phase : kPhases) {
    for (std::size_t rank = 0; rank < record.sampled.ranks.size(); ++rank) {
      record.sampled.ranks[rank][phase] = number(ranks.at(phase_key(phase)).at(rank));
    }
  }
  return record;
}

}  // namespace

std::vector<StepRecord> read_steps(const std::filesystem::path& run_dir) {
  const std::string text = text_of(run_dir, "steps.csv", "was made by an older ddp_train; train again to compare it");
  check(text.starts_with(kStepsHeader), ExitCode::checkpoint, "{}: unexpected columns; it is from another ddp_train",
        (run_dir / "steps.csv").string());
  std::vector<StepRecord> steps;
  for_lines(std::string_view(text).substr(kStepsHeader.size()), [&](std::string_view row) {
    if (const std::optional<StepRecord> step = step_of(row)) steps.push_back(*step);
  });
  return steps;
}

RunHistory read_history(const std::filesystem::path& run_dir) {
  const std::string text = text_of(run_dir, "metrics.jsonl", "has not begun to train");
  RunHistory history;
  for_lines(text, [&](std::string_view row) {
    try {
      const ReadJson line = ReadJson::parse(row);
      if (line.contains("val_accuracy")) {
        history.evaluations.push_back(evaluation_of(line));
      } else {
        history.training.push_back(training_of(line));
      }
    } catch (const ReadJson::exception&) {
      return;  // damaged
    }
  });
  return history;
}

std::vector<EpochRecord> read_summary(const std::filesystem::path& run_dir) {
  const std::filesystem::path file = run_dir / "summary.csv";
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return {};
  const std::string text = read_text(file, ExitCode::checkpoint);
  if (kSummaryHeader.starts_with(text)) return {};  // its first line is being written
  check(text.starts_with(kSummaryHeader), ExitCode::checkpoint, "{}: unexpected columns; it is from another ddp_train",
        file.string());
  std::vector<EpochRecord> epochs;
  for_lines(std::string_view(text).substr(kSummaryHeader.size()), [&](std::string_view row) {
    if (const std::optional<EpochRecord> epoch = epoch_of(row)) epochs.push_back(*epoch);
  });
  return epochs;
}

}  // namespace ddp
