// Pages of --help, and the table of commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/text/text.h"
#include "options/table/table.h"
#include "unit/options/support.h"

namespace ddp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Help, IsAskedForByTopic) {
  EXPECT_TRUE(parse({"--help"}).help);
  EXPECT_EQ(parse({"--help", "model"}).help_topic, "model");
  EXPECT_EQ(parse({"-h", "model"}).help_topic, "model");
  EXPECT_EQ(parse({"eval", "--help=batch"}).help_topic, "batch");
  EXPECT_THAT(usage_message({"--help", "modle"}), HasSubstr("one of run, model, device"));
  // Neither depends on other options being valid.
  EXPECT_TRUE(parse({"--help", "--config", "/nonexistent"}).help);
  EXPECT_TRUE(parse({"--version", "--config", "/nonexistent"}).version);
}

std::vector<std::string> lines_of(const std::string& page) {
  std::vector<std::string> lines;
  std::istringstream stream(page);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// What a terminal shows at once.
void fits_on_a_page(const std::string& page) {
  const std::vector<std::string> lines = lines_of(page);
  EXPECT_LE(lines.size(), 50U) << page;
  for (const std::string& line : lines) EXPECT_LE(line.size(), 100U) << line;
}

TEST(Help, ATopicListsItsOptionsOnOnePageAndAllListsEvery) {
  const std::string all = help_text("all", command_table());
  for (const OptionSpec& spec : option_table()) {
    const std::string key = "--" + std::string(spec.key);
    EXPECT_THAT(all, HasSubstr(key));
    EXPECT_THAT(help_text(spec.topic, command_table()), HasSubstr(key));
    EXPECT_FALSE(spec.help.empty()) << key;
  }
  EXPECT_THAT(help_text("batch", command_table()), Not(HasSubstr("--dataset")));
  const std::string overview = help_text("", command_table());
  for (const OptionTopic& topic : option_topics()) {
    fits_on_a_page(help_text(topic.name, command_table()));
    EXPECT_THAT(overview, HasSubstr("  " + std::string(topic.name)));
  }
  for (const std::string& line : lines_of(all + overview)) EXPECT_LE(line.size(), 100U) << line;
  EXPECT_THROW(help_text("nothing", command_table()), Error);
}

// Those that are read with any choice come first.
TEST(Help, TheOptionsOfAChoiceAreTogether) {
  for (const OptionTopic& topic : option_topics()) {
    std::set<std::string_view> seen;
    std::string_view last;
    for (const OptionSpec& spec : option_table()) {
      if (spec.topic != topic.name) continue;
      EXPECT_TRUE(spec.group == last || (!spec.group.empty() && seen.insert(spec.group).second)) << spec.key;
      last = spec.group;
    }
  }
  const std::string page = help_text("optimizer", command_table());
  EXPECT_LT(page.find(" --optimizer muon:\n"), page.find("--muon-steps"));
  EXPECT_THAT(help_text("all", command_table()), HasSubstr(" --schedule one-cycle:\n"));
}

std::vector<std::string> topics_of(const CommandSpec& command) {
  if (command.topics != kTrainingTopics) return words_of(command.topics);
  std::vector<std::string> names;
  for (const OptionTopic& topic : option_topics()) {
    if (topic.name != kCommandTopic) names.emplace_back(topic.name);
  }
  return names;
}

TEST(Help, ACommandHasAPageWithItsUsageOptionsAndAnExample) {
  for (const CommandSpec& command : command_table()) {
    const std::string name(command.name);
    EXPECT_EQ(parse({name, "--help"}).help_topic, name);
    EXPECT_EQ(parse({"--help", name}).help_topic, name);
    EXPECT_EQ(parse({"-h", name}).help_topic, name);
    const std::string page = help_text(name, command_table());
    fits_on_a_page(page);
    for (const std::string_view text : {command.purpose, command.usage, command.example}) {
      EXPECT_THAT(page, HasSubstr(std::string(text)));
    }
    for (const std::string& key : words_of(command.options)) EXPECT_THAT(page, HasSubstr("--" + key + " "));
    for (const std::string& topic : topics_of(command)) EXPECT_THAT(page, HasSubstr("  " + topic + " "));
  }
  EXPECT_EQ(parse({"eval", "--help", "batch"}).help_topic, "batch");
}

TEST(Commands, ListOptionsAndTopicsThatExist) {
  const std::vector<OptionSpec> table = option_table();
  for (const CommandSpec& command : command_table()) {
    EXPECT_NE(command.run, nullptr) << command.name;
    for (const std::string& key : words_of(command.options)) EXPECT_NE(find_option(table, key), nullptr) << key;
    for (const std::string& topic : topics_of(command)) {
      const auto topics = option_topics();
      EXPECT_TRUE(std::any_of(topics.begin(), topics.end(), [&](const auto& t) { return t.name == topic; })) << topic;
    }
  }
  // An option of single commands means the same with all that take it: it has one row, which names them.
  for (const OptionSpec& spec : table) {
    const std::vector<std::string> names = names_with(command_table(), spec.key);
    if (spec.topic != kCommandTopic) continue;
    EXPECT_EQ(spec.group, join(names)) << spec.key;
    EXPECT_TRUE(spec.command_line_only) << spec.key;
  }
}

TEST(Commands, TheirExamplesAreValid) {
  for (const CommandSpec& command : command_table()) {
    std::vector<std::string> words = words_of(command.example);
    words.erase(words.begin(), std::find(words.begin(), words.end(), "ddp_train") + 1);
    if (const auto config = std::find(words.begin(), words.end(), "--config"); config != words.end()) {
      words.erase(config, config + 2);  // relative to the repository
    }
    EXPECT_EQ(parse(words).command, command.name);
  }
}

TEST(Commands, TakeTheirFolders) {
  EXPECT_EQ(parse({"report", "a", "b", "c"}).folders.size(), 3U);
  EXPECT_EQ(usage_message({"compare", "a"}),
            "compare requires the folders of two runs, such as: ddp_train compare runs/a runs/b");
  EXPECT_EQ(usage_message({"explain"}),
            "explain requires the folder of a run, such as: ddp_train explain runs/lenet-mnist");
  EXPECT_THAT(usage_message({"compare", "a", "b", "c"}), HasSubstr("unexpected 'c'"));
  EXPECT_THAT(usage_message({"eval", "a"}), HasSubstr("unexpected 'a'"));
  // Without a table there are options only.
  const std::array words = {"--lr", "0.5", "eval"};
  EXPECT_THROW(parse_options(words), Error);
}

}  // namespace
}  // namespace ddp
