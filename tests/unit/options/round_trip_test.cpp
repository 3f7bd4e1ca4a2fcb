// Properties of all options at once: dumped configurations parse back, and garbage only ever fails cleanly.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "options/parse.h"
#include "options/table/table.h"
#include "unit/options/support.h"

namespace ddp {
namespace {

// A new seed for every run; failures print it.
unsigned fresh_seed() { return std::random_device{}(); }

std::string random_real(std::mt19937& random) {
  return fmt::format("{}", std::uniform_real_distribution<double>(0, 2)(random));
}

std::string random_value(const OptionSpec& spec, std::mt19937& random) {
  if (spec.value_name == "N") return std::to_string(random() % 100);
  if (spec.value_name == "X") return random_real(random);
  if (spec.value_name == "SIZE") return std::to_string(random() % 5000) + (random() % 2 == 0 ? "" : "MiB");
  if (spec.value_name == "B,C,S") return random_real(random) + "," + random_real(random) + "," + random_real(random);
  if (spec.value_name == "LIST") return std::to_string(random() % 8) + "," + std::to_string(random() % 8);
  if (spec.value_name.starts_with("PATTERN=")) return "*.a?=" + random_real(random) + ",b=2";
  if (spec.value_name.find('|') != std::string::npos) {
    std::vector<std::string> words;
    std::istringstream stream(spec.value_name);
    for (std::string word; std::getline(stream, word, '|');) words.push_back(word);
    return words[random() % words.size()];
  }
  return "text with = and \"quotes\" " + std::to_string(random() % 1000);
}

TEST(RoundTrip, WhatIsDumpedParsesBack) {
  const unsigned seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::vector<OptionSpec> table = option_table();
  int parsed = 0;
  for (int trial = 0; trial < 300; ++trial) {
    Options options;
    // Many optimizer and schedule options exclude each other, so some trials set only a few options.
    const std::size_t one_in = 2 + random() % 30;
    for (const OptionSpec& spec : table) {
      if (spec.command_line_only || random() % one_in != 0) continue;
      try {
        spec.set(options, random_value(spec, random));
      } catch (const BadValue&) {
        continue;  // out of range: keeps the default
      }
    }
    const ConfigFile file(dump_config(options));
    Options back;
    try {
      back = parse({"--config", file.path()});
    } catch (const Error&) {
      continue;  // an invalid combination
    }
    ++parsed;
    back.run.config.clear();
    BatchOptions& batch = options.batch;
    if (!batch.global_batch && !batch.batch_per_rank && !batch.batch_size) batch.global_batch = kDefaultGlobalBatch;
    EXPECT_EQ(back, options) << dump_config(options);
    EXPECT_EQ(dump_config(back), dump_config(options));
  }
  EXPECT_GT(parsed, 20);
}

TEST(RoundTrip, EveryDefaultPassesItsOwnCheck) {
  Options options;
  for (const OptionSpec& spec : option_table()) {
    const auto value = spec.get(Options{});
    if (!value) continue;
    EXPECT_NO_THROW(spec.set(options, *value)) << spec.key << " = " << *value;
  }
  EXPECT_EQ(options, Options{});
}

TEST(RoundTrip, EveryOptionIsInTheDump) {
  const std::string text = dump_config(Options{});
  for (const OptionSpec& spec : option_table()) {
    const bool there = text.find("\n" + std::string(spec.key) + " = ") != std::string::npos ||
                       text.find("\n# " + std::string(spec.key) + " =") != std::string::npos;
    EXPECT_EQ(there, !spec.command_line_only) << spec.key;
  }
}

// The words of a configuration file, shuffled, cut and mixed with noise.
std::string garbage(std::mt19937& random) {
  const std::string base = dump_config(Options{});
  std::string text;
  const auto pieces = 1 + random() % 5;
  for (unsigned i = 0; i < pieces; ++i) {
    const std::size_t begin = random() % base.size();
    text += base.substr(begin, random() % 60);
    if (random() % 2 == 0) text += static_cast<char>(random() % 256);
  }
  return text;
}

TEST(Garbage, InFilesIsParsedOrRefusedAsUsage) {
  const unsigned seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int refused = 0;
  for (int trial = 0; trial < 500; ++trial) {
    const ConfigFile file(garbage(random));
    try {
      parse({"--config", file.path()});
    } catch (const Error& error) {
      ++refused;
      ASSERT_EQ(error.code(), ExitCode::usage) << error.what();
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(Garbage, OnTheCommandLineIsParsedOrRefusedAsUsage) {
  const unsigned seed = fresh_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::vector<std::string> words = {
      "--lr", "-b",     "--", "-",     "=",          "--=", "0.1", "train", "--nesterov", "on",
      "",     "--help", "-h", "--lr=", "--overlap=", "-b3", "-bh", "---",   "--version"};
  int refused = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<std::string> args;
    for (auto count = random() % 6; count > 0; --count) args.push_back(words[random() % words.size()]);
    try {
      parse(args);
    } catch (const Error& error) {
      ++refused;
      ASSERT_EQ(error.code(), ExitCode::usage) << error.what();
    }
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace ddp
