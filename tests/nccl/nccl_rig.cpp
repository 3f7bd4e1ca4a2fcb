#include "nccl/nccl_rig.h"

#include "comm/nccl/nccl_communicator.h"

namespace ddp::testing {

Device make_nccl_device(Communicator& ranks, NcclFaults faults) {
  Device device;
  device.backend = make_stream_backend();
  std::unique_ptr<Communicator> messages = ranks.duplicate();
  // The code under test must detect a silent rank before the stand-in's messages time out.
  messages->set_timeout(60);
  prepare_nccl(std::move(messages), faults);
  device.sums = make_nccl_communicator(ranks, device.backend->device());
  return device;
}

ReducerRig make_nccl_reducer(Communicator& ranks, const ReducerConfig& config, NcclFaults faults) {
  Device device = make_nccl_device(ranks, faults);
  ReducerRig rig;
  rig.backend = std::move(device.backend);
  // NCCL does not support these orders of additions.
  const bool messages = config.algorithm != Reduction::ring;
  rig.sums = messages ? make_message_communicator(ranks, rig.backend->device(), {config.algorithm, config.shards})
                      : std::move(device.sums);
  rig.reducer = std::make_unique<Reducer>(ranks, *rig.backend, *rig.sums, config);
  return rig;
}

}  // namespace ddp::testing
