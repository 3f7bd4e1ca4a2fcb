#include "commands/measure/measure.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/host.h"
#include "job/report.h"
#include "job/signals.h"
#include "machine/peak.h"
#include "options/parse.h"
#include "run_folder/run_folder.h"
#include "train/inputs/resume.h"
#include "train/loop/prepared_run.h"
#include "train/loop/trainer.h"
#include "train/loop/training_run.h"

namespace ddp {

namespace {

// The lowest rank on the machine of `rank`, of "HOST BOOT-ID" from each rank.
std::int64_t first_on_machine(const std::vector<std::string>& kernels, std::size_t rank) {
  const auto same = [&](const std::string& other) {
    const std::string_view mine = kernels[rank];
    const std::string_view boot = mine.substr(mine.find(' '));
    return other == mine || (boot.size() > 1 && other.ends_with(boot));
  };
  return std::find_if(kernels.begin(), kernels.end(), same) - kernels.begin();
}

// --balance on moves shards when it has measured the ranks. Trains until it has done so, twice, before the steps that count; then
// the division stays.
// Returns the options of these steps.
Options settle(const MpiSession& session, PreparedRun& prepared, TrainingRun& run) {
  constexpr std::int64_t kSettlingSteps = 44;
  Options options = prepared.job.options;
  if (!options.batch.balance) return options;
  std::int64_t& steps = options.optimizer.max_steps;
  options.optimizer.epochs += static_cast<double>(kSettlingSteps);
  const std::int64_t counted = std::exchange(steps, kSettlingSteps);
  or_abort(session, [&] { (void)Trainer(prepared, run, options, Signals::current(), nullptr).run(); });
  steps = kSettlingSteps + counted;
  options.batch.balance = false;
  return options;
}

}  // namespace

RunFacts complete_facts(RunFacts facts, const Ranks& where, const Options& options) {
  Communicator& ranks = *where.communicator;
  const auto gathered = [&](std::int64_t mine) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(ranks.size()));
    ranks.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                     "facts about the ranks");
    return all;
  };
  for (const Topology::RankHost& place : where.topology.ranks) facts.hosts.push_back(place.host_name);
  facts.threads = gathered(where.binding.threads);
  const std::vector<std::string> kernels =
      ranks.all_gather_text(fmt::format("{} {}", where.topology.host(), boot_id()), "the machines of the ranks");
  const std::vector<std::string> lists =
      ranks.all_gather_text(fmt::format("{}", fmt::join(where.binding.cpus, ",")), "the cores of the ranks");
  std::vector<std::set<std::string>> cpus(lists.size());
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    facts.machines.push_back(first_on_machine(kernels, rank));
    std::istringstream list(lists[rank]);
    for (std::string cpu; std::getline(list, cpu, ',');) {
      cpus[static_cast<std::size_t>(facts.machines[rank])].insert(cpu);
    }
  }
  for (const std::int64_t machine : facts.machines) {
    facts.cpus.push_back(static_cast<std::int64_t>(cpus[static_cast<std::size_t>(machine)].size()));
  }
  facts.peak_flops =
      facts.gpu ? gpu_peak_flops(facts.device, options.model.precision) : cpu_peak_flops(where.binding.threads);
  return facts;
}

RunTiming measure_training(const MpiSession& session, const Options& given, const std::filesystem::path& folder) {
  Options options = at_full_size(given);
  options.output.resume = "none";
  options.output.output = folder.string();
  options.output.progress = ProgressStyle::none;
  const Ranks ranks = open_ranks(session, options);
  Communicator& communicator = *ranks.communicator;
  std::unique_ptr<RunFolder> run_folder;
  (void)find_resume_point(session, communicator, options, run_folder);
  PreparedRun prepared(session, communicator, ranks.device, options);
  std::optional<Console> console;
  std::optional<RunOutput> output;
  if (run_folder) output.emplace(RunOutput{*run_folder, console.emplace(ProgressStyle::none)});
  TrainingRun run(prepared);
  const Options measured = settle(session, prepared, run);
  Trainer trainer(prepared, run, measured, Signals::current(), output ? &*output : nullptr);
  const RunFacts facts = or_abort(session, [&] { return complete_facts(trainer.facts(), ranks, options); });
  trainer.set_facts(facts);
  together(session, [&] {
    if (run_folder) run_folder->open({dump_config(measured), prepared.inputs.onnx, prepared.inputs.split, 1, false});
  });
  return or_abort(session, [&] {
    (void)trainer.run();
    RunTiming timing = trainer.timing();
    timing.facts = facts;
    run_folder.reset();
    if (session.rank() == 0) {
      std::error_code ignored;
      std::filesystem::remove_all(folder, ignored);
    }
    communicator.barrier();
    return timing;
  });
}

RunTiming measure_training(const MpiSession& session, const Ranks& where, const Options& options) {
  Communicator& communicator = *where.communicator;
  PreparedRun prepared(session, communicator, where.device, at_full_size(options));
  TrainingRun run(prepared);
  Trainer trainer(prepared, run, prepared.job.options, Signals::current(), nullptr);
  return or_abort(session, [&] {
    const RunFacts facts = complete_facts(trainer.facts(), where, options);
    (void)trainer.run();
    RunTiming timing = trainer.timing();
    timing.facts = facts;
    return timing;
  });
}

}  // namespace ddp
