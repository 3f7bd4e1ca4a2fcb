// Short runs of the same job for measurements, and the facts about the ranks that a run's timing needs.
//
//   trainer.set_facts(complete_facts(trainer.facts(), ranks, options));
//   RunTiming timing = measure_training(session, options, "runs/a/verify");   // a run of options.optimizer.max_steps steps
#pragma once

#include <filesystem>

#include "commands/ranks.h"
#include "job/mpi_session.h"
#include "metrics/timing.h"
#include "options/options.h"

namespace ddp {

// Collective. Adds who and where the ranks are.
RunFacts complete_facts(RunFacts facts, const Ranks& where, const Options& options);

// Collective. Trains quietly in `folder`, which rank 0 creates and removes again; the timing is the same on all ranks.
RunTiming measure_training(const MpiSession& session, const Options& given, const std::filesystem::path& folder);

// Collective over `where`, which are the ranks of the session. Trains without a run folder.
RunTiming measure_training(const MpiSession& session, const Ranks& where, const Options& options);

}  // namespace ddp
