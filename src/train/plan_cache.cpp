#include "train/plan_cache.h"

#include <unistd.h>

#include <fstream>
#include <sstream>
#include <system_error>

#include "base/log.h"

namespace ddp {
namespace {

// FNV-1a, 64 bits (Fowler, Noll, Vo): names a file; the key inside it decides.
std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

std::string describe(const OpSpec& spec) {
  const Shape in = input_of(spec);
  const Shape out = output_of(spec);
  std::string text = fmt::format("{} n{} {}x{}x{} {}x{}x{}", kind_of(spec), batch_of(spec), in.channels, in.height,
                                 in.width, out.channels, out.height, out.width);
  if (const auto* conv = std::get_if<ConvSpec>(&spec)) {
    text += fmt::format(" k{}x{} s{} p{},{},{},{} g{} bias{} relu{} pool{} dx{}", conv->kernel_h, conv->kernel_w,
                        conv->stride, conv->pad_top, conv->pad_left, conv->pad_bottom, conv->pad_right, conv->groups,
                        conv->bias, conv->relu, conv->average_pool, conv->input_gradient);
  }
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) {
    text += fmt::format(" bias{} relu{} dx{}", linear->bias, linear->relu, linear->input_gradient);
  }
  if (const auto* pool = std::get_if<PoolSpec>(&spec)) {
    text += fmt::format(" {} k{}x{} s{} p{},{},{},{}", static_cast<int>(pool->kind), pool->window_h, pool->window_w,
                        pool->stride, pool->pad_top, pool->pad_left, pool->pad_bottom, pool->pad_right);
  }
  if (const auto* norm = std::get_if<BatchNormSpec>(&spec)) {
    text += fmt::format(" {} add{}", to_string(norm->activation), norm->add);
  }
  return text;
}

std::string inputs_text(const Stage& stage) {
  std::string text;
  for (const StageInput& input : stage.inputs) {
    text += fmt::format(" {}{}", input.stage, input.flattens ? " flattens" : "");
  }
  return text;
}

}  // namespace

std::string PlanCache::key(const Backend& backend, std::span<const Stage> stages) {
  std::string text = backend.fingerprint() + "\n";
  for (const Stage& stage : stages) {
    text += fmt::format("{} {}{}\n", stage.name, describe(stage.spec), inputs_text(stage));
  }
  return text;
}

std::filesystem::path PlanCache::file_of(const std::string& key) const {
  return *folder_ / fmt::format("{:016x}.plan", fnv1a(key));
}

std::optional<std::string> PlanCache::find(const std::string& key) const {
  if (!folder_) return std::nullopt;
  std::ifstream file(file_of(key));
  std::stringstream content;
  content << file.rdbuf();
  const std::string text = content.str();
  if (!file || !text.starts_with(key)) return std::nullopt;
  return text.substr(key.size());
}

void PlanCache::store(const std::string& key, const std::string& plan) const {
  if (!folder_) return;
  std::error_code error;
  std::filesystem::create_directories(*folder_, error);
  const std::filesystem::path file = file_of(key);
  const std::filesystem::path temporary = fmt::format("{}.{}", file.string(), getpid());
  {
    std::ofstream out(temporary);
    out << key << plan;
    out.close();
    if (!out) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) std::filesystem::rename(temporary, file, error);
  if (error) {
    log_debug("the plan was not cached in {}: {}", folder_->string(), error.message());
    std::filesystem::remove(temporary, error);
  }
}

}  // namespace ddp
