// Names and places in a run folder:
//
//   RUN/latest, RUN/best                      links to the newest checkpoint and to the one with the best accuracy
//   RUN/model.onnx                            the model file, if --model named one
//   RUN/split.csv                             which images train and which evaluate, if the program divided a folder
//   RUN/checkpoints/step-00001234/            a checkpoint: model.safetensors, optimizer.safetensors, state.json and
//                                             MANIFEST.json; after its evaluation also evaluation.json
//   RUN/checkpoints/.tmp-step-00001234/       being written or removed; never read
//   RUN/checkpoints/.replaced-step-00001234/  about to be replaced by another one of the same step; valid until then
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace ddp {

inline constexpr const char* kCheckpointsFolder = "checkpoints";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kModelCopyFile = "model.onnx";
inline constexpr const char* kSplitFile = "split.csv";
inline constexpr const char* kManifestFile = "MANIFEST.json";
inline constexpr const char* kEvaluationFile = "evaluation.json";
inline constexpr const char* kReplacedPrefix = ".replaced-";

// RUN/model.onnx of a checkpoint RUN/checkpoints/step-S.
std::filesystem::path model_copy_of(const std::filesystem::path& checkpoint);

// RUN/split.csv likewise.
std::filesystem::path split_of(const std::filesystem::path& checkpoint);

// 1234 -> "step-00001234".
std::string step_folder_name(std::int64_t step);
// The inverse; nothing for any other name.
std::optional<std::int64_t> step_of(std::string_view folder_name);

struct CheckpointFolder {
  std::int64_t step = 0;
  bool replaced = false;
  std::filesystem::path path;
};

// All checkpoints of a run, intact or not, newest first; none if the folder is missing. Throws Error(checkpoint) if the
// folder cannot be read.
std::vector<CheckpointFolder> list_checkpoints(const std::filesystem::path& run_dir);

// Removes what processes that were killed have left among the checkpoints of a run and in each of them.
void remove_temporaries_of_checkpoints(const std::filesystem::path& run_dir);

}  // namespace ddp
