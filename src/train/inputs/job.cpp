#include "train/inputs/job.h"

#include <utility>

#include "base/error.h"
#include "job/report.h"
#include "train/inputs/fingerprint.h"
#include "train/inputs/resume.h"

namespace ddp {
namespace {

// What a checkpoint says, or the latest.
int defaults_of(const RunStart& start) {
  if (start.evaluated) return start.evaluated->defaults;
  return start.resumed ? start.resumed->defaults : kLatestDefaults;
}

// Collective.
BatchOptions divided_batch(const MpiSession& session, const Options& options, const RunStart& start) {
  BatchOptions batch = options.batch;
  if (start.resumed) {
    batch.logical_shards = together(session, [&] { return resumed_shards(options, *start.resumed, session.size()); });
  }
  // Evaluations have no shards, whatever the configuration of the run says.
  const bool too_few = batch.logical_shards < session.size();
  if (start.evaluated && too_few) batch.logical_shards = 0;
  return batch;
}

}  // namespace

Job agree_on_job(const MpiSession& session, Communicator& ranks, const Device& device, const Options& options,
                 RunStart start) {
  // Before any other collective work.
  check_same_on_all_ranks(ranks, options_fingerprint(options), ExitCode::preflight,
                          "start all ranks with the same program and options");
  const int defaults = defaults_of(start);
  const BatchOptions batch = divided_batch(session, options, start);
  Job job{ranks, device, options, defaults, batch, std::move(start)};
  OptimizerOptions& optimizer = job.options.optimizer;
  if (!job.evaluates() && !optimizer.freeze.empty()) {
    optimizer.frozen_statistics =
        keeps_frozen_statistics(optimizer, defaults) ? FrozenStatistics::keep : FrozenStatistics::update;
  }
  if (!reads_all_pictures(defaults)) {
    DataOptions& data = job.options.data;
    check(!data.exif_orientation || !job.options.given.has("exif-orientation"), ExitCode::usage,
          "--exif-orientation on: an earlier version began this run, without turning its images; remove it");
    data.exif_orientation = false;
  }
  return job;
}

PipelinePlace place_of(const Job& job) {
  check(job.stages() == 1 || job.on_cpu(), ExitCode::usage,
        "--pipeline works on CPUs only; use --device cpu, or remove it");
  return pipeline_place(job.stages(), job.size(), job.rank());
}

bool keeps_frozen_statistics(const OptimizerOptions& options, int defaults) {
  return options.frozen_statistics ? *options.frozen_statistics == FrozenStatistics::keep
                                   : keeps_frozen_statistics(defaults);
}

}  // namespace ddp
