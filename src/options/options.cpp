#include "options/options.h"

#include <cstdlib>

namespace ddp {

std::filesystem::path run_directory(const Options& options) {
  if (!options.output.output.empty()) return options.output.output;
  // Of an ONNX file its name alone.
  const std::filesystem::path model(options.model.model);
  const std::string name = model.extension() == ".onnx" ? model.stem().string() : options.model.model;
  return std::filesystem::path("runs") / (name + "-" + options.data.dataset);
}

std::filesystem::path chosen_checkpoint(const Options& options) {
  const ExportOptions& chosen = options.exported;
  const std::string& resume = options.output.resume;
  const std::filesystem::path run = chosen.run.empty() ? run_directory(options) : std::filesystem::path(chosen.run);
  if (chosen.checkpoint == "best") return run / "best";
  if (chosen.checkpoint != "latest") return chosen.checkpoint;
  return chosen.run.empty() && resume != "none" && resume != "auto" ? std::filesystem::path(resume) : run;
}

ExportFormat format_of(const ExportOptions& options) {
  if (options.format != ExportFormat::automatic) return options.format;
  return options.to.ends_with(".safetensors") ? ExportFormat::safetensors : ExportFormat::onnx;
}

std::optional<std::filesystem::path> plan_cache_directory(const Options& options) {
  const std::string& choice = options.output.plan_cache;
  if (choice == "off") return std::nullopt;
  if (!choice.empty()) return choice;
  const auto below = [](const char* variable, const char* folder) -> std::optional<std::filesystem::path> {
    const char* base = std::getenv(variable);
    // The XDG base directory specification has relative paths ignored.
    if (base == nullptr || !std::filesystem::path(base).is_absolute()) return std::nullopt;
    return std::filesystem::path(base) / folder;
  };
  if (auto folder = below("XDG_CACHE_HOME", "ddp_train/plans")) return folder;
  return below("HOME", ".cache/ddp_train/plans");
}

}  // namespace ddp
