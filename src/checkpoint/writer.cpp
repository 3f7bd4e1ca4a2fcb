#include "checkpoint/writer.h"

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "checkpoint/digest.h"
#include "checkpoint/layout.h"
#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "checkpoint/safetensors.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;

bool there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) file_error(ExitCode::checkpoint, "remove", path, error.value());
}

FileDigest write_text(const fs::path& path, const std::string& text) {
  File file(path, File::Mode::create_new, ExitCode::checkpoint);
  file.write(text);
  file.sync();
  file.close();
  return digest_of(std::as_bytes(std::span(text)));
}

// The step that a link like `best` points at.
std::optional<std::int64_t> step_of_link(const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  return error ? std::nullopt : step_of(target.filename().string());
}

}  // namespace

CheckpointWriter::CheckpointWriter(fs::path run_dir, int keep)
    : run_dir_(std::move(run_dir)), folder_(run_dir_ / kCheckpointsFolder), keep_(keep) {
  check(keep_ >= 1, ExitCode::usage, "--keep-checkpoints is {}; it must be at least 1", keep_);
  make_folders(folder_, ExitCode::checkpoint);
  clean_up();
  const fs::path probe = folder_ / (std::string(kTemporaryPrefix) + "probe");
  write_text(probe, "Test of write access\n");
  remove_tree(probe);
  sync_folder(run_dir_, ExitCode::checkpoint);
  sync_folder(run_dir_.parent_path(), ExitCode::checkpoint);
}

void CheckpointWriter::clean_up() {
  remove_temporaries(run_dir_, ExitCode::checkpoint);
  remove_temporaries_of_checkpoints(run_dir_);
  for (const CheckpointFolder& found : list_checkpoints(run_dir_)) {
    if (!found.replaced) continue;
    const fs::path place = folder_ / step_folder_name(found.step);
    if (there(place)) {
      remove_folder(found.path);
    } else {
      rename_path(found.path, place, ExitCode::checkpoint);
    }
  }
}

fs::path CheckpointWriter::save(const TrainingState& state, std::span<const TensorView> model,
                                std::span<const TensorView> optimizer) {
  DDP_ASSERT(state.step >= 0);
  const fs::path temporary = folder_ / (kTemporaryPrefix + step_folder_name(state.step));
  try {
    write_files(temporary, state, model, optimizer);
    publish(temporary, state.step);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
  // One by one, so that a link that cannot be moved does not fill the disk with checkpoints.
  or_warn(state.step, [&] { point_link("latest", state.step); });
  or_warn(state.step, [&] { remove_old(state.step); });
  return folder_ / step_folder_name(state.step);
}

void CheckpointWriter::note_evaluation(std::int64_t step, const Evaluation& evaluation, bool is_best) {
  const fs::path checkpoint = folder_ / step_folder_name(step);
  if (!there(checkpoint)) return;
  or_warn(step, [&] {
    begin("write evaluation");
    write_evaluation(checkpoint, evaluation);
  });
  if (!is_best) return;
  or_warn(step, [&] { point_link("best", step); });
  or_warn(step, [&] { remove_old(step); });
}

void CheckpointWriter::or_warn(std::int64_t step, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    log_warning("checkpoint {} is written, but: {}", step_folder_name(step), error.what());
  }
}

void CheckpointWriter::write_files(const fs::path& folder, const TrainingState& state,
                                   std::span<const TensorView> model, std::span<const TensorView> optimizer) {
  begin("make folder");
  remove_tree(folder);
  // Only this folder, not its parents: a run folder that was deleted must not be recreated.
  std::error_code error;
  fs::create_directory(folder, error);
  if (error) file_error(ExitCode::checkpoint, "create the folder", folder, error.value());
  const TensorMetadata metadata = {{"format", "pt"}, {"model", state.model}, {"step", std::to_string(state.step)}};
  Manifest manifest;
  begin("write model");
  manifest.files[kModelFile] = write_safetensors(folder / kModelFile, model, metadata);
  begin("write optimizer");
  manifest.files[kOptimizerFile] = write_safetensors(folder / kOptimizerFile, optimizer, metadata);
  begin("write state");
  manifest.files[kStateFile] = write_text(folder / kStateFile, to_json(state));
  begin("write manifest");
  write_text(folder / kManifestFile, to_json(manifest));
  begin("sync folder");
  sync_folder(folder, ExitCode::checkpoint);
  verify_files(folder, manifest);
}

void CheckpointWriter::publish(const fs::path& temporary, std::int64_t step) {
  const fs::path place = folder_ / step_folder_name(step);
  const fs::path replaced = folder_ / (kReplacedPrefix + step_folder_name(step));
  const bool replaces = there(place);
  if (replaces) {
    begin("set the old one aside");
    remove_folder(replaced);
    rename_path(place, replaced, ExitCode::checkpoint);
  }
  try {
    begin("rename into place");
    rename_path(temporary, place, ExitCode::checkpoint);
  } catch (...) {
    if (replaces) rename_path(replaced, place, ExitCode::checkpoint);
    throw;
  }
  begin("sync parent");
  sync_folder(folder_, ExitCode::checkpoint);
  if (replaces) remove_folder(replaced);
}

void CheckpointWriter::point_link(const char* name, std::int64_t step) {
  const fs::path link = run_dir_ / name;
  const fs::path temporary = run_dir_ / (std::string(kTemporaryPrefix) + name);
  begin(std::string("make link ") + name);
  remove_tree(temporary);
  std::error_code error;
  fs::create_symlink(fs::path(kCheckpointsFolder) / step_folder_name(step), temporary, error);
  if (error) file_error(ExitCode::checkpoint, "create the link", temporary, error.value());
  begin(std::string("move link ") + name);
  rename_path(temporary, link, ExitCode::checkpoint);
  sync_folder(run_dir_, ExitCode::checkpoint);
}

void CheckpointWriter::remove_link(const char* name) {
  const fs::path link = run_dir_ / name;
  std::error_code error;
  if (!fs::is_symlink(link, error)) return;
  begin(std::string("remove link ") + name);
  fs::remove(link, error);
  if (error) file_error(ExitCode::checkpoint, "remove", link, error.value());
}

void CheckpointWriter::remove_old(std::int64_t newest_step) {
  const std::optional<std::int64_t> best = step_of_link(run_dir_ / "best");
  int kept = 0;
  for (const CheckpointFolder& found : list_checkpoints(run_dir_)) {
    if (found.replaced || found.step > newest_step) continue;
    if (kept < keep_ || found.step == best) {
      ++kept;
      continue;
    }
    remove_folder(found.path);
  }
}

void CheckpointWriter::remove_folder(const fs::path& folder) {
  if (!there(folder)) return;
  const fs::path doomed = folder_ / (std::string(kTemporaryPrefix) + "removed");
  begin("set aside " + folder.filename().string());
  remove_tree(doomed);
  rename_path(folder, doomed, ExitCode::checkpoint);
  begin("remove " + folder.filename().string());
  remove_tree(doomed);
}

}  // namespace ddp
