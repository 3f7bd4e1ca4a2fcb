// Tests indexes of shards: which pictures of tar files and TFRecords are found, where, and with which label.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "base/crc32c.h"
#include "data/shards/record_index.h"
#include "data/shards/shard_names.h"
#include "data/shards/tar_reader.h"
#include "data/shards/tar_writer.h"
#include "data/shards/tfrecord.h"
#include "data/shards/webdataset.h"
#include "unit/data/files.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

struct Header {
  std::string name;
  std::string size;  // 12 bytes
  char kind = '0';
};

std::string octal(std::size_t value, int digits) { return fmt::format("{:0{}o}", value, digits); }

std::string tar_header(const Header& header) {
  std::string block(512, '\0');
  const auto put = [&](std::size_t at, std::string_view text) { block.replace(at, text.size(), text); };
  put(0, header.name);
  put(100, "0000644");
  put(124, header.size);
  put(148, "        ");
  block[156] = header.kind;
  put(257, std::string_view("ustar\00000", 8));
  std::size_t sum = 0;
  for (const char byte : block) sum += static_cast<unsigned char>(byte);
  put(148, octal(sum, 6) + std::string(1, '\0'));
  return block;
}

std::string padded(std::string data) {
  data.resize((data.size() + 511) / 512 * 512);
  return data;
}

std::string member(const std::string& name, const std::string& data, char kind = '0') {
  return tar_header({name, octal(data.size(), 11), kind}) + padded(data);
}

std::string sample(const std::string& key, const std::string& picture, const std::string& label) {
  return member(key + ".jpg", picture) + member(key + ".cls", label);
}

const std::string& tar_end() {
  static const std::string blocks(1024, '\0');
  return blocks;
}

class Shards : public testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text) {
    write_file(folder_.path() / name, text);
    return folder_.path() / name;
  }
  RecordIndex tar(const std::string& text, const WebdatasetFields& fields = {}) {
    text_ = text;
    return read_webdataset_shard(write("a.tar", text), fields);
  }
  RecordIndex tfrecord(const std::string& text, const TfrecordKeys& keys = {}) {
    text_ = text;
    return read_tfrecord_shard(write("a.tfrecord", text), keys);
  }
  // "LABEL:PICTURE" of each sample.
  std::vector<std::string> samples(const RecordIndex& index) const {
    std::vector<std::string> found;
    for (const Record& record : index.records) {
      found.push_back(index.labels[static_cast<std::size_t>(record.label)] + ":" +
                      text_.substr(record.offset, record.bytes));
    }
    return found;
  }
  static std::vector<std::string> reasons(const RecordIndex& index) {
    std::vector<std::string> found;
    for (const DamagedRecord& damage : index.damaged)
      found.push_back(fmt::format("{}: {}", damage.offset, damage.reason));
    return found;
  }
  const fs::path& root() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  std::string text_;
};

TEST_F(Shards, AreExpandedLikeBash) {
  for (const char* name : {"s/a-08.tar", "s/a-09.tar", "s/a-10.tar", "s/b.tar", "s/.hidden.tar", "s/notes.txt"})
    write(name, "");
  const auto names = [&](const std::string& pattern) {
    std::vector<std::string> found;
    for (const fs::path& path : shard_names((root() / pattern).string(), {".tar"}))
      found.push_back(path.filename().string());
    return found;
  };
  EXPECT_THAT(names("s/a-{08..10}.tar"), ElementsAre("a-08.tar", "a-09.tar", "a-10.tar"));
  EXPECT_THAT(names("s/{b,a-10}.tar"), ElementsAre("b.tar", "a-10.tar"));
  EXPECT_THAT(names("s"), ElementsAre("a-08.tar", "a-09.tar", "a-10.tar", "b.tar"));
}

TEST_F(Shards, ThatAreMissingAreCounted) {
  write("s/a-0.tar", "");
  const auto error = [&](const std::string& pattern) {
    return error_of(ExitCode::data, [&] { (void)shard_names((root() / pattern).string(), {".tar"}); });
  };
  EXPECT_THAT(error("s/a-{0..9}.tar"), AllOf(HasSubstr("a-1.tar: does not exist, and 8 more of the 10 shards")));
  EXPECT_THAT(error("s/a-{9..0}.tar"), HasSubstr("a-{9..0}.tar: does not exist"));
  fs::create_directory(root() / "empty");
  EXPECT_THAT(error("empty"), HasSubstr("empty: has no file with .tar in its name"));
}

TEST_F(Shards, WebdatasetGroupsMembersByTheirNames) {
  const RecordIndex index =
      tar(sample("n/1", "one", "3\n") + member("n/2.json", R"({"label": "cat"})") + member("n/2.PNG", "two") +
          member("n/3.x.jpg", "three") + member("n/3.jpg", "jpg first") + member("n/3.txt", " dog \r\n") +
          member("._n.jpg", "hidden") + member("dir", "", '5') + tar_end());
  EXPECT_THAT(samples(index), ElementsAre("3:one", "cat:two", "dog:jpg first"));
  EXPECT_THAT(index.damaged, IsEmpty());
}

TEST_F(Shards, FieldsMayHaveOtherNames) {
  const std::string text = member("a.left.png", "left") + member("a.right.png", "right") + member("a.cls", "0") +
                           member("a.side.txt", "7") + tar_end();
  EXPECT_THAT(samples(tar(text)), ElementsAre("0:left"));
  EXPECT_THAT(samples(tar(text, {.image = "right.png", .label = "side.txt"})), ElementsAre("7:right"));
}

TEST_F(Shards, LongNamesAreThoseOfPaxAndGnu) {
  const std::string name = std::string(150, 'x') + "/";
  const std::string pax_text = " path=" + name + "1.jpg\n";
  const std::string pax = std::to_string(pax_text.size() + 3) + pax_text;
  const RecordIndex index = tar(member("pax", pax, 'x') + member("short.jpg", "one") +
                                member("gnu", name + "1.cls" + std::string(1, '\0'), 'L') + member("other.cls", "5") +
                                tar_header({"2.jpg", std::string("\x80") + std::string(10, '\0') + "\x03", '0'}) +
                                padded("two") + member("2.cls", "6") + tar_end());
  EXPECT_THAT(samples(index), ElementsAre("5:one", "6:two"));
  const File file(root() / "a.tar", File::Mode::read, ExitCode::data);
  TarReader tar(file);
  const std::optional<TarMember> first = tar.next();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->name, name + "1.jpg");
  EXPECT_EQ(first->offset, index.records[0].offset);
}

TEST_F(Shards, IncompleteSamplesAreNamed) {
  const RecordIndex index = tar(member("1.jpg", "x") + member("2.cls", "1") + member("3.jpg", "x") +
                                member("3.json", "[]") + member("4.jpg", "x") + member("4.cls", " \n") +
                                member("readme.md", "x") + sample("5", "five", "1") + tar_end());
  EXPECT_THAT(samples(index), ElementsAre("1:five"));
  EXPECT_THAT(reasons(index),
              ElementsAre("512: sample 1 has no label", "1536: sample 2 has no picture",
                          "2560: sample 3 has no label in its json", "4608: sample 4 has no label in its cls"));
}

TEST_F(Shards, ADamagedHeaderCostsItsSample) {
  std::string text = sample("1", "one", "1") + sample("2", "two", "2") + sample("3", "three", "3") + tar_end();
  text[2048 + 10] = 'X';
  const RecordIndex index = tar(text);
  EXPECT_THAT(samples(index), ElementsAre("1:one", "3:three"));
  EXPECT_THAT(reasons(index), ElementsAre("2048: has a damaged tar header", "3584: sample 2 has no picture"));
}

TEST_F(Shards, ATruncatedTarKeepsWhatIsWhole) {
  const std::string whole = sample("1", "one", "1") + sample("2", std::string(3000, 'p'), "2");
  for (const std::size_t size : {std::size_t{2049}, std::size_t{2048 + 512}, std::size_t{2048 + 512 + 2000}}) {
    const RecordIndex index = tar(whole.substr(0, size));
    EXPECT_THAT(samples(index), ElementsAre("1:one")) << size;
    EXPECT_THAT(index.damaged, SizeIs(1)) << size;
  }
}

TEST_F(Shards, WhatIsNoTarIsNamed) {
  const auto error = [&](const std::string& text) { return error_of(ExitCode::data, [&] { (void)tar(text); }); };
  EXPECT_THAT(error(std::string(2000, 'x')), HasSubstr("a.tar: is no tar file"));
  EXPECT_THAT(error("\x1F\x8B\x08" + std::string(600, 'x')), HasSubstr("is compressed"));
  EXPECT_THAT(tar(tar_end()).records, IsEmpty());
}

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80U; value >>= 7U) bytes += static_cast<char>((value & 0x7FU) | 0x80U);
  return bytes + static_cast<char>(value);
}
std::string part(unsigned number, const std::string& bytes) {
  return varint(number << 3U | 2U) + varint(bytes.size()) + bytes;
}
std::string feature(const std::string& key, const std::string& value) { return part(1, part(1, key) + part(2, value)); }
std::string bytes_value(const std::string& bytes) { return part(1, part(1, bytes)); }
std::string packed_value(std::uint64_t value) { return part(3, part(1, varint(value))); }
std::string plain_value(std::uint64_t value) { return part(3, varint(1U << 3U) + varint(value)); }

std::string little(std::uint64_t value, std::size_t bytes) {
  std::string text(bytes, '\0');
  std::memcpy(text.data(), &value, bytes);
  return text;
}
std::string record(const std::string& features) {
  const std::string data = part(1, features);
  const std::string length = little(data.size(), 8);
  return length + little(masked_crc32c(length), 4) + data + little(masked_crc32c(data), 4);
}

TEST_F(Shards, TfrecordsHaveLabelsAsNumbersAndTexts) {
  const RecordIndex index =
      tfrecord(record(feature("image/class/label", packed_value(300)) + feature("image/encoded", bytes_value("one"))) +
               record(feature("image", bytes_value("two")) + feature("label", plain_value(7)) +
                      feature("width", plain_value(9))) +
               record(feature("image/encoded", bytes_value("three")) + feature("label", bytes_value("cat"))));
  EXPECT_THAT(samples(index), ElementsAre("300:one", "7:two", "cat:three"));
  EXPECT_THAT(index.damaged, IsEmpty());
}

TEST_F(Shards, DamagedTfrecordsCostThatSample) {
  const auto good = [](const std::string& picture) {
    return record(feature("x", plain_value(1)) + feature("left", bytes_value(picture)) +
                  feature("side", plain_value(4)));
  };
  std::string text = good("one") + good("two") + good("three");
  const std::size_t size = good("one").size();
  text[size + 20] ^= 1;
  const TfrecordKeys keys{.image = "left", .label = "side"};
  RecordIndex index = tfrecord(text, keys);
  EXPECT_THAT(samples(index), ElementsAre("4:one", "4:three"));
  EXPECT_THAT(reasons(index), ElementsAre(fmt::format("{}: has another checksum than its data", size)));
  text[size] ^= 1;
  index = tfrecord(text, keys);
  EXPECT_THAT(samples(index), ElementsAre("4:one"));
  EXPECT_THAT(reasons(index), ElementsAre(HasSubstr("has a damaged length; what follows in this shard is lost")));
  index = tfrecord(good("one") + good("two").substr(0, 30), keys);
  EXPECT_THAT(reasons(index), ElementsAre(HasSubstr("is truncated")));
  index = tfrecord(good("one"));
  EXPECT_THAT(reasons(index), ElementsAre("0: has no image/encoded or image or image_raw (its keys: x, left, side)"));
  EXPECT_THAT(error_of(ExitCode::data, [&] { (void)tfrecord(std::string(100, 'x')); }),
              HasSubstr("is no TFRecord file"));
  EXPECT_THAT(error_of(ExitCode::data, [&] { (void)tfrecord("\x1F\x8B" + std::string(100, 'x')); }),
              HasSubstr("is compressed"));
}

TEST_F(Shards, WhatIsWrittenIsRead) {
  const fs::path path = root() / "w.tar";
  TarWriter writer(path, ExitCode::data);
  const std::string picture(512, 'p');
  for (int i = 0; i < 3; ++i) {
    writer.add(fmt::format("{:08}.jpg", i), picture.substr(static_cast<std::size_t>(i)));
    writer.add(fmt::format("{:08}.cls", i), std::to_string(7 * i));
  }
  EXPECT_FALSE(fs::exists(path)) << "before it is complete";
  writer.finish();
  EXPECT_EQ(fs::file_size(path), writer.bytes());
  EXPECT_EQ(fs::file_size(path) % 512, 0U);
  const RecordIndex index = read_webdataset_shard(path, {});
  EXPECT_THAT(index.damaged, IsEmpty());
  EXPECT_THAT(index.labels, ElementsAre("0", "7", "14"));
  ASSERT_THAT(index.records, SizeIs(3));
  EXPECT_EQ(index.records[2].bytes, 510U);
}

TEST_F(Shards, AnIndexIsKeptUntilAShardChanges) {
  const std::vector<fs::path> shards = {
      write("0.tar", sample("1", "one", "b") + sample("2", "two", "a") + tar_end()),
      write("1.tar", sample("3", "three", "c") + sample("4", "four", "b") + tar_end())};
  std::vector<std::string> read;
  ShardFormat format = webdataset_format();
  format.read = [&, inner = format.read](const fs::path& path) {
    read.push_back(path.filename().string());
    return inner(path);
  };
  const IndexSettings settings{.folder = root() / "indexes", .threads = 1};
  const RecordIndex first = open_index(format, shards, settings);
  EXPECT_THAT(first.labels, ElementsAre("b", "a", "c"));
  EXPECT_THAT(first.records, SizeIs(4));
  EXPECT_EQ(first.records[3].label, 0);
  EXPECT_EQ(first.records[3].shard, 1);
  EXPECT_THAT(read, ElementsAre("0.tar", "1.tar"));
  read.clear();
  EXPECT_EQ(open_index(format, shards, settings), first);
  EXPECT_THAT(read, IsEmpty());
  // Other sizes, and other times.
  write("0.tar", sample("5", "five", "d") + tar_end());
  const RecordIndex changed = open_index(format, shards, settings);
  EXPECT_THAT(read, ElementsAre("0.tar"));
  EXPECT_THAT(changed.labels, ElementsAre("d", "c", "b"));
  fs::last_write_time(shards[1], fs::last_write_time(shards[1]) + std::chrono::seconds(2));
  EXPECT_EQ(open_index(format, shards, settings).records, changed.records);
  EXPECT_THAT(read, ElementsAre("0.tar", "1.tar"));
  // A damaged index is made again.
  for (const auto& kept : fs::directory_iterator(root() / "indexes")) write_file(kept.path(), "DDPSHRD1 and nothing");
  read.clear();
  EXPECT_EQ(open_index(format, shards, settings).records, changed.records);
  EXPECT_THAT(read, SizeIs(2));
}

TEST_F(Shards, AnIndexIsReadAsItWasWritten) {
  const RecordIndex index = tar(sample("1", "one", "b") + member("2.jpg", "x") + tar_end());
  RecordIndex named = index;
  named.shards = {{root() / "a.tar", 4096, 17}};
  const std::string text = index_text(named);
  const std::optional<RecordIndex> again = parse_index(text);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(*again, named);
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_FALSE(parse_index(std::string_view(text).substr(0, i)).has_value()) << i;
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x20);
    EXPECT_FALSE(parse_index(damaged).has_value()) << i;
  }
  named.records[0].offset = 4095;
  EXPECT_FALSE(parse_index(index_text(named)).has_value()) << "behind the end of its shard";
}

}  // namespace
}  // namespace ddp
