// Where things lie in a run folder, and what they are called:
//
//   RUN/latest, RUN/best                links to the newest checkpoint and to that of the best validation accuracy
//   RUN/model.onnx                      the model's file, where it came from one
//   RUN/checkpoints/step-00001234/      a checkpoint: model.safetensors, optimizer.safetensors, state.json,
//                                       MANIFEST.json; once it was evaluated, evaluation.json
//   RUN/checkpoints/.tmp-step-00001234/ one being written, or removed: never read
//   RUN/checkpoints/.replaced-step-00001234/  one making room for another of the same step: good until that is in place
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp {

inline constexpr const char* kCheckpointsFolder = "checkpoints";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kModelCopyFile = "model.onnx";
inline constexpr const char* kManifestFile = "MANIFEST.json";
inline constexpr const char* kEvaluationFile = "evaluation.json";
inline constexpr const char* kTemporaryPrefix = ".tmp-";
inline constexpr const char* kReplacedPrefix = ".replaced-";

// RUN/model.onnx of a checkpoint RUN/checkpoints/step-S.
std::filesystem::path model_copy_of(const std::filesystem::path& checkpoint);

// 1234 -> "step-00001234".
std::string step_folder_name(std::int64_t step);
// The way back; nothing for any other name.
std::optional<std::int64_t> step_of(std::string_view folder_name);

struct CheckpointFolder {
  std::int64_t step = 0;
  bool replaced = false;
  std::filesystem::path path;
};

// The checkpoints of a run, good or bad, newest step first; none where the folder is missing.
// Throws Error(checkpoint) where the folder cannot be read.
std::vector<CheckpointFolder> list_checkpoints(const std::filesystem::path& run_dir);

}  // namespace ddp
