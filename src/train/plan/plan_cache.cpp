#include "train/plan/plan_cache.h"

#include <span>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/digest.h"

namespace ddp {
namespace {

// A plan has one line per stage.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 26U;

std::string hash_of(std::string_view text) { return digest_of(std::as_bytes(std::span(text))).xxh3_128; }

std::string inputs_text(const Stage& stage) {
  std::string text;
  for (const StageInput& input : stage.inputs) {
    text += fmt::format(" {}{}", input.stage, input.flattens ? " flattens" : "");
  }
  return text;
}

}  // namespace

std::string PlanCache::key(OpFactory& ops, std::span<const Stage> stages) {
  std::string text = ops.traits().fingerprint + "\n";
  for (const Stage& stage : stages) {
    text += fmt::format("{} {}{}\n", stage.name, describe(ops.chooser().timed_spec(stage.spec)), inputs_text(stage));
  }
  return text;
}

std::filesystem::path PlanCache::file_of(const std::string& key) const { return *folder_ / (hash_of(key) + ".plan"); }

std::optional<std::string> PlanCache::find(const std::string& key) const {
  if (!folder_) return std::nullopt;
  const std::filesystem::path file = file_of(key);
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return std::nullopt;
  try {
    const std::string text = read_text(file, ExitCode::internal, kMaxBytes);
    // The first line is the hash of the remaining text.
    const std::size_t end = text.find('\n');
    const std::string_view content = std::string_view(text).substr(end == std::string::npos ? text.size() : end + 1);
    if (text.substr(0, end) == hash_of(content) && content.starts_with(key)) {
      return std::string(content.substr(key.size()));
    }
    log_info("{} is damaged; timing the kernels again", file.string());
  } catch (const Error& unreadable) {
    log_info("{}; timing the kernels again", unreadable.what());
  }
  return std::nullopt;
}

void PlanCache::store(const std::string& key, const std::string& plan) const {
  if (!folder_) return;
  try {
    make_folders(*folder_, ExitCode::internal);
    const std::string content = key + plan;
    replace_file(file_of(key), hash_of(content) + "\n" + content, ExitCode::internal);
  } catch (const Error& error) {
    log_debug("the plan was not cached in {}: {}", folder_->string(), error.what());
  }
}

}  // namespace ddp
