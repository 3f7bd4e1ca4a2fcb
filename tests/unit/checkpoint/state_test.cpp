#include "checkpoint/state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "support/errors.h"
#include "unit/checkpoint/sample.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string state_error(const std::string& text) {
  return error_text(ExitCode::checkpoint, [&] { parse_state(text, "RUN/state.json"); });
}

TEST(StateTest, ComesBackAsItWas) {
  std::random_device seed;
  std::mt19937_64 random(seed());
  for (int round = 0; round < 100; ++round) {
    Sample sample(random, static_cast<std::int64_t>(random() >> 20U));
    if (round % 2 == 1) sample.state.plans = {{"20x20", "a"}, {"24x24", "b\nc"}};
    sample.state.config = "quote \" backslash \\ newline \n tab \t \xc3\xa9 \x01";
    EXPECT_EQ(parse_state(to_json(sample.state), "state.json"), sample.state);
  }
  TrainingState extreme;
  extreme.seed = std::numeric_limits<std::uint64_t>::max();
  extreme.step = std::numeric_limits<std::int64_t>::max();
  extreme.logical_shards = std::numeric_limits<int>::max();
  EXPECT_EQ(parse_state(to_json(extreme), "state.json"), extreme);
}

TEST(StateTest, ClassesAreThereOnlyWhereTheyHaveNames) {
  TrainingState state;
  EXPECT_THAT(to_json(state), testing::Not(HasSubstr("classes")));
  state.classes = {"cat", "dog \"x\""};
  EXPECT_EQ(parse_state(to_json(state), "state.json"), state);
  auto changed = nlohmann::json::parse(to_json(state));
  for (const auto& bad : {nlohmann::json(1), nlohmann::json("cat"), nlohmann::json({"cat", 2})}) {
    changed["classes"] = bad;
    EXPECT_THAT(state_error(changed.dump()), HasSubstr("'classes' has an invalid value"));
  }
}

// What was measured at the start; omitted where nothing was.
TEST(StateTest, MeasurementsComeBack) {
  TrainingState state;
  EXPECT_THAT(to_json(state), testing::Not(HasSubstr("bucket")));
  EXPECT_THAT(to_json(state), testing::Not(HasSubstr("pipeline")));
  state.bucket_bytes = 65536;
  state.bucket_ranks = 3;
  state.pipeline_first = {0, 4, 9};
  EXPECT_EQ(parse_state(to_json(state), "state.json"), state);
}

// Names of folders may be any bytes.
TEST(StateTest, WhatIsNotUtf8ComesBackToo) {
  TrainingState state;
  state.model = "mod\xE8le.onnx";
  state.config = "data-dir = /data/r\xE9sum\xE9 \\xE9\n";
  state.classes = {"cat", R"(caf\xE9)"};
  state.plans = {{"20x20", "conv\xED\xA0\x80"}};
  const std::string text = to_json(state);
  EXPECT_EQ(parse_state(text, "state.json"), state);
  EXPECT_THAT(text, HasSubstr(R"("mod\\xE8le.onnx")"));
  EXPECT_EQ(nlohmann::json::parse(text)["escaped"], (std::vector<std::string>{"model", "config", "plans"}));
  EXPECT_EQ(nlohmann::json::parse(text)["classes"][1], R"(caf\xE9)");
  // States of older versions.
  auto before = nlohmann::json::parse(to_json(TrainingState{}));
  before["config"] = R"(data-dir = C:\xE9)";
  EXPECT_EQ(parse_state(before.dump(), "state.json").config, R"(data-dir = C:\xE9)");
}

TEST(StateTest, TheLossScaleIsThereOnlyInFp16AndWithinTheSteps) {
  TrainingState state;
  state.step = 30;
  EXPECT_THAT(to_json(state), testing::Not(HasSubstr("loss_scale")));
  state.loss_scale = 4096;
  state.loss_scale_since = 30;
  EXPECT_EQ(parse_state(to_json(state), "state.json"), state);
  state.loss_scale_since = 31;
  EXPECT_THAT(state_error(to_json(state)), HasSubstr("a loss scale of 4096 from step 31 on is impossible at step 30"));
  state.loss_scale_since = 0;
  state.loss_scale = -1;
  EXPECT_THAT(state_error(to_json(state)), HasSubstr("a loss scale of -1"));
}

TEST(StateTest, EveryMissingOrImpossibleValueIsNamed) {
  std::mt19937_64 random(1);
  const auto good = nlohmann::json::parse(to_json(Sample(random, 12).state));
  for (const auto& [key, value] : good.items()) {
    auto without = good;
    without.erase(key);
    if (key == "optimizer") {
      EXPECT_EQ(parse_state(without.dump(), "state.json").optimizer, "sgd");
    } else if (key == "fingerprint") {
      EXPECT_TRUE(parse_state(without.dump(), "state.json").fingerprint.empty());
    } else {
      EXPECT_THAT(state_error(without.dump()),
                  AllOf(HasSubstr("RUN/state.json: "), HasSubstr("'" + key + "' is missing")));
    }
    const auto impossible = value.is_string() ? std::vector<nlohmann::json>{1, nullptr, {"a"}}
                            : value.is_number_float()
                                ? std::vector<nlohmann::json>{"1", nullptr, true}
                                : std::vector<nlohmann::json>{-1, 1.5, "1", nullptr, true, nlohmann::json::array()};
    for (const auto& bad : impossible) {
      auto changed = good;
      changed[key] = bad;
      EXPECT_THAT(state_error(changed.dump()), HasSubstr("'" + key + "' has an invalid value: " + bad.dump()));
    }
  }
  auto too_large = good;
  too_large["logical_shards"] = 1LL << 40U;
  EXPECT_THAT(state_error(too_large.dump()), HasSubstr("'logical_shards'"));
}

TEST(StateTest, WhatAnExportNeedsComesBackAndMayBeMissing) {
  std::mt19937_64 random(1);
  TrainingState state = Sample(random, 12).state;
  EXPECT_EQ(nlohmann::json::parse(to_json(state)).count("image"), 0);
  state.image = {3, 32, 28};
  state.class_count = 10;
  state.mean = {0.5, 0.25, 0.125};
  state.deviation = {1, 2, 1e-3};
  state.model_hash = "0123";
  EXPECT_EQ(parse_state(to_json(state), "state.json"), state);
  for (const char* bad : {"3", "[1, \"2\"]", "[-1]", "{}"}) {
    auto json = nlohmann::json::parse(to_json(state));
    json["image"] = nlohmann::json::parse(bad);
    EXPECT_THAT(state_error(json.dump()), HasSubstr("'image' has an invalid value"));
  }
}

TEST(StateTest, OtherTextsAndVersionsAreRefused) {
  for (const char* text : {"", "{", "[]", "3", "{}", "nonsense"})
    EXPECT_THAT(state_error(text), HasSubstr("RUN/state"));
  TrainingState state;
  state.format_version = kCheckpointFormatVersion + 1;
  EXPECT_THAT(state_error(to_json(state)), HasSubstr("has format version 2, this program reads version 1"));
}

}  // namespace
}  // namespace ddp
