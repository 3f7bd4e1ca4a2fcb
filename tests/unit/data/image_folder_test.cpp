#include "data/sources/image_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "data/images/image_decoder.h"
#include "data/sources/catalog.h"
#include "data/sources/class_text.h"
#include "unit/data/files.h"
#include "unit/data/golden_images.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

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
  return {listing.train,
          listing.classes,
          {.preprocessing = {.shape = {3, 32, 32}}, .limit = limit},
          std::make_shared<BadSamples>(allowed)};
}

FolderOptions folder_of(const Shape& shape) { return {.preprocessing = {.shape = shape}}; }

Bytes read_plain(const Dataset& data, std::int64_t index) {
  Bytes pixels(data.shape().size());
  data.read_plain(index, pixels);
  return pixels;
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
  EXPECT_EQ(listing.train.passed_over, (PassedOver{{".txt", 1}, {"Thumbs.db", 1}, {"hidden", 1}}));
  EXPECT_THAT(listing.warnings, IsEmpty());
  EXPECT_EQ(listing.test.files.size(), 2U);
}

TEST(ImageFolder, ReadsTheMiddleOfEachFile) {
  const TemporaryFolder root;
  write_folder(root.path(), "test");
  const DataSets data = open_dataset("folder", root.path().string(), 0, 0, 1, folder_of({3, 24, 24}));
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
  EXPECT_EQ(read_plain(*data.train, 1), by_region);
  EXPECT_EQ(read(*data.train, 0), read(*data.train, 3));
  EXPECT_NE(read(*data.train, 0), read(*data.train, 2));
}

// The largest central rectangle of 118x90 pixels with the aspect ratio 3:1, in evaluation's proportion.
TEST(ImageFolder, ShapesMayBeRectanglesAndGrey) {
  const TemporaryFolder root;
  write_folder(root.path());
  const DataSets colours = open_dataset("folder", root.path().string(), 0, 0, 1, folder_of({3, 16, 48}));
  const DataSets grey = open_dataset("folder", root.path().string(), 0, 0, 1, folder_of({1, 16, 48}));
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
  EXPECT_EQ(read_plain(*colours.train, 1), by_region);
  const Bytes pixels = read(*colours.train, 1);
  const Bytes levels = read(*grey.train, 1);
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const double level = 0.299 * pixels[i] + 0.587 * pixels[i + 768] + 0.114 * pixels[i + 1536];
    ASSERT_NEAR(levels[i], level, 0.51) << i;
  }
}

// Evaluation reads the bytes of Pillow (tests/golden/make_preprocessed.py), however they are kept.
TEST(ImageFolder, EvaluationReadsWhatPillowMakesOfThePicture) {
  std::ifstream lines(kGoldenImages.parent_path() / "preprocessed" / "cases.txt");
  std::string file;
  Shape shape{3, 0, 0};
  unsigned long crc = 0;
  int count = 0;
  while (lines >> file >> shape.height >> shape.width >> crc) {
    if (file.ends_with(".webp") && !webp_is_supported()) continue;
    const TemporaryFolder root;
    for (const std::string split : {"train", "val"}) {
      copy_image("../" + file, root.path() / split / "one" / fs::path(file).filename());
    }
    FolderOptions options = folder_of(shape);
    for (const std::string& cache : {std::string("off"), (root.path() / "cache").string()}) {
      options.image_cache = cache;
      const DataSets data = open_dataset("folder", root.path().string(), 0, 0, 1, options);
      for (const Dataset* split : {data.train.get(), data.test.get()}) {
        const Bytes pixels = read(*split, 0);
        EXPECT_EQ(crc32(0, pixels.data(), static_cast<uInt>(pixels.size())), crc)
            << file << " to " << shape.height << "x" << shape.width << ", cache " << cache;
      }
    }
    ++count;
  }
  EXPECT_GE(count, 60);
}

TEST(ImageFolder, RulesHoldForCachesAndRandomRegions) {
  const TemporaryFolder root;
  write_folder(root.path());
  FolderOptions options = folder_of({3, 40, 40});
  options.preprocessing.filter = Interpolation::bicubic;
  options.preprocessing.resize = PictureResize::pad;
  options.preprocessing.crop = 1;
  const DataSets plain = open_dataset("folder", root.path().string(), 0, 0, 1, options);
  options.image_cache = (root.path() / "cache").string();
  const DataSets cached = open_dataset("folder", root.path().string(), 0, 0, 1, options);
  EXPECT_EQ(read(*cached.test, 0), read(*plain.test, 0));
  const Bytes padded = read_plain(*cached.train, 1);
  // 118x90 pixels become 40x31 between borders of 4 and 5 rows.
  for (std::size_t i = 0; i < std::size_t{4} * 40; ++i) ASSERT_EQ(padded[i], 0);
  EXPECT_TRUE(std::any_of(padded.begin() + 160, padded.begin() + 200, [](std::uint8_t p) { return p > 0; }));
  options.preprocessing.filter = Interpolation::bilinear;
  const DataSets bilinear = open_dataset("folder", root.path().string(), 0, 0, 1, options);
  EXPECT_NE(read(*bilinear.test, 0), read(*plain.test, 0));
  // A mirrored region is the region mirrored.
  Bytes region(plain.train->shape().size());
  Bytes mirrored(region.size());
  plain.train->read_region(
      1,
      [](const ImageSize&) {
        return Region{9.5, 3, 71, 60};
      },
      region);
  plain.train->read_region(
      1,
      [](const ImageSize&) {
        return Region{9.5, 3, 71, 60, true};
      },
      mirrored);
  for (std::size_t row = 0; row < 120; ++row) {
    for (std::size_t x = 0; x < 40; ++x) ASSERT_EQ(region[row * 40 + x], mirrored[row * 40 + 39 - x]);
  }
}

// With --fast-decode, and in runs of earlier versions, evaluation reads what training reads.
TEST(ImageFolder, AFastEvaluationReadsWhatTrainingReads) {
  const TemporaryFolder root;
  write_folder(root.path());
  FolderOptions options = folder_of({3, 24, 24});
  const DataSets exact = open_dataset("folder", root.path().string(), 0, 0, 1, options);
  options.preprocessing.exact = false;
  const DataSets fast = open_dataset("folder", root.path().string(), 0, 0, 1, options);
  EXPECT_EQ(read(*fast.train, 0), read_plain(*fast.train, 0));
  EXPECT_EQ(read_plain(*fast.train, 0), read_plain(*exact.train, 0));
  EXPECT_NE(read(*exact.train, 0), read(*fast.train, 0));
}

TEST(ImageFolder, APictureOfTheRightSizeIsReadAsItIs) {
  const TemporaryFolder root;
  write_folder(root.path());
  FolderOptions options = folder_of({3, 90, 118});
  Bytes stored(options.preprocessing.shape.size());
  ImageDecoder decoder;
  decoder.load(kGoldenImages / "rgb.png");
  const Raster& raster =
      decoder.decode({[](const ImageSize& size) { return centre_region(size, 1, size); }, {118, 90}});
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const std::size_t plane = stored.size() / 3;
    stored[i] = raster.pixels[i % plane * 3 + i / plane];
  }
  const DataSets data = open_dataset("folder", root.path().string(), 0, 0, 1, options);
  EXPECT_EQ(read(*data.train, 1), stored);
  EXPECT_EQ(read_plain(*data.train, 1), stored);
  // Runs of earlier versions continue as they began.
  options.preprocessing.keeps_right_size = options.preprocessing.exact = false;
  EXPECT_NE(read(*open_dataset("folder", root.path().string(), 0, 0, 1, options).train, 1), stored);
}

TEST(ImageFolder, WebpFilesAreImagesWhereLibwebpIs) {
  const TemporaryFolder root;
  write_folder(root.path());
  copy_image("lossless.webp", root.path() / "train" / "b cat" / "4.WEBP");
  const auto open = [&] { return open_dataset("folder", root.path().string(), 0, 0, 1, folder_of({3, 48, 48})); };
  if (!webp_is_supported()) {
    EXPECT_THAT(error_of(ExitCode::data, [&] { open(); }), AllOf(HasSubstr("b cat/4.WEBP"), HasSubstr("launch/setup")));
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
  write_folder(root.path() / "photos");
  EXPECT_THAT(message(), HasSubstr("did you mean " + (root.path() / "photos").string()));
  fs::rename(root.path() / "photos" / "train", root.path() / "train");
  EXPECT_THAT(message(), AllOf(HasSubstr("no folder val, valid, validation or test"), HasSubstr("'photos', 'train'")));
  fs::create_directories(root.path() / "val");
  EXPECT_THAT(message(), HasSubstr("val: has no image of any class"));
  write_folder(root.path());
  fs::create_directories(root.path() / "train" / "empty");
  EXPECT_THAT(message(), HasSubstr("train/empty: the class has no image"));
  fs::remove(root.path() / "train" / "empty");
  // A folder without images belongs to no class.
  fs::create_directories(root.path() / "val" / "empty");
  EXPECT_THAT(list_image_folder(root.path()).warnings, IsEmpty());
  copy_image("photo.jpg", root.path() / "val" / "B Cat" / "1.jpg");
  EXPECT_THAT(message(), AllOf(HasSubstr("train: has no class 'B Cat', which"), HasSubstr("(but 'b cat')"),
                               HasSubstr("or remove " + (root.path() / "val" / "B Cat").string())));
}

TEST(ImageFolder, EvaluationLeavesOutClassesWithoutImages) {
  const TemporaryFolder root;
  write_folder(root.path());
  copy_image("photo.jpg", root.path() / "train" / "cow" / "1.jpg");
  copy_image("photo.jpg", root.path() / "train" / "dog" / "1.jpg");
  write_file(root.path() / "val" / "cow" / "1.RAW", Bytes{1});
  const FolderListing listing = list_image_folder(root.path());
  EXPECT_THAT(listing.classes, ElementsAre("b cat", "cow", "dog", "äpfel"));
  ASSERT_THAT(listing.warnings, SizeIs(1));
  EXPECT_THAT(listing.warnings[0], HasSubstr("val has no image of 2 of the 4 classes ('cow', 'dog'), only 1 file "
                                             "(1 .raw): evaluation leaves them out"));
  EXPECT_EQ(listing.test.files, (std::vector<ListedFile>{{"b cat/v.jpg", 0}, {"äpfel/v.jpg", 3}}));
  const DataSets data = open_dataset("folder", root.path().string(), 0, 0, 1, folder_of({3, 24, 24}));
  EXPECT_EQ(data.test->classes(), 4);
  EXPECT_EQ(data.test->label(1), 3);
}

TEST(ImageFolder, ValidEvaluatesBeforeTestUnlessTheRunIsOlder) {
  const TemporaryFolder root;
  write_folder(root.path(), "test");
  EXPECT_EQ(list_image_folder(root.path()).test.folder, root.path() / "test");
  for (const std::string name : {"validation", "valid", "val"}) {
    write_folder(root.path(), name);
    EXPECT_EQ(list_image_folder(root.path()).test.folder, root.path() / name);
    const fs::path older = root.path() / (name == "val" ? "val" : "test");
    EXPECT_EQ(list_image_folder(root.path(), {.valid_evaluates = false}).test.folder, older);
  }
  EXPECT_THAT(list_image_folder(root.path()).unused, ElementsAre("valid", "validation", "test"));
  const DataSets data = open_dataset("folder", root.path().string(), 0, 0, 1, folder_of({3, 24, 24}));
  EXPECT_THAT(data.evaluation, "val (valid, validation, test are not read)");
}

TEST(ImageFolder, OneClassAndNestingAreWarnedOf) {
  const TemporaryFolder root;
  for (const std::string split : {"train", "val"}) {
    copy_image("photo.jpg", root.path() / split / "train" / "cat" / "1.jpg");
    copy_image("photo.jpg", root.path() / split / "train" / "dog" / "1.jpg");
  }
  ASSERT_THAT(list_image_folder(root.path()).warnings, SizeIs(1));
  EXPECT_THAT(list_image_folder(root.path()).warnings[0],
              AllOf(HasSubstr("train has one class only, 'train'"), HasSubstr("its images lie in 'cat', 'dog'")));
  // Folders of patients in those of classes, say.
  for (const std::string name : {"a/1", "a/2", "train/3"})
    copy_image("photo.jpg", root.path() / "train" / name / "1.jpg");
  copy_image("photo.jpg", root.path() / "val" / "a" / "1.jpg");
  ASSERT_THAT(list_image_folder(root.path()).warnings, SizeIs(1));
  EXPECT_THAT(list_image_folder(root.path()).warnings[0],
              HasSubstr("those of 'a' lie in '1', '2' and are all of class"));
  copy_image("photo.jpg", root.path() / "train" / "a" / "1.jpg");
  EXPECT_THAT(list_image_folder(root.path()).warnings, IsEmpty());
}

TEST(ImageFolder, NamesMayBeAnyBytesAndComposedOrNot) {
  const TemporaryFolder root;
  const std::string latin = "caf\xE9";
  const std::string other = "caf\xE8";
  for (const std::string& name : {latin, other}) {
    copy_image("photo.jpg", root.path() / "train" / name / "1.jpg");
    copy_image("photo.jpg", root.path() / "val" / name / "1.jpg");
  }
  copy_image("photo.jpg", root.path() / "train" / "\u00E9t\u00E9" / "1.jpg");
  copy_image("photo.jpg", root.path() / "val" / "e\u0301te\u0301" / "1.jpg");
  const DataSets data = open_dataset("folder", root.path().string(), 0, 0, 1, folder_of({3, 24, 24}));
  EXPECT_THAT(data.train->class_names(), ElementsAre(R"(caf\xE8)", R"(caf\xE9)", "\u00E9t\u00E9"));
  EXPECT_EQ(data.test->class_names(), data.train->class_names());
  ASSERT_EQ(data.test->size(), 3);
  EXPECT_THAT(data.test->file(2), HasSubstr("val/e\u0301te\u0301/1.jpg"));
  EXPECT_EQ(data.test->label(2), 2);
  EXPECT_THAT(data.train->file(1), HasSubstr(R"(train/caf\xE9/1.jpg)"));
  // Two folders that look the same.
  copy_image("photo.jpg", root.path() / "train" / "e\u0301te\u0301" / "1.jpg");
  const FolderListing listing = list_image_folder(root.path());
  EXPECT_EQ(listing.classes.size(), 4U);
  EXPECT_THAT(listing.warnings, Contains(HasSubstr("two folders with the name")));
  EXPECT_THAT(listing.warnings, Contains(HasSubstr("has no image of 1 of the 4 classes")));
}

TEST(ImageFolder, SuffixesThatAreNotReadAreCounted) {
  const TemporaryFolder root;
  write_folder(root.path());
  copy_image("photo.jpg", root.path() / "train" / "cow" / "1.jfif");
  copy_image("photo.jpg", root.path() / "train" / "cow" / "2.JPE");
  EXPECT_EQ(list_image_folder(root.path()).train.files.size(), 8U);
  // A resumed run keeps its files.
  const FolderRules older = {.valid_evaluates = false, .jfif_is_jpeg = false, .all_formats = false};
  EXPECT_THAT(error_of(ExitCode::data, [&] { list_image_folder(root.path(), older); }),
              HasSubstr("cow: the class has no image (.jpg, .jpeg, .png or .webp), only 2 files (1 .jfif, 1 .jpe)"));
  for (const std::string name : {"1.CR2", "2.cr2", "3.psd", "4", "5.a very long end", ".DS_Store"}) {
    write_file(root.path() / "train" / "dog" / name, Bytes{1});
  }
  EXPECT_THAT(
      error_of(ExitCode::data, [&] { list_image_folder(root.path()); }),
      AllOf(HasSubstr(
                "dog: the class has no image (.jpg, .jpeg, .jpe, .jfif, .png, .webp, .bmp, .gif, .tif, .tiff, .heic, "
                ".heif or .avif), only 6 files"),
            HasSubstr("2 .cr2"), HasSubstr("1 .psd"), HasSubstr("1 without suffix"), HasSubstr("1 .DS_Store"),
            HasSubstr("convert them to JPEG or PNG")));
}

TEST(ImageFolder, SpecialFilesAreRefusedAtOnceAndNeverWaitedFor) {
  const TemporaryFolder root;
  write_folder(root.path());
  const fs::path pipe = root.path() / "train" / "b cat" / "0.jpg";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const auto open = [&](std::int64_t allowed) {
    return open_dataset("folder", root.path().string(), 0, 0, 1,
                        {.preprocessing = {.shape = {3, 24, 24}}, .max_bad_samples = allowed});
  };
  EXPECT_THAT(error_of(ExitCode::data, [&] { open(0); }),
              HasSubstr("b cat/0.jpg: is not a regular file but a named pipe"));
  const DataSets data = open(1);
  std::int64_t found = -1;
  read(*data.train, 0, &found);
  EXPECT_EQ(found, 1);
}

TEST(ImageFolder, AFolderThatCannotBeReadIsNamedItself) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads everything";
  const TemporaryFolder root;
  write_folder(root.path());
  const fs::path locked = root.path() / "train" / "b cat" / "deep";
  fs::permissions(locked, fs::perms::none);
  EXPECT_THAT(error_of(ExitCode::data, [&] { list_image_folder(root.path()); }),
              HasSubstr("b cat/deep: cannot be listed: Permission denied"));
  fs::permissions(locked, fs::perms::owner_all);
  fs::permissions(root.path(), fs::perms::owner_read);
  EXPECT_THAT(error_of(ExitCode::data, [&] { list_image_folder(root.path()); }),
              HasSubstr("train: cannot be opened: Permission denied"));
  fs::permissions(root.path(), fs::perms::owner_all);
}

// Another class would stand in for all of its images.
TEST(ImageFolder, AClassWithoutAReadableImageIsRefusedInTrainAndLeftOutInEvaluation) {
  const TemporaryFolder root;
  write_folder(root.path());
  const auto open = [&] {
    return open_dataset("folder", root.path().string(), 0, 0, 2,
                        {.preprocessing = {.shape = {3, 24, 24}}, .max_bad_samples = 9});
  };
  write_file(root.path() / "train" / "äpfel" / "1.jpg", Bytes{1});
  EXPECT_EQ(open().train->size(), 6);
  write_file(root.path() / "val" / "äpfel" / "v.jpg", Bytes{1});
  const DataSets data = open();
  EXPECT_EQ(data.test->size(), 1);
  EXPECT_EQ(data.test->classes(), 2);
  for (const auto& entry : fs::recursive_directory_iterator(root.path() / "train" / "äpfel")) {
    if (entry.is_regular_file()) write_file(entry.path(), Bytes{1, 2, 3});
  }
  EXPECT_THAT(
      error_of(ExitCode::data, [&] { open(); }),
      AllOf(HasSubstr("train/äpfel: no image of the class can be read ("), HasSubstr("äpfel/1.jpg: is not a JPEG")));
}

TEST(ImageFolder, TheHeaderNamesTheFirstClasses) {
  const TemporaryFolder root;
  write_folder(root.path());
  copy_image("photo.jpg", root.path() / "train" / "b cat" / "4.jpg");
  EXPECT_EQ(class_text(open_train(root.path())), "2: b cat 4, äpfel 3 images");
  for (const std::string name : {"c", "d", "e", "f", "g"})
    copy_image("photo.jpg", root.path() / "train" / name / "4.jpg");
  EXPECT_EQ(class_text(open_train(root.path())), "7: b cat 4, c 1, d 1, e 1, f 1, g 1, ...; of 1 to 4 images");
  EXPECT_EQ(class_text(*open_dataset("glyphs", "", 1000, 10, 1).train), "10, of 100 images");
}

}  // namespace
}  // namespace ddp
