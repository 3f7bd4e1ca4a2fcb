// The result of evaluating a checkpoint, RUN/checkpoints/step-S/evaluation.json. A checkpoint is written before it is
// evaluated; without this file it has not been evaluated yet.
//
//   write_evaluation(path, {.loss = 0.31, .accuracy = 0.91});
//   std::optional<Evaluation> found = read_evaluation(path);
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ddp {

struct Evaluation {
  double loss = 0;
  double accuracy = 0;  // 0 to 1
  // Left out by older versions; see EvalRecord in metrics/logs/run_log.h.
  std::optional<double> top5_accuracy = std::nullopt;
  std::vector<double> class_accuracy = {};                // NaN: no samples
  std::vector<std::vector<std::int64_t>> confusion = {};  // [class][answer]

  friend bool operator==(const Evaluation&, const Evaluation&) = default;
};

// {"val_loss", "val_accuracy", "val_top5_accuracy", "class_accuracy", "confusion", "xxh3_128"}, the hash being that of the text before it.
std::string to_json(const Evaluation& evaluation);
// Returns nothing for a text that to_json() would not produce byte for byte.
std::optional<Evaluation> parse_evaluation(const std::string& text);

// Atomic. Throws Error(checkpoint) if it cannot be written.
void write_evaluation(const std::filesystem::path& checkpoint, const Evaluation& evaluation);
// Returns nothing if the file is missing or damaged; the evaluation is then repeated.
std::optional<Evaluation> read_evaluation(const std::filesystem::path& checkpoint);

}  // namespace ddp
