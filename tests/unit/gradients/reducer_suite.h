// Requirements for the reducer over every transport, as functions that all ranks call: run on threads and under mpirun,
// on host memory and on devices.
//
//   run_as_threads(4, [&](Communicator& ranks) { c.body(ranks, make_host_reducer); });
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "comm/sums/device_communicator.h"
#include "gradients/reducer.h"
#include "gradients/reducer_config.h"

namespace ddp::testing {

// A reducer with its dependencies.
struct ReducerRig {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<DeviceCommunicator> sums;
  std::unique_ptr<Reducer> reducer;
};
// Called by all ranks.
using MakeReducer = std::function<ReducerRig(Communicator&, const ReducerConfig&)>;

// On host memory, with sums on a helper thread.
ReducerRig make_host_reducer(Communicator& ranks, const ReducerConfig& config);
// On host memory, with sums staged as for a device.
ReducerRig make_staged_reducer(Communicator& ranks, const ReducerConfig& config);

struct ReducerCase {
  std::string name;
  void (*body)(Communicator&, const MakeReducer&);
};

const std::vector<ReducerCase>& reducer_cases();

inline std::ostream& operator<<(std::ostream& out, const ReducerCase& c) { return out << c.name; }

// The parameters of a small model with many buckets; sizes are prime, one is 0.
const std::vector<std::size_t>& model_parameters();
ReducerConfig model_config(Reduction algorithm, bool overlap, int shards);

// Executes one step in which a shard's gradient is random_gradient(seed, step, shard), and notifies the reducer, as
// backward would, each time a parameter is ready.
void run_step(const ReducerRig& rig, Communicator& ranks, const ReducerConfig& config, std::uint64_t seed,
              std::int64_t step);

// Returns a host copy of the reducer's gradient.
std::vector<float> gradient_of(const ReducerRig& rig, std::size_t elements);

}  // namespace ddp::testing
