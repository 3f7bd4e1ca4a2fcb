// The rule of what is done to pictures: the bytes of Pillow (tests/golden/make_preprocessed.py), words and recipes.
#include "data/images/preprocessing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <fstream>
#include <string>

#include "data/images/image_decoder.h"
#include "unit/data/files.h"
#include "unit/data/golden_images.h"

namespace ddp {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// With all filters and ways of resizing, also as training reads, which is nearly the same.
TEST(Preprocessing, AllRulesGiveWhatPillowMakesOfThePicture) {
  std::ifstream lines(kGoldenImages.parent_path() / "preprocessed" / "rules.txt");
  std::string file;
  std::string resize;
  std::string filter;
  Preprocessing rule;
  unsigned long crc = 0;
  int count = 0;
  while (lines >> file >> rule.shape.height >> rule.shape.width >> resize >> rule.crop >> filter >> crc) {
    rule.resize = resize == "pad"      ? PictureResize::pad
                  : resize == "squash" ? PictureResize::squash
                                       : PictureResize::crop;
    rule.filter = filter == "bicubic" ? Interpolation::bicubic : Interpolation::bilinear;
    Bytes exact(rule.shape.size());
    ImageDecoder decoder;
    decoder.load(kGoldenImages / ".." / file);
    decoder.decode_shown(rule, true, exact);
    EXPECT_EQ(crc32(0, exact.data(), static_cast<uInt>(exact.size())), crc)
        << file << " to " << rule.shape.height << "x" << rule.shape.width << " " << rule.recipe();
    Bytes fast(exact.size());
    decoder.decode_shown(rule, false, fast);
    double apart = 0;
    for (std::size_t i = 0; i < exact.size(); ++i)
      apart += std::abs(static_cast<int>(exact[i]) - static_cast<int>(fast[i]));
    EXPECT_LE(apart / static_cast<double>(exact.size()), file.ends_with("small.png") ? 6 : 2.5)
        << file << rule.recipe();
    ++count;
  }
  EXPECT_EQ(count, 192);
}

TEST(Preprocessing, IsSaidInWordsAndAsARecipe) {
  Preprocessing p{.shape = {3, 224, 224}};
  EXPECT_EQ(p.text(), "shorter side to 256, central 224, bilinear; those of 224x224 as they are");
  EXPECT_EQ(p.recipe(),
            R"({"color": "RGB", "height": 224, "width": 224, "crop": 0.875, "filter": "bilinear", "antialias": true, )"
            R"("keep_if_size_matches": true, "exact": true, "exif_orientation": true})");
  p = {.shape = {1, 40, 24}, .keeps_right_size = false, .exact = false, .upright = false};
  EXPECT_EQ(
      p.text(true),
      "in evaluation central 87.5% of the largest 40x24 rectangle, bilinear; in grey; large ones shrunk while they are "
      "decoded; EXIF orientation ignored");
  EXPECT_THAT(p.recipe(), testing::Not(HasSubstr("exif")));
  p = {.shape = {3, 20, 24}, .resize = PictureResize::squash, .filter = Interpolation::bicubic, .crop = 1};
  EXPECT_EQ(p.text(), "squashed to 20x24, bicubic; those of 20x24 as they are");
  EXPECT_THAT(p.recipe(), HasSubstr(R"("crop": 1, "resize": "squash", "filter": "bicubic")"));
  p.crop = 0.8;
  EXPECT_THAT(p.text(), HasSubstr("squashed to 25x30, central 20x24"));
  p.resize = PictureResize::pad;
  EXPECT_THAT(p.text(), HasSubstr("all of each in 20x24 between black borders"));
  p = {.shape = {1, 40, 24}, .keeps_right_size = false, .exact = false, .upright = false};
  EXPECT_THAT(p.recipe(),
              AllOf(HasSubstr(R"("color": "L", "height": 40, "width": 24)"), HasSubstr(R"("exact": false)")));
}

}  // namespace
}  // namespace ddp
