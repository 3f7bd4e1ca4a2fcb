#include "data/index/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <random>

#include "data/sources/catalog.h"
#include "unit/data/files.h"
#include "unit/data/golden_images.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// Two classes, with sizes on both sides of the ends that are read.
void write_classes(const fs::path& root, int cats, int dogs, unsigned seed) {
  const auto write = [&](const char* label, int i, std::uint64_t stream) {
    const auto size = static_cast<std::size_t>(100 + 137 * i);
    write_file(root / label / fmt::format("{}.jpg", i), random_bytes(size, (std::uint64_t{seed} << 20U) + stream));
  };
  for (int i = 0; i < cats; ++i) write("cat", i, static_cast<std::uint64_t>(2 * i));
  for (int i = 0; i < dogs; ++i) write("dog", i, static_cast<std::uint64_t>(2 * i + 1));
}

std::map<std::string, char> parts_of(const fs::path& root, const SplitRule& rule) {
  const FolderListing listing = list_undivided_folder(undivided_folder(root));
  const std::vector<std::uint64_t> keys =
      rule.group.empty() ? content_keys(listing.train, 2) : group_keys(listing.train, rule.group);
  const std::string parts = choose_parts(listing, keys, rule);
  std::map<std::string, char> found;
  for (std::size_t i = 0; i < parts.size(); ++i) found[listing.train.files[i].name] = parts[i];
  return found;
}

std::ptrdiff_t evaluating(const std::map<std::string, char>& parts, const std::string& prefix = "") {
  return std::count_if(parts.begin(), parts.end(),
                       [&](const auto& each) { return each.first.starts_with(prefix) && each.second == kEvaluates; });
}

TEST(Split, CopiesStayTogetherAndNewFilesMoveNoOther) {
  const TemporaryFolder folder;
  write_classes(folder.path(), 150, 40, std::random_device{}());
  const auto before = parts_of(folder.path(), {.share = 0.3});
  // Expected 45 and 12, with standard deviations of 5.6 and 2.9.
  EXPECT_NEAR(static_cast<double>(evaluating(before, "cat/")), 45, 6 * 5.6);
  EXPECT_NEAR(static_cast<double>(evaluating(before, "dog/")), 12, 6 * 2.9 + 1);
  for (const auto& [name, part] : before) {
    fs::copy_file(folder.path() / name, folder.path() / name.substr(0, 3) / ("copy " + name.substr(4)));
  }
  const auto after = parts_of(folder.path(), {.share = 0.3});
  EXPECT_EQ(after.size(), 2 * before.size());
  for (const auto& [name, part] : before) {
    EXPECT_EQ(after.at(name), part) << name;
    EXPECT_EQ(after.at(name.substr(0, 4) + "copy " + name.substr(4)), part) << name;
  }
}

TEST(Split, EveryImageEvaluatesInOneFold) {
  const TemporaryFolder folder;
  write_classes(folder.path(), 60, 60, std::random_device{}());
  std::map<std::string, int> times;
  for (int number = 1; number <= 4; ++number) {
    const auto parts = parts_of(folder.path(), {.fold = {number, 4}});
    for (const auto& [name, part] : parts) times[name] += part == kEvaluates ? 1 : 0;
    EXPECT_GT(evaluating(parts), 5);
  }
  for (const auto& [name, count] : times) EXPECT_EQ(count, 1) << name;
}

TEST(Split, OfFewImagesOneIsOnEachSide) {
  const TemporaryFolder folder;
  for (unsigned seed = 0; seed < 20; ++seed) {
    write_classes(folder.path(), 2, 3, seed);
    for (const SplitRule& rule : {SplitRule{.share = 0.01}, SplitRule{.share = 0.99}, SplitRule{.fold = {5, 5}}}) {
      const auto parts = parts_of(folder.path(), rule);
      EXPECT_EQ(evaluating(parts, "cat/"), 1);
      EXPECT_GE(evaluating(parts, "dog/"), 1);
      EXPECT_LE(evaluating(parts, "dog/"), 2);
    }
  }
}

TEST(Split, GroupsStayTogether) {
  const TemporaryFolder folder;
  const std::uint64_t seed = std::uint64_t{std::random_device{}()} << 20U;
  for (int i = 0; i < 200; ++i) {
    write_file(folder.path() / (i % 2 == 0 ? "ill" : "well") / fmt::format("patient_{}_{}.png", i / 10, i),
               random_bytes(50, seed + static_cast<std::uint64_t>(i)));
  }
  const auto parts = parts_of(folder.path(), {.share = 0.4, .group = "patient_([0-9]+)"});
  std::map<std::string, char> of_patient;
  for (const auto& [name, part] : parts) {
    const std::string patient = name.substr(name.find('_') + 1, name.rfind('_') - name.find('_') - 1);
    EXPECT_EQ(of_patient.emplace(patient, part).first->second, part) << name;
  }
  EXPECT_GT(evaluating(parts), 0);
  EXPECT_LT(evaluating(parts), 200);
  EXPECT_THAT(error_of(ExitCode::usage, [&] { parts_of(folder.path(), {.group = "patient_("}); }),
              HasSubstr("is not a regular expression"));
  EXPECT_THAT(error_of(ExitCode::usage, [&] { parts_of(folder.path(), {.group = "camera"}); }),
              HasSubstr("matches no file, such as ill/patient_"));
}

TEST(Split, WhichFoldersAreUndivided) {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  EXPECT_EQ(undivided_folder(root / "nothing"), "");
  EXPECT_EQ(undivided_folder(root), "");
  write_file(root / "photos" / "cat" / "notes.txt", std::string("x"));
  EXPECT_EQ(undivided_folder(root / "photos"), "") << "no image";
  write_file(root / "photos" / "cat" / "1.jpg", std::string("x"));
  EXPECT_EQ(undivided_folder(root / "photos"), root / "photos");
  write_file(root / "parts" / "train" / "cat" / "1.jpg", std::string("x"));
  EXPECT_EQ(undivided_folder(root / "parts"), root / "parts" / "train");
  fs::create_directories(root / "parts" / "valid");
  EXPECT_EQ(undivided_folder(root / "parts"), "");
  EXPECT_EQ(undivided_folder(root), "") << "the folder above one with train/";
}

TEST(Split, APipeIsNotRead) {
  const TemporaryFolder folder;
  write_classes(folder.path(), 3, 3, 1);
  ASSERT_EQ(mkfifo((folder.path() / "cat" / "pipe.jpg").c_str(), 0600), 0);
  EXPECT_EQ(parts_of(folder.path(), {}).size(), 7U);
}

TEST(Split, TheFileSaysWhatDiffers) {
  FolderListing listing;
  listing.classes = {"a,b", "c"};
  listing.train.folder = "photos";
  listing.train.files = {{"a,b/1.jpg", 0}, {"a,b/2 \"x\".jpg", 0}, {"c/\xE9.jpg", 1}, {"c/4.jpg", 1}};
  const std::string csv = split_csv(listing, "tvtv");
  EXPECT_EQ(csv,
            "path,label,part\n\"a,b/1.jpg\",\"a,b\",train\n\"a,b/2 \"\"x\"\".jpg\",\"a,b\",val\nc/\\xE9.jpg,c,train\n"
            "c/4.jpg,c,val\n");
  EXPECT_EQ(split_difference(csv, csv), "");
  EXPECT_EQ(split_difference(csv, split_csv(listing, "tvvv")), "c/\\xE9.jpg was in train and is in val");
  listing.train.files.back().name = "c/5.jpg";
  EXPECT_THAT(split_difference(csv, split_csv(listing, "tvtv")),
              AllOf(HasSubstr("c/5.jpg is new, in val"), HasSubstr("c/4.jpg was in val and is missing")));
  EXPECT_THAT(error_of(ExitCode::data, [&] { divide(listing, "tv"); }), HasSubstr("has 4 images here, but 2"));
  divide(listing, "tvtv");
  EXPECT_THAT(listing.train.files, ElementsAre(ListedFile{"a,b/1.jpg", 0}, ListedFile{"c/\xE9.jpg", 1}));
  EXPECT_EQ(listing.test.folder, "photos");
  EXPECT_THAT(listing.test.files, ElementsAre(ListedFile{"a,b/2 \"x\".jpg", 0}, ListedFile{"c/5.jpg", 1}));
}

TEST(Split, AClassOfOneImageTrains) {
  FolderListing listing;
  listing.classes = {"a", "b"};
  listing.train.files = {{"a/1.jpg", 0}, {"b/1.jpg", 1}, {"b/2.jpg", 1}};
  const std::vector<std::uint64_t> keys = {1, 2, 3};
  divide(listing, choose_parts(listing, keys, {.share = 0.5}));
  EXPECT_THAT(listing.test.files, ElementsAre(ListedFile{"b/1.jpg", 1}));
  EXPECT_THAT(listing.warnings, ElementsAre(HasSubstr("1 of 2 classes have a single picture each ('a')")));
  listing.train.files = {{"a/1.jpg", 0}};
  listing.test.files.clear();
  EXPECT_THAT(error_of(ExitCode::data, [&] { divide(listing, "t"); }), HasSubstr("no image is left to evaluate"));
}

TEST(Split, TheDataSetsAreTheParts) {
  const TemporaryFolder folder;
  for (const std::string name : {"cat", "dog"}) {
    fs::create_directories(folder.path() / name);
    for (const std::string image : {"photo.jpg", "rgb.png", "grey.jpg"})
      fs::copy_file(kGoldenImages / image, folder.path() / name / image);
  }
  FolderOptions options{.parts = "tvttvt", .split = "as the test says"};
  options.preprocessing.shape = {3, 32, 32};
  const DataSets data = open_dataset("folder", folder.path().string(), 0, 0, 1, options);
  EXPECT_EQ(data.train->size(), 4);
  EXPECT_EQ(data.test->size(), 2);
  EXPECT_THAT(data.test->file(1), HasSubstr("dog/"));
  EXPECT_EQ(data.test->label(1), 1);
  EXPECT_EQ(data.evaluation, "as the test says (1 cat, 1 dog)");
}

TEST(Split, CopiesInBothPartsAreFound) {
  const TemporaryFolder folder;
  write_classes(folder.path() / "train", 30, 30, 1);
  write_classes(folder.path() / "val", 5, 5, 2);  // of the same sizes
  EXPECT_EQ(find_copies(list_image_folder(folder.path()), 2).count, 0);
  fs::copy_file(folder.path() / "train/cat/17.jpg", folder.path() / "val/dog/x.jpg");
  for (int i = 0; i < 4; ++i) {
    fs::copy_file(folder.path() / "train/dog/20.jpg", folder.path() / "val/cat" / fmt::format("y{}.jpg", i));
  }
  const Copies copies = find_copies(list_image_folder(folder.path()), 2);
  EXPECT_EQ(copies.count, 5);
  ASSERT_EQ(copies.first.size(), 3U);
  EXPECT_THAT(copies.first[0], AllOf(HasSubstr("val/cat/y0.jpg is "), HasSubstr("train/dog/20.jpg")));
}

TEST(Split, Folds) {
  EXPECT_EQ(parse_fold("").folds, 0);
  EXPECT_EQ(parse_fold("2/5").number, 2);
  EXPECT_EQ(parse_fold("2/5").folds, 5);
  for (const char* bad : {"0/5", "6/5", "1", "1/", "/5", "1/1", "a/5", "1/5x", "1/99999999999"})
    EXPECT_THAT(error_of(ExitCode::usage, [&] { parse_fold(bad); }), HasSubstr(bad));
}

}  // namespace
}  // namespace ddp
