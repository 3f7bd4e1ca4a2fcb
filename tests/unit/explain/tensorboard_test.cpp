// Event files, read back by a reader of their own.
#include "explain/tensorboard.h"

#include <gmock/gmock.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "support/temporary_folder.h"

namespace ddp {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// The fields of a message: numbers as their bytes.
std::multimap<int, std::string> fields_of(const std::string& message) {
  CodedInputStream stream(static_cast<const google::protobuf::uint8*>(static_cast<const void*>(message.data())),
                          static_cast<int>(message.size()));
  std::multimap<int, std::string> fields;
  for (std::uint32_t tag = stream.ReadTag(); tag != 0; tag = stream.ReadTag()) {
    std::string value;
    std::uint64_t number = 0;
    switch (WireFormatLite::GetTagWireType(tag)) {
      case WireFormatLite::WIRETYPE_VARINT:
        EXPECT_TRUE(stream.ReadVarint64(&number));
        value = std::to_string(number);
        break;
      case WireFormatLite::WIRETYPE_FIXED64:
        EXPECT_TRUE(stream.ReadString(&value, 8));
        break;
      case WireFormatLite::WIRETYPE_FIXED32:
        EXPECT_TRUE(stream.ReadString(&value, 4));
        break;
      default:
        std::uint32_t size = 0;
        EXPECT_TRUE(stream.ReadVarint32(&size));
        EXPECT_TRUE(stream.ReadString(&value, static_cast<int>(size)));
    }
    fields.emplace(WireFormatLite::GetTagFieldNumber(tag), value);
  }
  return fields;
}

std::vector<std::string> messages_of(const std::string& file) {
  std::vector<std::string> messages;
  std::size_t at = 0;
  while (at + 16 <= file.size()) {
    std::uint64_t size = 0;
    std::memcpy(&size, file.data() + at, 8);
    const std::string data = file.substr(at + 12, size);
    // Writing it again gives the same bytes, with both checksums.
    EXPECT_EQ(tensorboard_record(data), file.substr(at, size + 16));
    messages.push_back(data);
    at += size + 16;
  }
  EXPECT_EQ(at, file.size());
  return messages;
}

TEST(TensorBoardTest, RecordsBecomeScalars) {
  const TemporaryFolder folder;
  {
    TensorBoard board(folder.path());
    RunLog log(folder.path(), {});
    log.set_listener(&board);
    TrainRecord record{.step = 300, .loss = 0.5, .lr = 0.125, .images_per_second = 1000, .grad_norm = 2, .mfu = 0.25};
    record.phases[Phase::forward] = 1;
    record.phases[Phase::backward] = 3;
    log.write(record);
    log.write(EvalRecord{.step = 301, .val_loss = 0.75, .val_accuracy = 0.875, .top5_accuracy = 1});
  }
  std::string bytes;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) {
      bytes = read_text(entry.path(), ExitCode::internal);
    }
  }
  const std::vector<std::string> messages = messages_of(bytes);
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(fields_of(messages[0]).find(3)->second, "brain.Event:2");
  std::map<std::string, float> scalars;
  for (std::size_t i = 1; i < 3; ++i) {
    const auto event = fields_of(messages[i]);
    EXPECT_EQ(event.find(2)->second, i == 1 ? "300" : "301");
    EXPECT_EQ(event.count(1), 1U);
    for (const auto& [number, value] : fields_of(event.find(5)->second)) {
      EXPECT_EQ(number, 1);
      const auto scalar = fields_of(value);
      float simple = 0;
      std::memcpy(&simple, scalar.find(2)->second.data(), sizeof simple);
      scalars[scalar.find(1)->second] = simple;
    }
  }
  EXPECT_EQ(scalars["training/loss"], 0.5F);
  EXPECT_EQ(scalars["training/learning_rate"], 0.125F);
  EXPECT_EQ(scalars["training/gradient_norm"], 2.0F);
  EXPECT_EQ(scalars["speed/images_per_second"], 1000.0F);
  EXPECT_EQ(scalars["speed/share_of_peak"], 0.25F);
  EXPECT_EQ(scalars["phases/backward"], 0.75F);
  EXPECT_EQ(scalars["test/loss"], 0.75F);
  EXPECT_EQ(scalars["test/accuracy"], 0.875F);
  EXPECT_EQ(scalars["test/top5_accuracy"], 1.0F);
}

}  // namespace
}  // namespace ddp
