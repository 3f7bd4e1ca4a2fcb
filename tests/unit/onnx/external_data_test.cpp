// Models with tensors in other files: equivalent wherever the data is, and one line for each that cannot be loaded.
#include "onnx/file/external_data.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include <fstream>
#include <functional>

#include "support/errors.h"
#include "support/temporary_folder.h"
#include "unit/onnx/model_maker.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

void write_bytes(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

// Sets an external_data entry of a tensor.
void set_entry(onnx::TensorProto& tensor, const std::string& key, const std::string& value) {
  for (auto& entry : *tensor.mutable_external_data()) {
    if (entry.key() == key) return entry.set_value(value);
  }
  auto& entry = *tensor.add_external_data();
  entry.set_key(key);
  entry.set_value(value);
}

class ExternalData : public ::testing::Test {
 protected:
  ExternalData() {
    ModelMaker maker;
    const std::string pads = maker.node("Constant", {}, {{"value", OnnxTensor::of_integers({8}, kPads)}});
    const std::string conv =
        maker.node("Conv", {maker.node("Pad", {"input", pads}), maker.random("c.weight", {2, 2, 3, 3})});
    maker.output(maker.classifier(conv, 72, 2));
    whole_ = maker.bytes();
    proto_.ParseFromString(whole_);
    for (onnx::TensorProto& tensor : *proto_.mutable_graph()->mutable_initializer()) move_out(tensor);
    move_out(constant());
  }

  onnx::TensorProto& constant() { return *proto_.mutable_graph()->mutable_node(0)->mutable_attribute(0)->mutable_t(); }
  onnx::TensorProto& tensor(const std::string& name) {
    for (onnx::TensorProto& each : *proto_.mutable_graph()->mutable_initializer()) {
      if (each.name() == name) return each;
    }
    throw std::runtime_error("no tensor " + name);
  }

  // Moves the tensor to the end of data_, aligned to 64 bytes.
  void move_out(onnx::TensorProto& tensor) {
    data_.resize((data_.size() + 63) / 64 * 64, '?');
    set_entry(tensor, "location", "weights/net.onnx.data");
    set_entry(tensor, "offset", std::to_string(data_.size()));
    set_entry(tensor, "length", std::to_string(tensor.raw_data().size()));
    data_ += tensor.raw_data();
    tensor.clear_raw_data();
    tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  }

  fs::path write() {
    fs::create_directories(folder_.path() / "weights");
    write_bytes(folder_.path() / "weights" / "net.onnx.data", data_);
    write_bytes(folder_.path() / "net.onnx", proto_.SerializeAsString());
    return folder_.path() / "net.onnx";
  }

  // Returns the error after a change to the tensor fc.weight, which has 2x72 floats.
  std::string error_of(const std::function<void(onnx::TensorProto&)>& change) {
    const onnx::ModelProto good = proto_;
    change(tensor("fc.weight"));
    const fs::path path = write();
    proto_ = good;
    return error_text(ExitCode::data, [&] { import_onnx(path); });
  }
  std::string error_with(const std::string& key, const std::string& value) {
    return error_of([&](onnx::TensorProto& tensor) { set_entry(tensor, key, value); });
  }

  static inline const std::vector<std::int64_t> kPads = {0, 0, 1, 1, 0, 0, 1, 1};
  std::string whole_;
  onnx::ModelProto proto_;
  std::string data_;
  TemporaryFolder folder_;
};

TEST_F(ExternalData, IsTheSameModel) {
  const ImportedModel wanted = import_onnx_bytes(whole_, "whole.onnx");
  const auto expect_same = [&] {
    const ImportedModel found = import_onnx(write());
    EXPECT_EQ(found.parameters, wanted.parameters);
    EXPECT_EQ(found.graph.parameter_count(), 36 + 144 + 2);
  };
  expect_same();
  // Without a length, the size follows from the shape.
  tensor("c.weight").mutable_external_data()->RemoveLast();
  expect_same();
  // Redundant path components and unknown entries are accepted.
  set_entry(tensor("c.weight"), "location", "./weights//net.onnx.data");
  set_entry(tensor("c.weight"), "checksum", "0");
  expect_same();
}

TEST_F(ExternalData, IsPutIntoTheModel) {
  const fs::path path = write();
  const std::string bytes = read_onnx_file(path);
  fs::remove_all(folder_.path() / "weights");
  EXPECT_EQ(to_bytes(parse_onnx(bytes, path)), to_bytes(parse_onnx(whole_, path)));
  // A model without external data is returned byte for byte.
  write_bytes(path, whole_);
  EXPECT_EQ(read_onnx_file(path), whole_);
}

TEST_F(ExternalData, StaysInTheFolderOfTheModel) {
  const fs::path outside = fs::absolute(folder_.path() / "weights" / "net.onnx.data");
  for (const std::string& location :
       {outside.string(), std::string("../weights/net.onnx.data"), std::string("weights/../weights/net.onnx.data"),
        std::string("weights/.."), std::string("")}) {
    EXPECT_THAT(error_with("location", location),
                AllOf(HasSubstr(fmt::format("net.onnx: tensor 'fc.weight' lies in '{}'", location)),
                      HasSubstr("not a path within the folder of the model")));
  }
  EXPECT_THAT(error_of([](onnx::TensorProto& tensor) { tensor.clear_external_data(); }), HasSubstr("lies in ''"));
}

// Links may lead from one place of the model's folder to another one, and nowhere else.
TEST_F(ExternalData, LinksStayInTheFolderOfTheModel) {
  const TemporaryFolder outside;
  const fs::path path = write();
  const fs::path data = folder_.path() / "weights" / "net.onnx.data";
  const fs::path secret = fs::absolute(outside.path() / "secret");
  const auto expect_refused = [&] {
    EXPECT_THAT(error_text(ExitCode::data, [&] { import_onnx(path); }),
                AllOf(HasSubstr("lies in 'weights/net.onnx.data', a link to "),
                      HasSubstr("not within the folder of the model; copy the data there")));
  };
  fs::rename(data, secret);
  fs::create_symlink(secret, data);
  expect_refused();
  fs::remove_all(data.parent_path());
  fs::create_directory(outside.path() / "weights");
  fs::rename(secret, outside.path() / "weights" / "net.onnx.data");
  fs::create_directory_symlink(fs::absolute(outside.path() / "weights"), data.parent_path());
  expect_refused();
  // Within the folder.
  fs::remove(data.parent_path());
  fs::rename(outside.path() / "weights", folder_.path() / "elsewhere");
  fs::create_directory_symlink("elsewhere", data.parent_path());
  EXPECT_EQ(import_onnx(path).graph.parameter_count(), 36 + 144 + 2);
  // As in caches of downloads: the model and its data are links to files that lie beside one another.
  fs::rename(path, outside.path() / "1a2b");
  fs::rename(folder_.path() / "elsewhere" / "net.onnx.data", outside.path() / "3c4d");
  fs::create_symlink(fs::absolute(outside.path() / "1a2b"), path);
  fs::create_symlink(fs::absolute(outside.path() / "3c4d"), data);
  EXPECT_EQ(import_onnx(path).graph.parameter_count(), 36 + 144 + 2);
}

TEST_F(ExternalData, FilesThatCannotBeRead) {
  EXPECT_THAT(error_with("location", "lost.data"),
              AllOf(HasSubstr("net.onnx: tensor 'fc.weight' lies in another file: cannot open "),
                    HasSubstr("lost.data: No such file")));
  EXPECT_THAT(error_with("location", "weights"),
              AllOf(HasSubstr("'fc.weight'"), HasSubstr("weights is not a regular file")));
  EXPECT_THAT(error_with("location", "two\nlines"), HasSubstr("two lines"));
}

TEST_F(ExternalData, RangesAndLengths) {
  const std::string size = std::to_string(data_.size());
  for (const std::string& offset : {size, std::to_string(data_.size() - 575), std::string("999999999999999999")}) {
    EXPECT_THAT(error_with("offset", offset),
                HasSubstr(fmt::format("net.onnx: tensor 'fc.weight' has 576 bytes at byte {} of "
                                      "'weights/net.onnx.data', whose size is {}",
                                      offset, size)));
  }
  for (const std::string& length : {std::string("0"), std::string("572"), std::string("999999999999999999")}) {
    EXPECT_THAT(error_with("length", length),
                HasSubstr(fmt::format("net.onnx: tensor 'fc.weight' has 576 bytes by its shape, {} in '", length)));
  }
  for (const std::string& bad : {std::string("-1"), std::string("1e3"), std::string(""), std::string(30, '9')}) {
    EXPECT_THAT(error_with("offset", bad),
                HasSubstr(fmt::format("'fc.weight' has an offset '{}', which is not a number", bad)));
  }
  EXPECT_THAT(error_of([](onnx::TensorProto& tensor) { tensor.set_dims(0, std::int64_t{1} << 62); }),
              HasSubstr("'fc.weight' has an impossible shape"));
  EXPECT_THAT(error_of([](onnx::TensorProto& tensor) { tensor.set_dims(0, -1); }), HasSubstr("impossible shape"));
  // The tensor of a Constant node has the node's name.
  set_entry(constant(), "offset", "123456");
  EXPECT_THAT(error_text(ExitCode::data, [&] { import_onnx(write()); }),
              HasSubstr("tensor 'Constant_0' has 64 bytes at byte 123456"));
}

// Arbitrary entries give a model or a one-line error, and use no more memory than the file has bytes.
TEST_F(ExternalData, AnyEntriesAreAModelOrOneLine) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const fs::path path = write();
  const std::string good = proto_.SerializeAsString();
  int refused = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string bytes = good;
    for (std::size_t changes = 1 + random() % 3; changes > 0; --changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    write_bytes(path, bytes);
    try {
      import_onnx(path);
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace ddp
