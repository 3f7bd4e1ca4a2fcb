#include "metrics/timing.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/text/text.h"

namespace ddp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr ExitCode kTimingCode = ExitCode::checkpoint;
constexpr const char* kTimingFile = "timing.json";
constexpr int kTimingVersion = 1;
constexpr std::uint64_t kMostTimingBytes = std::uint64_t{64} << 20U;

Json json_of(const RankTiming& rank) {
  Json seconds;
  for (const Phase phase : kPhases) seconds[phase_key(phase)] = rank.phases[phase];
  return {{"steps", rank.steps},
          {"seconds", std::move(seconds)},
          {"slowest", rank.slowest},
          {"best_work", rank.best_work},
          {"core_wait", rank.core_wait},
          {"cpu_seconds", rank.cpu_seconds},
          {"loader",
           {{"batches", rank.loader.batches},
            {"ready", rank.loader.ready},
            {"busy", rank.loader.busy_seconds},
            {"cpu", rank.loader.cpu_seconds}}},
          {"sum_seconds", rank.sum_seconds},
          {"memory", rank.memory},
          {"gpu_clock",
           {{"samples", rank.gpu_clock.samples},
            {"speed", rank.gpu_clock.speed},
            {"heat", rank.gpu_clock.heat},
            {"power", rank.gpu_clock.power}}}};
}

RankTiming rank_of(const Json& json) {
  RankTiming rank;
  json.at("steps").get_to(rank.steps);
  for (const Phase phase : kPhases) json.at("seconds").at(phase_key(phase)).get_to(rank.phases[phase]);
  json.at("best_work").get_to(rank.best_work);
  json.at("core_wait").get_to(rank.core_wait);
  json.at("cpu_seconds").get_to(rank.cpu_seconds);
  json.at("loader").at("batches").get_to(rank.loader.batches);
  json.at("loader").at("ready").get_to(rank.loader.ready);
  json.at("loader").at("busy").get_to(rank.loader.busy_seconds);
  json.at("sum_seconds").get_to(rank.sum_seconds);
  json.at("memory").get_to(rank.memory);
  // Runs of earlier versions lack what follows.
  rank.loader.cpu_seconds = json.at("loader").value("cpu", rank.loader.busy_seconds);
  rank.slowest = json.value("slowest", 0.0);
  const auto clock = json.find("gpu_clock");
  if (clock == json.end()) return rank;
  clock->at("samples").get_to(rank.gpu_clock.samples);
  clock->at("speed").get_to(rank.gpu_clock.speed);
  clock->at("heat").get_to(rank.gpu_clock.heat);
  clock->at("power").get_to(rank.gpu_clock.power);
  return rank;
}

Json json_of(const RunFacts& facts) {
  Json json = {{"program", facts.program},
               {"device", facts.device},
               {"gpu", facts.gpu},
               {"hosts", facts.hosts},
               {"machines", facts.machines},
               {"threads", facts.threads},
               {"cpus", facts.cpus},
               {"samples", facts.samples},
               {"workers", facts.workers},
               {"global_batch", facts.global_batch},
               {"shards", facts.shards},
               {"steps_per_epoch", facts.steps_per_epoch},
               {"reduction", facts.reduction},
               {"overlaps", facts.overlaps},
               {"flops_per_sample", facts.flops_per_sample},
               {"peak_flops", nullptr},
               {"bucket_bytes", facts.bucket_bytes}};
  if (facts.peak_flops) json["peak_flops"] = *facts.peak_flops;
  if (!facts.divisible.names.empty()) {
    json["divisible_layers"] = {{"names", facts.divisible.names},
                                {"activations", facts.divisible.activations},
                                {"gradients", facts.divisible.gradients}};
  }
  if (facts.pipeline.stages > 1) {
    json["pipeline"] = {{"stages", facts.pipeline.stages},
                        {"micro_batches", facts.pipeline.micro_batches},
                        {"layers", facts.pipeline.layers},
                        {"data_parallel_seconds", facts.pipeline.data_parallel_seconds}};
  }
  return json;
}

RunFacts facts_of(const Json& json) {
  RunFacts facts;
  json.at("program").get_to(facts.program);
  json.at("device").get_to(facts.device);
  json.at("gpu").get_to(facts.gpu);
  json.at("hosts").get_to(facts.hosts);
  if (json.contains("machines")) {
    json.at("machines").get_to(facts.machines);
  } else {  // a run of an earlier version
    for (const std::string& host : facts.hosts) {
      facts.machines.push_back(std::find(facts.hosts.begin(), facts.hosts.end(), host) - facts.hosts.begin());
    }
  }
  json.at("threads").get_to(facts.threads);
  json.at("cpus").get_to(facts.cpus);
  json.at("samples").get_to(facts.samples);
  json.at("workers").get_to(facts.workers);
  json.at("global_batch").get_to(facts.global_batch);
  json.at("shards").get_to(facts.shards);
  json.at("steps_per_epoch").get_to(facts.steps_per_epoch);
  json.at("reduction").get_to(facts.reduction);
  json.at("overlaps").get_to(facts.overlaps);
  json.at("flops_per_sample").get_to(facts.flops_per_sample);
  if (!json.at("peak_flops").is_null()) facts.peak_flops = json.at("peak_flops").get<double>();
  json.at("bucket_bytes").get_to(facts.bucket_bytes);
  if (const auto layers = json.find("divisible_layers"); layers != json.end()) {
    layers->at("names").get_to(facts.divisible.names);
    layers->at("activations").get_to(facts.divisible.activations);
    layers->at("gradients").get_to(facts.divisible.gradients);
  }
  if (const auto pipeline = json.find("pipeline"); pipeline != json.end()) {
    pipeline->at("stages").get_to(facts.pipeline.stages);
    pipeline->at("micro_batches").get_to(facts.pipeline.micro_batches);
    pipeline->at("layers").get_to(facts.pipeline.layers);
    pipeline->at("data_parallel_seconds").get_to(facts.pipeline.data_parallel_seconds);
  }
  return facts;
}

bool consistent(const PipelineFacts& pipeline, std::size_t ranks) {
  if (pipeline.stages == 1) return true;
  return pipeline.stages > 1 && pipeline.micro_batches >= 1 && std::ssize(pipeline.layers) == pipeline.stages &&
         static_cast<std::int64_t>(ranks) % pipeline.stages == 0 && std::isfinite(pipeline.data_parallel_seconds);
}

// Whether the lists belong together and every number is usable.
bool consistent(const RunTiming& timing) {
  const std::size_t ranks = timing.ranks.size();
  const RunFacts& facts = timing.facts;
  if (ranks == 0 || facts.hosts.size() != ranks || facts.machines.size() != ranks || facts.threads.size() != ranks ||
      facts.cpus.size() != ranks || facts.samples.size() != ranks || facts.global_batch < 1 ||
      facts.steps_per_epoch < 1 || !consistent(facts.pipeline, ranks)) {
    return false;
  }
  if (!timing.buckets.empty() && timing.buckets.size() != facts.bucket_bytes.size()) return false;
  return std::all_of(timing.ranks.begin(), timing.ranks.end(), [](const RankTiming& rank) {
    return rank.steps >= 0 && std::isfinite(rank.phases.sum()) && rank.phases.sum() >= 0;
  });
}

}  // namespace

std::string to_json(const RunTiming& timing) {
  Json json = {
      {"version", kTimingVersion},         {"complete", timing.complete},       {"step", timing.step},
      {"evaluations", timing.evaluations}, {"checkpoints", timing.checkpoints}, {"run", json_of(timing.facts)}};
  json["ranks"] = Json::array();
  for (const RankTiming& rank : timing.ranks) json["ranks"].push_back(json_of(rank));
  json["buckets"] = Json::array();
  for (const BucketTiming& bucket : timing.buckets) {
    json["buckets"].push_back(
        {{"ready", bucket.ready}, {"begun", bucket.begun}, {"done", bucket.done}, {"shortest", bucket.shortest}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunTiming parse_timing(const std::string& text, const std::string& origin) {
  RunTiming timing;
  try {
    const Json json = Json::parse(text);
    const int version = json.at("version").get<int>();
    check(version <= kTimingVersion, kTimingCode,
          "{}: version {} was written by a newer ddp_train; read it with that one", origin, version);
    json.at("complete").get_to(timing.complete);
    json.at("step").get_to(timing.step);
    json.at("evaluations").get_to(timing.evaluations);
    json.at("checkpoints").get_to(timing.checkpoints);
    timing.facts = facts_of(json.at("run"));
    for (const Json& rank : json.at("ranks")) timing.ranks.push_back(rank_of(rank));
    for (const Json& bucket : json.at("buckets")) {
      timing.buckets.push_back({bucket.at("ready").get<double>(), bucket.at("begun").get<double>(),
                                bucket.at("done").get<double>(), bucket.at("shortest").get<double>()});
    }
  } catch (const Json::exception& damaged) {
    throw Error(kTimingCode, fmt::format("{}: damaged ({}); train again to measure", origin, damaged.what()));
  }
  check(consistent(timing), kTimingCode, "{}: damaged (its numbers do not belong together); train again to measure",
        origin);
  return timing;
}

void write_timing(const fs::path& run_dir, const RunTiming& timing) {
  const fs::path path = run_dir / kTimingFile;
  const fs::path temporary = run_dir / fmt::format("{}{}-{}", kTemporaryPrefix, kTimingFile, ::getpid());
  std::error_code error;
  fs::remove(temporary, error);
  File file(temporary, File::Mode::create_new, kTimingCode);
  file.write(to_json(timing));
  file.close();
  fs::rename(temporary, path, error);
  if (error) file_error(kTimingCode, "replace", path, error.value());
}

RunTiming read_timing(const fs::path& run_dir) {
  std::error_code error;
  check(fs::is_directory(run_dir, error), kTimingCode, "{}: no such folder; give the folder of a run",
        run_dir.string());
  if (!fs::exists(run_dir / kTimingFile, error)) {
    check(fs::exists(run_dir / "config.cfg", error), kTimingCode,
          "{}: not the folder of a run (no config.cfg); give the --output of a run", run_dir.string());
    throw Error(kTimingCode, fmt::format("{}: no {}: the run has not made its first steps yet, or was made by an older "
                                         "ddp_train or with --recording off; "
                                         "wait, or train again to measure",
                                         run_dir.string(), kTimingFile));
  }
  return parse_timing(read_text(run_dir / kTimingFile, kTimingCode, kMostTimingBytes),
                      (run_dir / kTimingFile).string());
}

}  // namespace ddp
