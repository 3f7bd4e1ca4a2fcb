#include "checkpoint/reader.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/digest.h"
#include "checkpoint/layout.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

// A manifest and a state are short: names, hashes, a plan, a configuration.
constexpr std::uint64_t kMaxManifestBytes = std::uint64_t{1} << 20U;
constexpr std::uint64_t kMaxStateBytes = std::uint64_t{1} << 26U;

void check_size(const fs::path& path, const FileDigest& expected, std::uint64_t actual) {
  check(actual == expected.size, ExitCode::checkpoint,
        "{}: {} bytes, but {} were written; the checkpoint is damaged, resume from another one", path.string(), actual,
        expected.size);
}

// Compare the size before reading: a damaged file may exceed memory, and hashing it may take hours.
void check_size_of_file(const fs::path& path, const FileDigest& expected) {
  check_size(path, expected, File(path, File::Mode::read, ExitCode::checkpoint).size());
}

void check_digest(const fs::path& path, const FileDigest& expected, const FileDigest& actual) {
  check_size(path, expected, actual.size);
  check(actual.xxh3_128 == expected.xxh3_128, ExitCode::checkpoint,
        "{}: its contents have changed since it was written (hash {} instead of {}); the checkpoint is damaged, resume "
        "from "
        "another one",
        path.string(), actual.xxh3_128, expected.xxh3_128);
}

Checkpoint verify(const fs::path& path) {
  const fs::path manifest_path = path / kManifestFile;
  Checkpoint checkpoint{
      path, {}, parse_manifest(read_text(manifest_path, ExitCode::checkpoint, kMaxManifestBytes), manifest_path)};
  for (const char* name : {kModelFile, kOptimizerFile, kStateFile}) {
    const auto entry = checkpoint.manifest.files.find(name);
    check(entry != checkpoint.manifest.files.end(), ExitCode::checkpoint,
          "{}: does not list {}; the checkpoint is damaged, resume from another one", manifest_path.string(), name);
    check_size_of_file(path / name, entry->second);
  }
  // The state first: it is small, and shows whether reading the tensors is worthwhile.
  const std::string state = read_text(path / kStateFile, ExitCode::checkpoint, kMaxStateBytes);
  for (const char* name : {kStateFile, kModelFile, kOptimizerFile}) {
    check_digest(path / name, checkpoint.manifest.files.at(name), digest_of_file(path / name));
  }
  checkpoint.state = parse_state(state, path / kStateFile);
  for (const char* name : {kModelFile, kOptimizerFile}) SafetensorsFile::read(path / name).check_finite();
  return checkpoint;
}

// Reads the file and verifies it against the manifest again: it may have changed since the checkpoint was opened.
SafetensorsFile read_verified(const Checkpoint& checkpoint, const char* name) {
  const fs::path path = checkpoint.path / name;
  const FileDigest& expected = checkpoint.manifest.files.at(name);
  check_size_of_file(path, expected);
  std::string bytes = read_text(path, ExitCode::checkpoint, expected.size);
  check_digest(path, expected, digest_of(std::as_bytes(std::span(bytes))));
  return {path, std::move(bytes)};
}

SafetensorsFile read_model(const Checkpoint& checkpoint, const std::string& model,
                           std::span<const TensorView> tensors) {
  check(checkpoint.state.model == model, ExitCode::checkpoint,
        "{}: is a checkpoint of the model '{}', but this run uses '{}'; use --model {} or another checkpoint",
        checkpoint.path.string(), checkpoint.state.model, model, checkpoint.state.model);
  SafetensorsFile file = read_verified(checkpoint, kModelFile);
  file.check_same(tensors);
  return file;
}

// The step that RUN/latest names; nullopt if it is not a link to a checkpoint.
std::optional<std::int64_t> latest_step(const fs::path& run_dir) {
  std::error_code error;
  const fs::path target = fs::read_symlink(run_dir / "latest", error);
  return error ? std::nullopt : step_of(target.filename().string());
}

}  // namespace

std::optional<Checkpoint> find_checkpoint(const fs::path& run_dir) {
  // Read the link before the list: a running job adds to the list first.
  const std::optional<std::int64_t> latest = latest_step(run_dir);
  const std::vector<CheckpointFolder> candidates = list_checkpoints(run_dir);
  if (latest &&
      std::none_of(candidates.begin(), candidates.end(), [&](const auto& it) { return it.step == *latest; })) {
    log_warning("{} leads to {}, which is missing; an earlier checkpoint is used if there is one",
                (run_dir / "latest").string(), step_folder_name(*latest));
  }
  for (const CheckpointFolder& candidate : candidates) {
    try {
      return verify(candidate.path);
    } catch (const Error& error) {
      log_warning("skipped a checkpoint: {}", error.what());
    }
  }
  check(candidates.empty(), ExitCode::checkpoint,
        "{}: none of the {} checkpoints is intact; start over with --resume none, or in another folder with --output",
        (run_dir / kCheckpointsFolder).string(), candidates.size());
  return std::nullopt;
}

Checkpoint open_checkpoint(const fs::path& path) {
  // "latest/" means "latest"; a link is resolved once, because it may change during reading.
  fs::path folder = path.has_filename() ? path : path.parent_path();
  std::error_code error;
  if (fs::is_symlink(folder, error)) folder = folder.parent_path() / fs::read_symlink(folder, error);
  check(fs::exists(folder, error), ExitCode::checkpoint,
        "{}: no such checkpoint; expected a folder such as RUN/checkpoints/{}, RUN/latest or RUN", path.string(),
        step_folder_name(468));
  if (fs::is_directory(folder / kCheckpointsFolder, error)) {
    auto found = find_checkpoint(folder);
    check(found.has_value(), ExitCode::checkpoint, "{}: contains no checkpoint; use another run folder", path.string());
    return *std::move(found);
  }
  return verify(folder);
}

void verify_files(const fs::path& folder, const Manifest& manifest) {
  for (const auto& [name, digest] : manifest.files) {
    check_size_of_file(folder / name, digest);
    check_digest(folder / name, digest, digest_of_file(folder / name));
  }
}

SafetensorsFile read_weights(const Checkpoint& checkpoint) { return read_verified(checkpoint, kModelFile); }

void load(const Checkpoint& checkpoint, const std::string& model, std::span<const TensorView> tensors) {
  read_model(checkpoint, model, tensors).copy_to(tensors);
}

void load_average(const Checkpoint& checkpoint, const std::string& model, std::span<const TensorView> tensors) {
  const SafetensorsFile model_file = read_model(checkpoint, model, tensors);
  const SafetensorsFile optimizer_file = read_verified(checkpoint, kOptimizerFile);
  std::vector<TensorView> averages;
  for (const TensorView& view : tensors) {
    const std::string name = "ema." + view.name;
    for (const SafetensorsFile::Tensor& tensor : optimizer_file.tensors()) {
      if (tensor.name == name && tensor.shape == view.shape) averages.push_back({name, view.shape, view.data});
    }
  }
  check(!averages.empty(), ExitCode::checkpoint,
        "{}: contains no moving average of the weights, since the run had no --ema-decay; remove --average "
        "(export) or --ema-decay (eval) to use the weights themselves",
        checkpoint.path.string());
  model_file.copy_to(tensors);
  optimizer_file.copy_to(averages);
}

void load(const Checkpoint& checkpoint, const std::string& model, std::span<const TensorView> tensors,
          std::span<const TensorView> optimizer_tensors) {
  const SafetensorsFile model_file = read_model(checkpoint, model, tensors);
  const SafetensorsFile optimizer_file = read_verified(checkpoint, kOptimizerFile);
  optimizer_file.check_same(optimizer_tensors);
  model_file.copy_to(tensors);
  optimizer_file.copy_to(optimizer_tensors);
}

}  // namespace ddp
