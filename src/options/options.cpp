#include "options/options.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/error.h"

namespace ddp {

namespace {

// --output with %j, %A and %a expanded.
std::string filled_in(const std::string& output) {
  struct Placeholder {
    char letter;
    const char* variable;
  };
  constexpr std::array placeholders = {Placeholder{'j', "SLURM_JOB_ID"}, Placeholder{'A', "SLURM_ARRAY_JOB_ID"},
                                       Placeholder{'a', "SLURM_ARRAY_TASK_ID"}};
  std::string text;
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (output[i] != '%') {
      text += output[i];
      continue;
    }
    const char letter = ++i < output.size() ? output[i] : '\0';
    if (letter == '%') {
      text += '%';
      continue;
    }
    const auto known =
        std::find_if(placeholders.begin(), placeholders.end(), [&](const auto& it) { return it.letter == letter; });
    check(known != placeholders.end(), ExitCode::usage,
          "--output {}: unknown placeholder; use %j (Slurm job ID), %A (array job ID), %a (array task ID) or %% (a "
          "literal "
          "%)",
          output);
    const char* value = std::getenv(known->variable);
    check(value != nullptr && *value != '\0', ExitCode::usage,
          "--output {}: {} is not set in the environment, but %{} requires it; start the run under Slurm{}, or name a "
          "folder "
          "without the placeholder",
          output, known->variable, letter, letter == 'j' ? "" : " as a job array (sbatch --array)");
    text += value;
  }
  return text;
}

}  // namespace

std::filesystem::path run_directory(const Options& options) {
  if (!options.output.output.empty()) return filled_in(options.output.output);
  // An ONNX file contributes its name without folder and extension.
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

std::optional<std::filesystem::path> cache_directory(const std::string& what) {
  const auto below = [&](const char* variable, const char* folder) -> std::optional<std::filesystem::path> {
    const char* base = std::getenv(variable);
    // The XDG base directory specification requires relative paths to be ignored.
    if (base == nullptr || !std::filesystem::path(base).is_absolute()) return std::nullopt;
    return std::filesystem::path(base) / folder / what;
  };
  if (auto folder = below("XDG_CACHE_HOME", "ddp_train")) return folder;
  return below("HOME", ".cache/ddp_train");
}

std::optional<std::filesystem::path> plan_cache_directory(const Options& options) {
  const std::string& choice = options.output.plan_cache;
  if (choice == "off") return std::nullopt;
  return choice.empty() ? cache_directory("plans") : std::filesystem::path(choice);
}

std::string literal_output(const std::filesystem::path& path) {
  std::string text = path.string();
  for (std::size_t at = 0; (at = text.find('%', at)) != std::string::npos; at += 2) text.insert(at, "%");
  return text;
}

}  // namespace ddp
