// Damaged and foreign checkpoints are rejected with one line that says why, and the newest intact one is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "checkpoint/layout.h"
#include "checkpoint/reader.h"
#include "checkpoint/writer.h"
#include "support/errors.h"
#include "support/temporary_folder.h"
#include "unit/checkpoint/sample.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<std::string> kFiles = {kModelFile, kOptimizerFile, kStateFile, kManifestFile};

// A run with intact checkpoints at steps 10 and 20; the tests damage the second.
class DamageTest : public ::testing::Test {
 protected:
  DamageTest() {
    CheckpointWriter writer(run_, 3);
    for (Sample* sample : {&first_, &second_}) {
      newest_ = writer.save(sample->state, sample->model.views(), sample->optimizer.views());
    }
  }

  std::string open_error() {
    return error_text(ExitCode::checkpoint, [&] { open_checkpoint(newest_); });
  }

  // The damaged checkpoint is rejected, and the previous one is found, with a warning.
  void expect_fallback(const std::string& file) {
    EXPECT_THAT(open_error(), HasSubstr((newest_ / file).string()));
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(find_checkpoint(run_)->state, first_.state);
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                AllOf(HasSubstr("warning: skipped a checkpoint: "), HasSubstr((newest_ / file).string())));
  }

  // Replaces a file and updates the manifest to match, to get past the hashes.
  void forge(const std::string& file, const std::string& bytes) {
    write_bytes(newest_ / file, bytes);
    Manifest manifest = parse_manifest(read_bytes(newest_ / kManifestFile), "MANIFEST.json");
    manifest.files[file] = digest_of_file(newest_ / file);
    write_bytes(newest_ / kManifestFile, to_json(manifest));
  }

  std::string load_error(const std::string& model = "lenet") {
    const Checkpoint checkpoint = open_checkpoint(newest_);
    Sample into(random_, 0);
    const auto model_bits = into.model.bits();
    const auto optimizer_bits = into.optimizer.bits();
    std::string text =
        error_text(ExitCode::checkpoint, [&] { load(checkpoint, model, into.model.views(), into.optimizer.views()); });
    EXPECT_EQ(into.model.bits(), model_bits) << "memory was written before all was checked";
    EXPECT_EQ(into.optimizer.bits(), optimizer_bits) << "memory was written before all was checked";
    return text;
  }

  TemporaryFolder folder_;
  fs::path run_ = folder_.path() / "run";
  fs::path newest_;
  std::uint64_t seed_ = std::random_device()();
  std::mt19937_64 random_{seed_};
  ::testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  Sample first_{random_, 10};
  Sample second_{random_, 20};
};

TEST_F(DamageTest, ACheckpointThatLatestNamesAndThatIsMissingIsNotPassedOverInSilence) {
  std::filesystem::remove_all(newest_);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(find_checkpoint(run_)->state, first_.state);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("warning: "), HasSubstr("latest leads to " + newest_.filename().string())));
  std::filesystem::remove_all(run_ / kCheckpointsFolder);
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(find_checkpoint(run_).has_value());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("warning: "));
}

TEST_F(DamageTest, AFlippedBitAnywhere) {
  for (const std::string& file : kFiles) {
    const std::string good = read_bytes(newest_ / file);
    for (int round = 0; round < 100; ++round) {
      write_bytes(newest_ / file, with_flipped_bit(good, random_() % (good.size() * 8)));
      EXPECT_THAT(open_error(), HasSubstr(newest_.string())) << file;
    }
    // A flipped bit in the manifest may be reported as another file's hash mismatch.
    if (file != kManifestFile) expect_fallback(file);
    write_bytes(newest_ / file, good);
  }
  EXPECT_EQ(open_checkpoint(newest_).state, second_.state);
}

TEST_F(DamageTest, ATruncatedOrLongerFile) {
  for (const std::string& file : kFiles) {
    const std::string good = read_bytes(newest_ / file);
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, good.size() / 2, good.size() - 1}) {
      write_bytes(newest_ / file, good.substr(0, size));
      expect_fallback(file);
    }
    write_bytes(newest_ / file, good + "x");
    expect_fallback(file);
    write_bytes(newest_ / file, good);
  }
}

TEST_F(DamageTest, AMissingFile) {
  for (const std::string& file : kFiles) {
    fs::rename(newest_ / file, folder_.path() / file);
    EXPECT_THAT(open_error(), HasSubstr("No such file or directory"));
    expect_fallback(file);
    fs::create_directory(newest_ / file);
    EXPECT_THAT(open_error(), HasSubstr(file));
    fs::remove(newest_ / file);
    fs::rename(folder_.path() / file, newest_ / file);
  }
}

// FIFOs would block; devices and sparse files would exhaust memory or take hours to hash.
TEST_F(DamageTest, WhatIsNoFileOfItsSize) {
  for (const std::string& file : kFiles) {
    const std::string good = read_bytes(newest_ / file);
    fs::resize_file(newest_ / file, std::uintmax_t{100} << 30U);
    expect_fallback(file);
    fs::remove(newest_ / file);
    ASSERT_EQ(::mkfifo((newest_ / file).c_str(), 0666), 0);
    expect_fallback(file);
    fs::remove(newest_ / file);
    fs::create_symlink("/dev/zero", newest_ / file);
    expect_fallback(file);
    fs::remove(newest_ / file);
    write_bytes(newest_ / file, good);
  }
}

TEST_F(DamageTest, AManifestThatForgetsAFile) {
  for (const char* file : {kModelFile, kOptimizerFile, kStateFile}) {
    const std::string good = read_bytes(newest_ / kManifestFile);
    Manifest manifest = parse_manifest(good, "MANIFEST.json");
    manifest.files.erase(file);
    write_bytes(newest_ / kManifestFile, to_json(manifest));
    EXPECT_THAT(open_error(), HasSubstr(std::string("does not list ") + file));
    write_bytes(newest_ / kManifestFile, good);
  }
}

TEST_F(DamageTest, AnotherFormatVersion) {
  Manifest manifest = parse_manifest(read_bytes(newest_ / kManifestFile), "MANIFEST.json");
  manifest.format_version = 2;
  write_bytes(newest_ / kManifestFile, to_json(manifest));
  EXPECT_THAT(open_error(), HasSubstr("format version 2, this program reads version 1; resume with the ddp_train"));
  expect_fallback(kManifestFile);
}

TEST_F(DamageTest, AllCheckpointsBadIsAnError) {
  for (const CheckpointFolder& found : list_checkpoints(run_)) fs::remove(found.path / kStateFile);
  ::testing::internal::CaptureStderr();
  EXPECT_THAT(error_text(ExitCode::checkpoint, [&] { find_checkpoint(run_); }),
              AllOf(HasSubstr("none of the 2 checkpoints is intact"), HasSubstr("--resume none")));
  ::testing::internal::GetCapturedStderr();
}

TEST_F(DamageTest, PathsThatAreNoCheckpoint) {
  const auto error_at = [&](const fs::path& path) {
    return error_text(ExitCode::checkpoint, [&] { open_checkpoint(path); });
  };
  EXPECT_THAT(error_at(run_ / "nowhere"), HasSubstr("nowhere: no such checkpoint; expected a folder such as"));
  EXPECT_THAT(error_at(newest_ / kModelFile), HasSubstr(kModelFile));
  EXPECT_THAT(error_at(folder_.path()), HasSubstr("MANIFEST.json: No such file"));
  fs::remove_all(run_ / kCheckpointsFolder);
  EXPECT_THAT(error_at(run_ / "latest"), HasSubstr("no such checkpoint"));
  fs::create_directory(run_ / kCheckpointsFolder);
  EXPECT_THAT(error_at(run_), HasSubstr("contains no checkpoint"));
}

TEST_F(DamageTest, AnotherModel) {
  EXPECT_THAT(load_error("resnet18"),
              AllOf(HasSubstr(newest_.string()),
                    HasSubstr("is a checkpoint of the model 'lenet', but this run uses 'resnet18'"),
                    HasSubstr("--model lenet")));
}

TEST_F(DamageTest, OtherNamesOrShapes) {
  const Checkpoint checkpoint = open_checkpoint(newest_);
  auto shapes = sample_shapes();
  shapes[0] = {4, 1, 3, 3};
  SampleTensors wider(random_, shapes, "layer.");
  SampleTensors none(random_, {}, "");
  const auto error_with = [&](const SampleTensors& model, const SampleTensors& optimizer) {
    const auto bits = model.bits();
    std::string text =
        error_text(ExitCode::checkpoint, [&] { load(checkpoint, "lenet", model.views(), optimizer.views()); });
    EXPECT_EQ(model.bits(), bits) << "memory was written before all was checked";
    return text;
  };
  EXPECT_THAT(
      error_with(wider, second_.optimizer),
      AllOf(HasSubstr(kModelFile), HasSubstr("'layer.0' has shape [3, 1, 3, 3] in the checkpoint, [4, 1, 3, 3]")));
  EXPECT_THAT(error_with(first_.model, none),
              AllOf(HasSubstr(kOptimizerFile), HasSubstr("'momentum.0' of the checkpoint is not in this run")));
  EXPECT_THAT(error_with(first_.model, first_.model),
              AllOf(HasSubstr(kOptimizerFile), HasSubstr("'layer.0' of this run is not in the checkpoint")));
}

TEST_F(DamageTest, ForgedFilesWhoseHashesAgree) {
  const std::string good = read_bytes(newest_ / kOptimizerFile);
  std::string forged = good;
  const std::uint64_t length = ~std::uint64_t{0} - 7;
  std::memcpy(forged.data(), &length, sizeof(length));
  forge(kOptimizerFile, forged);
  EXPECT_THAT(open_error(), AllOf(HasSubstr(kOptimizerFile), HasSubstr("the header is 18446744073709551608 bytes")));
  forge(kOptimizerFile, good.substr(0, good.size() - 4));
  EXPECT_THAT(open_error(), HasSubstr("ends at byte"));
  forged = good;
  forged.replace(forged.find("F32"), 3, "I32");
  forge(kOptimizerFile, forged);
  EXPECT_THAT(open_error(), HasSubstr("is of type I32"));
  forged = good;
  forged.replace(forged.find("momentum.1"), 10, "momentum.0");
  forge(kOptimizerFile, forged);
  EXPECT_THAT(open_error(), HasSubstr("names 'momentum.0' twice"));
  forge(kOptimizerFile, read_bytes(newest_ / kModelFile));
  EXPECT_THAT(load_error(), HasSubstr("'momentum.0' of this run is not in the checkpoint"));
  forge(kStateFile, "{}");
  EXPECT_THAT(open_error(), HasSubstr("'format_version' is missing"));
}

TEST_F(DamageTest, DamageAfterOpeningIsFoundAtLoading) {
  const Checkpoint checkpoint = open_checkpoint(newest_);
  for (const char* file : {kModelFile, kOptimizerFile}) {
    const std::string good = read_bytes(newest_ / file);
    write_bytes(newest_ / file, with_flipped_bit(good, good.size() * 8 - 1));
    EXPECT_THAT(error_text(ExitCode::checkpoint,
                           [&] { load(checkpoint, "lenet", first_.model.views(), first_.optimizer.views()); }),
                AllOf(HasSubstr(file), HasSubstr("its contents have changed since it was written")));
    write_bytes(newest_ / file, good);
  }
}

}  // namespace
}  // namespace ddp
