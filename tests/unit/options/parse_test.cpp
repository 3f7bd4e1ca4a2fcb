#include "options/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "options/table/table.h"
#include "unit/options/support.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Parse, NothingGivenIsTheDefaults) {
  Options expected;
  expected.batch.global_batch = kDefaultGlobalBatch;
  EXPECT_EQ(parse({}), expected);
}

TEST(Parse, TakesValuesBehindBlankOrEqualsSign) {
  const Options options = parse({"eval", "--lr", "0.25", "--epochs=3", "-b", "32", "--reduction", "tree", "--data-dir",
                                 "/some where", "--first-bucket-mib", "0.5", "--seed=18446744073709551615"});
  EXPECT_EQ(options.command, "eval");
  EXPECT_EQ(options.optimizer.lr, 0.25);
  EXPECT_EQ(options.optimizer.epochs, 3);
  EXPECT_EQ(options.batch.batch_size, 32);
  EXPECT_EQ(options.batch.global_batch, std::nullopt);
  EXPECT_EQ(options.distributed.reduction, Reduction::tree);
  EXPECT_EQ(options.distributed.first_bucket_mib, 0.5);
  EXPECT_EQ(options.data.data_dir, "/some where");
  EXPECT_EQ(options.optimizer.seed, 18446744073709551615U);
}

TEST(Parse, TakesGpusAndTheirMemory) {
  const Options options =
      parse({"check", "--device", "cuda", "--gpus", "3,2", "--gpu-memory-limit", "4GiB", "--gpu-memory-fraction=0.4",
             "--oversubscribe-gpus", "--log-placement", "--cuda-graph", "off", "--precision", "bf16"});
  EXPECT_EQ(options.command, "check");
  EXPECT_EQ(options.device.device, DeviceChoice::cuda);
  EXPECT_EQ(options.device.gpus, (std::vector<int>{3, 2}));
  EXPECT_EQ(options.device.gpu_memory_limit, std::uint64_t{4} << 30U);
  EXPECT_EQ(options.device.gpu_memory_fraction, 0.4);
  EXPECT_TRUE(options.device.oversubscribe_gpus);
  EXPECT_TRUE(options.device.log_placement);
  EXPECT_EQ(options.device.cuda_graph, GraphMode::off);
  EXPECT_EQ(options.model.precision, Precision::bf16);
  const Options defaults = parse({"devices"});
  EXPECT_EQ(defaults.command, "devices");
  EXPECT_EQ(defaults.device, DeviceOptions{});
}

TEST(Parse, SwitchesStandAloneOrWithAValue) {
  EXPECT_TRUE(parse({"--deterministic"}).optimizer.deterministic);
  EXPECT_TRUE(parse({"--deterministic", "--lr", "1"}).optimizer.deterministic);
  EXPECT_FALSE(parse({"--overlap", "off"}).distributed.overlap);
  EXPECT_FALSE(parse({"--overlap=no"}).distributed.overlap);
  for (const char* word : {"on", "true", "yes", "1"}) EXPECT_TRUE(parse({"--drop-last", word}).batch.drop_last) << word;
  for (const char* word : {"off", "false", "no", "0"}) EXPECT_FALSE(parse({"--overlap", word}).distributed.overlap);
  const Options options = parse({"--deterministic", "plan"});
  EXPECT_TRUE(options.optimizer.deterministic);
  EXPECT_EQ(options.command, "plan");
  EXPECT_THAT(usage_message({"--deterministic", "maybe"}), HasSubstr("expected on or off"));
}

TEST(Parse, TheCommandLineBeatsTheFile) {
  const ConfigFile file(
      "# a comment\r\n\r\nlr = 0.5   # another\nepochs=7\n  nesterov = on\nmomentum = 0.9\n"
      "global-batch = 64\n\tdataset = mnist");
  const Options options = parse({"--config", file.path(), "--lr", "0.125"});
  EXPECT_EQ(options.run.config, file.path());
  EXPECT_EQ(options.optimizer.lr, 0.125);
  EXPECT_EQ(options.optimizer.epochs, 7);
  EXPECT_TRUE(options.optimizer.nesterov);
  EXPECT_EQ(options.data.dataset, "mnist");
  EXPECT_EQ(options.batch.global_batch, 64);
  EXPECT_FALSE(parse({"--config", file.path(), "--nesterov", "off"}).optimizer.nesterov);
}

TEST(Parse, OneBatchSizeOnTheCommandLineReplacesAnotherInTheFile) {
  const ConfigFile file("global-batch = 64\n");
  const Options options = parse({"--config", file.path(), "--batch-per-rank", "8"});
  EXPECT_EQ(options.batch.batch_per_rank, 8);
  EXPECT_EQ(options.batch.global_batch, std::nullopt);
}

TEST(Parse, RefusesTwoBatchSizes) {
  EXPECT_THAT(usage_message({"--global-batch", "8", "-b", "8"}),
              AllOf(HasSubstr("--global-batch"), HasSubstr("--batch-size")));
  const ConfigFile file("global-batch = 64\nbatch-per-rank = 8\n");
  EXPECT_THAT(usage_message({"--config", file.path()}), HasSubstr("--batch-per-rank"));
}

TEST(Parse, UnknownKeysSuggestTheNearest) {
  EXPECT_THAT(usage_message({"--epoch", "3"}), AllOf(HasSubstr("--epoch "), HasSubstr("did you mean --epochs?")));
  EXPECT_THAT(usage_message({"--data_dir=x"}), HasSubstr("did you mean --data-dir?"));
  EXPECT_THAT(usage_message({"-lr", "3"}), HasSubstr("did you mean --lr?"));
  EXPECT_THAT(usage_message({"--learning-rate", "3"}), HasSubstr("did you mean --lr?"));
  EXPECT_THAT(usage_message({"--xylophone-quality", "3"}), AllOf(HasSubstr("--help all"), Not(HasSubstr("mean"))));
  EXPECT_THAT(usage_message({"-q"}), HasSubstr("unknown option -q"));
  const ConfigFile file("lr = 1\nmomentun = 0.9\n");
  EXPECT_THAT(usage_message({"--config", file.path()}),
              AllOf(HasSubstr(file.path() + ":2"), HasSubstr("'momentun'"), HasSubstr("did you mean 'momentum'?")));
}

TEST(Parse, KeysCannotBeAbbreviated) {
  EXPECT_THAT(usage_message({"--momen", "0.9"}), HasSubstr("unknown option --momen"));
}

TEST(Parse, UnknownCommandsSuggestTheNearest) {
  EXPECT_THAT(usage_message({"trian"}), AllOf(HasSubstr("'trian'"), HasSubstr("did you mean train?")));
  EXPECT_THAT(usage_message({"lr=3"}), HasSubstr("options start with --"));
  EXPECT_THAT(usage_message({"train", "eval"}), HasSubstr("unexpected 'eval'"));
  EXPECT_THAT(usage_message({""}), HasSubstr("unknown command"));
}

struct BadCase {
  std::string key;
  std::string value;
  std::string expected;
};

void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.key << " = " << bad.value; }

class BadValues : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadValues, NameKeyValuePlaceAndRange) {
  const BadCase& bad = GetParam();
  EXPECT_THAT(usage_message({"--" + bad.key + "=" + bad.value}),
              AllOf(HasSubstr("--" + bad.key + " " + bad.value), HasSubstr("command line"), HasSubstr(bad.expected)));
  const ConfigFile file("\n" + bad.key + " = " + bad.value + "\n");
  EXPECT_THAT(usage_message({"--config", file.path()}),
              AllOf(HasSubstr(file.path() + ":2: " + bad.key + " = " + bad.value), HasSubstr(bad.expected)));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadValues,
    ::testing::Values(
        BadCase{"lr", "0.1x", "not a number; expected a number from 0 to 1000000"},
        BadCase{"lr", "0,1", "not a number"}, BadCase{"lr", "abc", "not a number"}, BadCase{"lr", "nan", "not finite"},
        BadCase{"lr", "inf", "not finite"}, BadCase{"lr", "-inf", "not finite"}, BadCase{"lr", "1e999", "out of range"},
        BadCase{"lr", "-0.1", "out of range"}, BadCase{"lr", "0x1p3", "not a number"},
        BadCase{"lr", "+1", "not a number"}, BadCase{"momentum", "1", "out of range; expected a number in [0, 1)"},
        BadCase{"epochs", "0", "expected a number in (0, "}, BadCase{"epochs", "-1", "expected a number in (0, "},
        BadCase{"log-interval", "2.5", "not an integer"}, BadCase{"log-interval", "1e3", "not an integer"},
        BadCase{"max-steps", "9223372036854775808", ">= 0"}, BadCase{"seed", "-1", "from 0 to 2^64-1"},
        BadCase{"seed", "18446744073709551616", "out of range"}, BadCase{"workers", "257", "from 0 to 256"},
        BadCase{"workers", "4294967297", "from 0 to 256"}, BadCase{"global-batch", "0", "from 1 to"},
        BadCase{"batch-per-rank", "2147483648", "from 1 to 2147483647"},
        BadCase{"reduction", "rign", "one of ring, tree, root"},
        BadCase{"precision", "fp64", "one of fp32, tf32, bf16"},
        BadCase{"device", "gpu", "did you mean cuda?; expected one of auto, cuda, cpu"},
        BadCase{"gpus", "0;1", "such as 3,2"}, BadCase{"gpus", "-1", "integers >= 0"},
        BadCase{"gpus", "0,", "integers >= 0"},
        BadCase{"gpu-memory-fraction", "0", "out of range; expected a number in (0, 1]"},
        BadCase{"gpu-memory-fraction", "1.01", "(0, 1]"},
        BadCase{"gpu-memory-limit", "4GB", "not a size; expected an integer number of bytes"},
        BadCase{"cuda-graph", "yes", "one of auto, on, off"}, BadCase{"overlap", "maybe", "on or off"},
        BadCase{"bind", "cores", "one of auto, none"}, BadCase{"timeout", "0", "from 0.1"}));

TEST(Parse, RefusesMissingAndEmptyValues) {
  EXPECT_THAT(usage_message({"--lr"}), AllOf(HasSubstr("--lr"), HasSubstr("no value"), HasSubstr("from 0")));
  EXPECT_THAT(usage_message({"--lr="}), HasSubstr("no value"));
  EXPECT_THAT(usage_message({"--lr", ""}), HasSubstr("empty"));
  EXPECT_THAT(usage_message({"-b"}), HasSubstr("--batch-size"));
  EXPECT_THAT(usage_message({"--epochs", "--lr", "3"}), AllOf(HasSubstr("--epochs"), HasSubstr("no value")));
  EXPECT_THAT(usage_message({"--output", ""}), HasSubstr("empty"));
  const ConfigFile file("lr =\n");
  EXPECT_THAT(usage_message({"--config", file.path()}), AllOf(HasSubstr(":1: lr = ''"), HasSubstr("empty")));
}

TEST(Parse, RefusesTextThatAFileCannotHold) {
  EXPECT_THAT(usage_message({"--output", "a#b"}), HasSubstr("comment"));
  EXPECT_THAT(usage_message({"--output", "a\nb"}), HasSubstr("control character"));
  EXPECT_THAT(usage_message({"--output", " a"}), HasSubstr("blank"));
}

TEST(Parse, RefusesKeysGivenTwice) {
  const std::array arguments = {"--lr", "1", "--lr", "2"};
  EXPECT_EQ(parse_options(arguments).optimizer.lr, 2);
  const ConfigFile file("lr = 1\n\nlr = 1\n");
  EXPECT_THAT(usage_message({"--config", file.path()}),
              AllOf(HasSubstr(file.path() + ":3: lr is set twice"), HasSubstr("line 1")));
}

TEST(Parse, RefusesFilesThatAreNone) {
  EXPECT_THAT(usage_message({"--config", "/nonexistent/x.cfg"}),
              AllOf(HasSubstr("/nonexistent/x.cfg"), HasSubstr("No such file")));
  EXPECT_THAT(usage_message({"--config", "/tmp"}), HasSubstr("folder"));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"lr = 1\nnesterov\n", ":2: 'nesterov' is not of the form key = value"},
      {"[optimizer]\nlr = 1\n", ":1: '[optimizer]' is not of the form"},
      {" [optimizer] # section\n", ":1: "},
      {"config = other.cfg\n", "on the command line only"},
      {"help = model\n", "on the command line only"},
      {std::string("lr = 1\n\0\1\2", 10), ":2: contains a control character"},
      {"= 3\n", ":1: unknown key ''"},
      {"optimizer.lr = 3\n", "unknown key 'optimizer.lr'"},
      {"--lr = 3\n", "did you mean 'lr'?"},
      {"", "contains no options; is it the right file?"},
      {"# nothing but a comment\n\n", "contains no options; is it the right file?"},
  };
  for (const auto& [text, expected] : cases) {
    const ConfigFile file(text);
    EXPECT_THAT(usage_message({"--config", file.path()}), HasSubstr(expected));
  }
  const ConfigFile large(std::string(2 << 20, '\n'));
  EXPECT_THAT(usage_message({"--config", large.path()}), HasSubstr("larger than 1.0 MiB"));
  EXPECT_THAT(usage_message({"--config", "/dev/zero"}), HasSubstr("/dev/zero is not a regular file"));
}

// Cut at many positions.
TEST(Parse, RefusesAWrittenConfigurationThatIsCutShort) {
  const std::string whole = dump_config(parse({"--lr", "0.05"}));
  for (std::size_t size = kConfigBegin.size(); size < whole.rfind(kConfigEnd) + kConfigEnd.size(); size += 97) {
    const ConfigFile file(whole.substr(0, size));
    EXPECT_THAT(usage_message({"--config", file.path()}), HasSubstr("is truncated, its last lines are missing"));
  }
}

// As they are in the checkpoints of tests/program/old_runs.py.
TEST(Parse, ReadsConfigurationsThatEarlierVersionsWrote) {
  int read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(GOLDEN_DIR "/old_runs")) {
    if (!entry.is_directory()) continue;
    const std::string config = nlohmann::json::parse(std::ifstream(entry.path() / "state.json"))["config"];
    const ConfigFile file(config);
    EXPECT_EQ(parse({"--config", file.path()}).optimizer.max_steps, 4) << entry.path();
    EXPECT_EQ(with_stored_run(Options{}, config).optimizer.lr, 0.05) << entry.path();
    ++read;
  }
  EXPECT_GE(read, 3);
}

TEST(RunDirectory, HasSlurmsNumbersFilledIn) {
  const auto folder = [](const std::string& output) { return run_directory(parse({"--output", output})).string(); };
  const auto refusal = [&](const std::string& output) {
    try {
      return folder(output) + " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      return std::string(error.what());
    }
  };
  for (const char* variable : {"SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"}) ::unsetenv(variable);
  EXPECT_EQ(folder("runs/a"), "runs/a");
  EXPECT_EQ(folder("runs/100%%"), "runs/100%");
  EXPECT_THAT(refusal("runs/%j"),
              HasSubstr("SLURM_JOB_ID is not set in the environment, but %j requires it; start the run under Slurm, "));
  EXPECT_THAT(refusal("runs/%a"), HasSubstr("but %a requires it; start the run under Slurm as a job"));
  EXPECT_THAT(refusal("runs/%J"), HasSubstr("use %j (Slurm job ID)"));
  EXPECT_THAT(refusal("runs/50%"), HasSubstr("use %j (Slurm job ID)"));
  ::setenv("SLURM_JOB_ID", "1235", 1);
  ::setenv("SLURM_ARRAY_JOB_ID", "1234", 1);
  ::setenv("SLURM_ARRAY_TASK_ID", "1", 1);
  EXPECT_EQ(folder("runs/%j/%A-%a"), "runs/1235/1234-1");
  for (const char* variable : {"SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"}) ::unsetenv(variable);
}

TEST(Parse, RefusesOptionsThatContradictEachOther) {
  EXPECT_THAT(usage_message({"--nesterov"}), HasSubstr("--momentum"));
  EXPECT_THAT(usage_message({"--schedule", "step"}), HasSubstr("--lr-step-epochs"));
  EXPECT_THAT(usage_message({"--schedule", "cosine", "--lr-min", "0.2"}),
              HasSubstr("--lr-min 0.2 is greater than --lr 0.1"));
  EXPECT_THAT(usage_message({"--warmup-epochs", "3", "--epochs", "2"}), HasSubstr("--warmup-epochs 3"));
}

TEST(Parse, LongGarbageStaysOneShortLine) {
  EXPECT_LT(usage_message({"--lr", std::string(100000, 'x')}).size(), 250U);
  EXPECT_LT(usage_message({"--" + std::string(100000, 'x')}).size(), 250U);
}

TEST(Parse, AByteOrderMarkBeginsAFile) {
  const ConfigFile file("\xef\xbb\xbflr = 0.25\n");
  EXPECT_EQ(parse({"--config", file.path()}).optimizer.lr, 0.25);
}

TEST(Parse, TheNameOfAnExportSaysItsFormat) {
  EXPECT_EQ(format_of(parse({"export", "--to", "x.safetensors"}).exported), ExportFormat::safetensors);
  EXPECT_EQ(format_of(parse({"export", "--to", "x.onnx"}).exported), ExportFormat::onnx);
  EXPECT_EQ(format_of(parse({"export", "--to", "x", "--format", "onnx"}).exported), ExportFormat::onnx);
  EXPECT_THAT(usage_message({"export", "--to", "x.safetensors", "--format", "onnx"}), HasSubstr("x.safetensors"));
  EXPECT_THAT(usage_message({"export", "--to", "x.bin"}), HasSubstr("set --format"));
  // Other commands that write a file.
  EXPECT_EQ(parse({"report", "runs/a", "--to", "x.html"}).exported.to, "x.html");
  EXPECT_EQ(parse({"scaling", "--to", "x.svg", "--scaling-seconds", "1"}).scaling.seconds, 1);
  EXPECT_THAT(usage_message({"train", "--to", "x.html"}),
              HasSubstr("applies to the commands export, pack, report and scaling only"));
  EXPECT_THAT(usage_message({"bench", "--scaling-seconds", "1"}), HasSubstr("applies to the command scaling only"));
}

TEST(Parse, EvalAndExportNameCheckpointsAlike) {
  for (const char* command : {"eval", "export"}) {
    const auto chosen = [&](std::vector<const char*> more) {
      std::vector<const char*> args = {command};
      if (std::string(command) == "export") args.insert(args.end(), {"--to", "x.onnx"});
      args.insert(args.end(), more.begin(), more.end());
      return chosen_checkpoint(parse_options(args, command_table()));
    };
    EXPECT_EQ(chosen({"--run", "r"}), "r");
    EXPECT_EQ(chosen({"--run", "r", "--checkpoint", "best"}), "r/best");
    EXPECT_EQ(chosen({"--output", "r"}), "r");
    EXPECT_EQ(chosen({"--resume", "r/best"}), "r/best");
    EXPECT_EQ(chosen({"--checkpoint", "r/checkpoints/step-00000008"}), "r/checkpoints/step-00000008");
  }
}

TEST(Table, KeysAreUniqueAndInAKnownTopic) {
  const std::vector<OptionSpec> table = option_table();
  for (const OptionSpec& spec : table) {
    EXPECT_EQ(find_option(table, spec.key), &spec) << spec.key << " is there twice";
    bool known = false;
    for (const OptionTopic& topic : option_topics()) known = known || topic.name == spec.topic;
    EXPECT_TRUE(known) << spec.topic;
  }
}

TEST(Folders, DefaultToTheModelAndDataSet) {
  Options options;
  EXPECT_EQ(run_directory(options), "runs/lenet-glyphs");
  options.output.output = "elsewhere";
  EXPECT_EQ(run_directory(options), "elsewhere");
}

TEST(Folders, ThePlanCacheFollowsTheEnvironment) {
  Options options;
  options.output.plan_cache = "off";
  EXPECT_EQ(plan_cache_directory(options), std::nullopt);
  options.output.plan_cache = "plans";
  EXPECT_EQ(plan_cache_directory(options), "plans");
  options.output.plan_cache.clear();
  ASSERT_EQ(setenv("HOME", "/home/someone", 1), 0);
  ASSERT_EQ(setenv("XDG_CACHE_HOME", "/cache", 1), 0);
  EXPECT_EQ(plan_cache_directory(options), "/cache/ddp_train/plans");
  ASSERT_EQ(setenv("XDG_CACHE_HOME", "relative", 1), 0);
  EXPECT_EQ(plan_cache_directory(options), "/home/someone/.cache/ddp_train/plans");
  ASSERT_EQ(unsetenv("XDG_CACHE_HOME"), 0);
  ASSERT_EQ(unsetenv("HOME"), 0);
  EXPECT_EQ(plan_cache_directory(options), std::nullopt);
}

}  // namespace
}  // namespace ddp
