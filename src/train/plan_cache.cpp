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
    text += fmt::format(" k{}x{} s{} p{},{},{},{} relu{} pool{} dx{}", conv->kernel_h, conv->kernel_w, conv->stride,
                        conv->pad_top, conv->pad_left, conv->pad_bottom, conv->pad_right, conv->relu,
                        conv->average_pool, conv->input_gradient);
  }
  if (const auto* linear = std::get_if<LinearSpec>(&spec)) {
    text += fmt::format(" relu{} dx{}", linear->relu, linear->input_gradient);
  }
  return text;
}

}  // namespace

std::string PlanCache::key(const Backend& backend, std::span<const Stage> stages) {
  std::string text = backend.fingerprint() + "\n";
  for (const Stage& stage : stages) {
    text += fmt::format("{} {}{}\n", stage.name, describe(stage.spec), stage.flattens ? " flattens" : "");
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
