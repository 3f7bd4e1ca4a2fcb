// Devices and reducers on the stand-ins, for the test suites.
#pragma once

#include "stand_ins/cuda/nccl.h"
#include "stand_ins/cuda/stream_backend.h"
#include "unit/comm/device_communicator_suite.h"
#include "unit/gradients/reducer_suite.h"

namespace ddp::testing {

// A stream and NCCL over messages of `ranks`. Called by all ranks, each with its own faults.
Device make_nccl_device(Communicator& ranks, NcclFaults faults = {});

// The same with a Reducer; fixed orders of additions are staged through the host.
ReducerRig make_nccl_reducer(Communicator& ranks, const ReducerConfig& config, NcclFaults faults = {});

inline cudaStream_t stream_of(Backend& backend) { return static_cast<cudaStream_t>(backend.queue().native_stream()); }

}  // namespace ddp::testing
