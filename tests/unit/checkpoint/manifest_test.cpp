#include "checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/errors.h"
#include "unit/checkpoint/sample.h"

namespace ddp {
namespace {

using ::testing::HasSubstr;

Manifest sample_manifest() {
  Manifest manifest;
  manifest.files["model.safetensors"] = {1724, "0123456789abcdef0123456789abcdef"};
  manifest.files["state.json"] = {300, "fedcba9876543210fedcba9876543210"};
  return manifest;
}

std::string manifest_error(const std::string& text) {
  return error_text(ExitCode::checkpoint, [&] { parse_manifest(text, "RUN/MANIFEST.json"); });
}

TEST(ManifestTest, ComesBackAsItWas) {
  const Manifest manifest = sample_manifest();
  const Manifest same = parse_manifest(to_json(manifest), "MANIFEST.json");
  EXPECT_EQ(same.format_version, manifest.format_version);
  EXPECT_EQ(same.files, manifest.files);
}

// A flip that still parses must change what the manifest says: a file's name, size or hash, or the version.
TEST(ManifestTest, EveryFlippedBitShows) {
  const Manifest manifest = sample_manifest();
  const std::string text = to_json(manifest);
  int refused = 0;
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    try {
      EXPECT_NE(parse_manifest(with_flipped_bit(text, bit), "MANIFEST.json").files, manifest.files) << bit;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::checkpoint);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
}

TEST(ManifestTest, EveryTruncationIsRefused) {
  const std::string text = to_json(sample_manifest());
  for (std::size_t size = 0; size < text.size(); ++size) {
    EXPECT_THAT(manifest_error(text.substr(0, size)), HasSubstr("RUN/MANIFEST.json: "));
  }
}

TEST(ManifestTest, OtherTextsAndVersionsAreRefused) {
  for (const char* text : {"[]", "{}", "3", "{\"format\": 3}", "{\"format\": \"other\"}"}) {
    EXPECT_THAT(manifest_error(text), HasSubstr("manifest"));
  }
  Manifest manifest = sample_manifest();
  manifest.format_version = 7;
  EXPECT_THAT(manifest_error(to_json(manifest)), HasSubstr("has format version 7, this program reads version 1"));
  // A wrong version is reported before anything else.
  EXPECT_THAT(manifest_error(R"({"format": "ddp_train checkpoint", "format_version": 7})"),
              HasSubstr("format version 7"));
  EXPECT_THAT(manifest_error(R"({"format": "ddp_train checkpoint", "format_version": 1e300})"),
              HasSubstr("not a number"));
}

}  // namespace
}  // namespace ddp
