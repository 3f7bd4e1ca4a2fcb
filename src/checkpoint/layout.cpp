#include "checkpoint/layout.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <system_error>
#include <tuple>

#include "base/file.h"

namespace ddp {

std::filesystem::path model_copy_of(const std::filesystem::path& checkpoint) {
  return checkpoint.parent_path().parent_path() / kModelCopyFile;
}

std::filesystem::path split_of(const std::filesystem::path& checkpoint) {
  return checkpoint.parent_path().parent_path() / kSplitFile;
}

std::string step_folder_name(std::int64_t step) { return fmt::format("step-{:08}", step); }

std::optional<std::int64_t> step_of(std::string_view folder_name) {
  constexpr std::string_view prefix = "step-";
  if (!folder_name.starts_with(prefix)) return std::nullopt;
  const std::string_view digits = folder_name.substr(prefix.size());
  std::int64_t step = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (result.ec != std::errc() || step < 0 || step_folder_name(step) != folder_name) return std::nullopt;
  return step;
}

std::vector<CheckpointFolder> list_checkpoints(const std::filesystem::path& run_dir) {
  const std::filesystem::path folder = run_dir / kCheckpointsFolder;
  std::vector<CheckpointFolder> found;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  if (error == std::errc::no_such_file_or_directory) return found;
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    const bool replaced = name.starts_with(kReplacedPrefix);
    if (replaced) name.erase(0, std::string_view(kReplacedPrefix).size());
    if (const auto step = step_of(name)) found.push_back({*step, replaced, entry->path()});
  }
  if (error) file_error(ExitCode::checkpoint, "read the folder", folder, error.value());
  std::sort(found.begin(), found.end(), [](const CheckpointFolder& a, const CheckpointFolder& b) {
    return std::tuple(b.step, a.replaced) < std::tuple(a.step, b.replaced);
  });
  return found;
}

void remove_temporaries_of_checkpoints(const std::filesystem::path& run_dir) {
  const std::filesystem::path folder = run_dir / kCheckpointsFolder;
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) return;
  remove_temporaries(folder, ExitCode::checkpoint);
  for (const CheckpointFolder& found : list_checkpoints(run_dir)) {
    if (std::filesystem::is_directory(found.path, error)) remove_temporaries(found.path, ExitCode::checkpoint);
  }
}

}  // namespace ddp
