// Names that the examples in headers assume. Nothing is defined: the examples are compiled, not run.
#pragma once

#include <mpi.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "checkpoint/state.h"
#include "checkpoint/tensor_view.h"
#include "comm/communicator.h"
#include "comm/gpu_module.h"
#include "job/mpi_session.h"
#include "machine/topology.h"
#include "metrics/display/console.h"
#include "options/options.h"

namespace ddp {

extern int argc;
extern char** argv;
extern const std::filesystem::path path, run_dir;
extern const std::string name, text, line;
extern const std::span<const std::byte> bytes;
extern const std::uint64_t seed, epoch, sample_index;
extern const std::uint8_t* const plane;
extern const int rank, size, epochs, lowest_failing_rank;
extern std::int64_t step;
extern const double timeout, clock, eta, loss, accuracy;
extern std::vector<float> parameters;
extern const Options options;
extern const MpiSession& session;
extern Communicator& communicator;
extern const Topology& topology;
extern const TrainingProgress progress;
extern const EpochRecord epoch_record;
extern const std::vector<PhaseTotals> totals_of_all_ranks;
extern const std::vector<std::string> hosts;
extern TrainingState state;
extern std::vector<TensorView> views, model_views, optimizer_views;
void work();

}  // namespace ddp
