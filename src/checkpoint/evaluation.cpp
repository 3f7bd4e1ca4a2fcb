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

constexpr std::uint64_t kMaxBytes = 4 << 20;

}  // namespace

std::string to_json(const Evaluation& evaluation) {
  nlohmann::ordered_json json;
  json["val_loss"] = evaluation.loss;
  json["val_accuracy"] = evaluation.accuracy;
  if (evaluation.top5_accuracy) json["val_top5_accuracy"] = *evaluation.top5_accuracy;
  if (!evaluation.class_accuracy.empty()) json["class_accuracy"] = evaluation.class_accuracy;
  if (!evaluation.confusion.empty()) json["confusion"] = evaluation.confusion;
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
  const auto value = [](const nlohmann::json& each) { return each.is_null() ? std::nan("") : each.get<double>(); };
  const auto number = [&](const char* key) { return value(json[key]); };
  if (!json.is_object() || !holds("val_loss") || !holds("val_accuracy")) return std::nullopt;
  Evaluation evaluation{number("val_loss"), number("val_accuracy")};
  try {
    if (json.contains("val_top5_accuracy")) evaluation.top5_accuracy = number("val_top5_accuracy");
    if (json.contains("class_accuracy")) {
      for (const nlohmann::json& each : json["class_accuracy"]) evaluation.class_accuracy.push_back(value(each));
    }
    if (json.contains("confusion")) json["confusion"].get_to(evaluation.confusion);
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
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
    auto evaluation = parse_evaluation(read_text(path, ExitCode::checkpoint, kMaxBytes));
    if (!evaluation) log_warning("{} is damaged; the checkpoint is treated as not evaluated", path.string());
    return evaluation;
  } catch (const Error& unreadable) {
    log_warning("{}; the checkpoint is treated as not evaluated", unreadable.what());
    return std::nullopt;
  }
}

}  // namespace ddp
