#include "checkpoint/evaluation.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/digest.h"
#include "checkpoint/layout.h"

namespace ddp {
namespace {

constexpr std::uint64_t kMaxBytes = 65536;

}  // namespace

std::string to_json(const Evaluation& evaluation) {
  nlohmann::ordered_json json;
  json["val_loss"] = evaluation.loss;
  json["val_accuracy"] = evaluation.accuracy;
  const std::string numbers = json.dump();
  json["xxh3_128"] = digest_of(std::as_bytes(std::span(numbers))).xxh3_128;
  return json.dump() + "\n";
}

std::optional<Evaluation> parse_evaluation(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto holds = [&](const char* key) {
    return json.contains(key) && (json[key].is_number() || json[key].is_null());
  };
  // JSON cannot represent non-finite numbers.
  const auto number = [&](const char* key) { return json[key].is_null() ? std::nan("") : json[key].get<double>(); };
  if (!json.is_object() || !holds("val_loss") || !holds("val_accuracy")) return std::nullopt;
  const Evaluation evaluation{number("val_loss"), number("val_accuracy")};
  if (to_json(evaluation) != text) return std::nullopt;
  return evaluation;
}

void write_evaluation(const std::filesystem::path& checkpoint, const Evaluation& evaluation) {
  replace_file(checkpoint / kEvaluationFile, to_json(evaluation), ExitCode::checkpoint);
}

std::optional<Evaluation> read_evaluation(const std::filesystem::path& checkpoint) {
  const std::filesystem::path path = checkpoint / kEvaluationFile;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  try {
    const auto evaluation = parse_evaluation(read_text(path, ExitCode::checkpoint, kMaxBytes));
    if (!evaluation) log_warning("{} is damaged; the checkpoint is treated as not evaluated", path.string());
    return evaluation;
  } catch (const Error& unreadable) {
    log_warning("{}; the checkpoint is treated as not evaluated", unreadable.what());
    return std::nullopt;
  }
}

}  // namespace ddp
