// Options of single commands, which are allowed on the command line only.
#include <vector>

#include "options/table/topic_table.h"
#include "options/table/topics.h"

namespace ddp {
namespace {

void add_export(std::vector<OptionSpec>& table) {
  TopicTable exported(table, kCommandTopic, &Options::exported);
  using E = ExportOptions;
  exported.begin_group("eval, export");
  exported.text("run", &E::run, "DIR", "a run folder", "run folder").unset = "--output";
  exported.text("checkpoint", &E::checkpoint, "latest|best|PATH", "latest, best or the path to a checkpoint",
                "checkpoint to use");
  exported.begin_group("export, pack, report, scaling");
  exported.text(
      "to", &E::to, "FILE", "a file",
      "output file, of pack a folder; by default report writes RUN/report.html, and scaling writes scaling.svg");
  exported.begin_group("export");
  exported.choice("format", &E::format,
                  "onnx: network and weights, for inference; safetensors: weights only, for PyTorch; auto: by the "
                  "extension of --to");
  exported.on_off("average", &E::average, "export the moving average of the weights (--ema-decay)");
  exported.choice("export-precision", &E::precision, "numeric format of the exported tensors");
  exported.on_off("fold-batch-norm", &E::fold_batch_norm, "onnx: fold batch normalization into the preceding layers");
}

void add_pack(std::vector<OptionSpec>& table) {
  using P = PackOptions;
  TopicTable pack(table, kCommandTopic, &Options::pack);
  pack.begin_group("pack");
  pack.integer("pack-size", &P::size, 0, 65535,
               "resize pictures so that the shorter side has at most N pixels; smaller ones, and all for 0, are stored "
               "as they are");
  pack.choice("pack-format", &P::format, "of pictures that are resized");
  pack.integer("pack-quality", &P::quality, 1, 100, "quality of JPEG");
  pack.integer("shard-mib", &P::shard_mib, 1, 1 << 20, "size of a shard in MiB, about");
}

void add_eval(std::vector<OptionSpec>& table) {
  OptionSpec& spec = table.emplace_back();
  spec.topic = kCommandTopic;
  spec.group = "eval";
  spec.key = "json";
  spec.help = "print one line of JSON in place of tables";
  spec.allowed = "on or off";
  spec.bare = "on";
  spec.set = [](Options& options, std::string_view value) { options.json = read_switch(value); };
  spec.get = [](const Options&) { return std::nullopt; };
}

void add_bench(std::vector<OptionSpec>& table) {
  TopicTable bench(table, kCommandTopic, &Options::bench);
  bench.begin_group("bench");
  bench.on_off("on-request", &BenchOptions::on_request,
               "time 0.3 s of training steps for each line read from standard input");
  bench.on_off("stages", &BenchOptions::stages,
               "print a table of each stage's time, GFLOP/s, GB/s and share of the measured peak before the result");
}

void add_sweep(std::vector<OptionSpec>& table) {
  using S = SweepOptions;
  TopicTable sweep(table, kCommandTopic, &Options::sweep);
  sweep.begin_group("sweep");
  sweep.texts("sweep", &S::axes, "KEY=VALUES",
              "KEY=V1,V2,..., or KEY=LOW..HIGH or KEY=log:LOW..HIGH with --sweep-draws",
              "values of an option; repeated, all combinations are trained");
  sweep.text("sweep-list", &S::list, "FILE", "a file", "settings to train, one line of KEY=VALUE words each");
  sweep.integer("sweep-draws", &S::draws, 0, 1'000'000, "train N settings drawn at random by --seed, instead of all");
  sweep.integer("ranks-per-trial", &S::ranks_per_trial, 1, 1 << 20, "ranks that train one setting together");
  sweep.integer("sweep-halving", &S::halving, 0, 1000,
                "successive halving (ASHA): after each rung the best 1/N of the trials continue; 0: off");
  sweep.integer("sweep-halving-epochs", &S::halving_epochs, 1, 1'000'000,
                "epochs of the first rung; each further rung has --sweep-halving times as many");
  sweep.integer("sweep-max-trials", &S::max_trials, 1, 1'000'000, "limit on the number of settings");
}

void add_explain(std::vector<OptionSpec>& table) {
  TopicTable explain(table, kCommandTopic, &Options::explain);
  explain.begin_group("explain");
  explain.integer("verify", &ExplainOptions::verify, 0, 1'000'000,
                  "train for N steps with and without the best cure, and compare its gain with the prediction; 0: off");
  explain.on_off(
      "probe", &ExplainOptions::probe,
      "measure the run's step with a larger batch or fewer threads, for some seconds, where a prediction needs it");
}

void add_scaling(std::vector<OptionSpec>& table) {
  TopicTable scaling(table, kCommandTopic, &Options::scaling);
  scaling.begin_group("scaling");
  scaling.real("scaling-seconds", &ScalingOptions::seconds, {0.1, 3600},
               "seconds of training that are measured for each number of ranks and batch");
}

}  // namespace

void add_command_options(std::vector<OptionSpec>& table) {
  const std::size_t first = table.size();
  add_export(table);
  add_pack(table);
  add_eval(table);
  add_bench(table);
  add_sweep(table);
  add_explain(table);
  add_scaling(table);
  for (std::size_t i = first; i < table.size(); ++i) table[i].command_line_only = true;
}

}  // namespace ddp
