#include "data/sources/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "data/images/image_decoder.h"
#include "data/sources/catalog.h"
#include "unit/data/files.h"
#include "unit/data/golden_images.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

void copy_image(const std::string& name, const fs::path& to) {
  fs::create_directories(to.parent_path());
  fs::copy_file(kGoldenImages / name, to, fs::copy_options::overwrite_existing);
}

// Two classes with three training images and one validation image each.
void write_folder(const fs::path& root, const std::string& validation = "val") {
  for (const std::string name : {"b cat", "äpfel"}) {
    copy_image("photo.jpg", root / "train" / name / "1.jpg");
    copy_image("rgb.png", root / "train" / name / "2 ü.PNG");
    copy_image("grey.jpg", root / "train" / name / "deep" / "3.jpeg");
    copy_image("photo.jpg", root / validation / name / "v.jpg");
  }
}

ImageFolder open_train(const fs::path& root, std::int64_t allowed = 0, std::int64_t limit = 0) {
  const FolderListing listing = list_image_folder(root);
  return {
      listing.train, listing.classes, {.shape = {3, 32, 32}, .limit = limit}, std::make_shared<BadSamples>(allowed)};
}

Bytes read(const Dataset& data, std::int64_t index, std::int64_t* found = nullptr) {
  Bytes pixels(data.shape().size());
  const std::int64_t got = data.read(index, pixels);
  if (found != nullptr) *found = got;
  return pixels;
}

TEST(ImageFolder, ClassesAreTheFoldersInSortedOrderAndFilesToo) {
  const TemporaryFolder root;
  write_folder(root.path());
  write_file(root.path() / "train" / "b cat" / "Thumbs.db", Bytes{1});
  write_file(root.path() / "train" / "b cat" / ".hidden.jpg", Bytes{1});
  write_file(root.path() / "train" / "b cat" / "notes.txt", Bytes{1});
  write_file(root.path() / "train" / "readme.txt", Bytes{1});
  const FolderListing listing = list_image_folder(root.path());
  EXPECT_THAT(listing.classes, ElementsAre("b cat", "äpfel"));
  std::vector<std::string> names;
  for (const ListedFile& file : listing.train.files) names.push_back(std::to_string(file.label) + " " + file.name);
  EXPECT_THAT(names, ElementsAre("0 b cat/1.jpg", "0 b cat/2 ü.PNG", "0 b cat/deep/3.jpeg", "1 äpfel/1.jpg",
                                 "1 äpfel/2 ü.PNG", "1 äpfel/deep/3.jpeg"));
  EXPECT_EQ(listing.train.passed_over, 3);
  EXPECT_EQ(listing.test.files.size(), 2U);
}

TEST(ImageFolder, ReadsTheMiddleOfEachFile) {
  const TemporaryFolder root;
  write_folder(root.path(), "test");
  const DataSets data = open_dataset("folder", root.path().string(), 0, 0, 1, {.height = 24, .width = 24});
  ASSERT_EQ(data.train->size(), 6);
  EXPECT_EQ(data.test->size(), 2);
  EXPECT_EQ(data.train->shape(), (Shape{3, 24, 24}));
  EXPECT_EQ(data.train->classes(), 2);
  EXPECT_THAT(data.test->class_names(), ElementsAre("b cat", "äpfel"));
  EXPECT_EQ(data.train->label(2), 0);
  EXPECT_EQ(data.train->label(3), 1);
  // The centre square of 118x90 pixels in evaluation's proportion, calculated by hand.
  Bytes by_region(data.train->shape().size());
  const double side = 90 * 0.875;
  data.train->read_region(
      1,
      [side](const ImageSize&) {
        return Region{(118 - side) / 2, (90 - side) / 2, side, side};
      },
      by_region);
  EXPECT_EQ(read(*data.train, 1), by_region);
  EXPECT_EQ(read(*data.train, 0), read(*data.train, 3));
  EXPECT_NE(read(*data.train, 0), read(*data.train, 2));
}

// The largest central rectangle of 118x90 pixels with the aspect ratio 3:1, in evaluation's proportion.
TEST(ImageFolder, ShapesMayBeRectanglesAndGrey) {
  const TemporaryFolder root;
  write_folder(root.path());
  const DataSets colours = open_dataset("folder", root.path().string(), 0, 0, 1, {.height = 16, .width = 48});
  const DataSets grey =
      open_dataset("folder", root.path().string(), 0, 0, 1, {.height = 16, .width = 48, .channels = 1});
  ASSERT_EQ(colours.train->shape(), (Shape{3, 16, 48}));
  ASSERT_EQ(grey.train->shape(), (Shape{1, 16, 48}));
  Bytes by_region(colours.train->shape().size());
  const double width = 118 * 0.875;
  const double height = width / 3;
  colours.train->read_region(
      1,
      [=](const ImageSize&) {
        return Region{(118 - width) / 2, (90 - height) / 2, width, height};
      },
      by_region);
  const Bytes pixels = read(*colours.train, 1);
  EXPECT_EQ(pixels, by_region);
  const Bytes levels = read(*grey.train, 1);
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const double level = 0.299 * pixels[i] + 0.587 * pixels[i + 768] + 0.114 * pixels[i + 1536];
    ASSERT_NEAR(levels[i], level, 0.51) << i;
  }
}

TEST(ImageFolder, WebpFilesAreImagesWhereLibwebpIs) {
  const TemporaryFolder root;
  write_folder(root.path());
  copy_image("lossless.webp", root.path() / "train" / "b cat" / "4.WEBP");
  const auto open = [&] { return open_dataset("folder", root.path().string(), 0, 0, 1, {.height = 48, .width = 48}); };
  if (!webp_is_supported()) {
    EXPECT_THAT(error_of(ExitCode::data, [&] { open(); }),
                AllOf(HasSubstr("b cat/4.WEBP"), HasSubstr("launch/setup --webp")));
    return;
  }
  // The same picture as rgb.png.
  const DataSets data = open();
  ASSERT_EQ(data.train->size(), 7);
  EXPECT_EQ(read(*data.train, 2), read(*data.train, 1));
}

TEST(ImageFolder, ALimitTakesAllClassesInTurn) {
  const TemporaryFolder root;
  write_folder(root.path());
  const ImageFolder data = open_train(root.path(), 0, 3);
  ASSERT_EQ(data.size(), 3);
  EXPECT_EQ(data.label(0), 0);
  EXPECT_EQ(data.label(1), 0);
  EXPECT_EQ(data.label(2), 1);
  EXPECT_EQ(open_train(root.path(), 0, 100).size(), 6);
}

TEST(ImageFolder, TheFirstBadFileEndsTheRunByDefault) {
  const TemporaryFolder root;
  write_folder(root.path());
  write_file(root.path() / "train" / "b cat" / "2 ü.PNG", Bytes{});
  const ImageFolder data = open_train(root.path());
  EXPECT_THAT(error_of(ExitCode::data, [&] { read(data, 1); }),
              AllOf(HasSubstr("train/b cat/2 ü.PNG: is empty"), HasSubstr("--max-bad-samples")));
}

TEST(ImageFolder, ANeighbourStandsInWithItsLabelUntilThereAreTooMany) {
  const TemporaryFolder root;
  write_folder(root.path());
  const ImageFolder data = open_train(root.path(), 2);
  const Bytes first = read(data, 0);
  write_file(root.path() / "train" / "äpfel" / "deep" / "3.jpeg", Bytes{'n', 'o'});
  for (int again = 0; again < 3; ++again) {
    std::int64_t found = -1;
    EXPECT_EQ(read(data, 5, &found), first);  // the next index wraps around to the first
    EXPECT_EQ(found, 0);
  }
  fs::remove(root.path() / "train" / "b cat" / "1.jpg");
  std::int64_t found = -1;
  read(data, 5, &found);
  EXPECT_EQ(found, 1);
  fs::remove(root.path() / "train" / "b cat" / "2 ü.PNG");
  EXPECT_THAT(error_of(ExitCode::data, [&] { read(data, 1); }),
              AllOf(HasSubstr("b cat/2 ü.PNG"), HasSubstr("with it 3 files"), HasSubstr("--max-bad-samples 2")));
}

TEST(ImageFolder, WhereNothingCanBeReadTheRunEnds) {
  const TemporaryFolder root;
  write_folder(root.path());
  for (const auto& entry : fs::recursive_directory_iterator(root.path() / "train")) {
    if (entry.is_regular_file()) write_file(entry.path(), Bytes{1, 2, 3});
  }
  const ImageFolder data = open_train(root.path(), 1000);
  EXPECT_THAT(error_of(ExitCode::data, [&] { read(data, 4); }), HasSubstr("none of the 6 images can be read"));
}

TEST(ImageFolder, AnOrderThatIsNoneIsSaidInOneLine) {
  const TemporaryFolder root;
  const auto message = [&] { return error_of(ExitCode::data, [&] { list_image_folder(root.path()); }); };
  EXPECT_THAT(error_of(ExitCode::data, [] { list_image_folder("/nowhere"); }), HasSubstr("/nowhere is not a folder"));
  EXPECT_THAT(message(), HasSubstr("train is not a folder"));
  fs::create_directories(root.path() / "train");
  EXPECT_THAT(message(), HasSubstr("neither a folder val nor a folder test"));
  fs::create_directories(root.path() / "val");
  EXPECT_THAT(message(), HasSubstr("no folders of classes"));
  write_folder(root.path());
  fs::create_directories(root.path() / "train" / "empty");
  EXPECT_THAT(message(), AllOf(HasSubstr("val: has no class 'empty'"), HasSubstr("train has")));
  fs::create_directories(root.path() / "val" / "empty");
  EXPECT_THAT(message(), HasSubstr("train/empty: the class has no image"));
  fs::remove(root.path() / "train" / "empty");
  EXPECT_THAT(message(), HasSubstr("train: has no class 'empty'"));
}

}  // namespace
}  // namespace ddp
