#include "nccl/nccl_rig.h"

#include "comm/nccl/nccl_communicator.h"
#include "gradients/device_reducer.h"

namespace ddp::testing {

Device make_nccl_device(Communicator& ranks, NcclFaults faults) {
  Device device;
  device.backend = std::make_unique<StreamBackend>();
  std::unique_ptr<Communicator> messages = ranks.duplicate();
  // Who notices a silent rank is the code under test.
  messages->set_timeout(60);
  prepare_nccl(std::move(messages), faults);
  device.sums = make_nccl_communicator(ranks, *device.backend);
  return device;
}

ReducerRig make_nccl_reducer(Communicator& ranks, const ReducerConfig& config, NcclFaults faults) {
  Device device = make_nccl_device(ranks, faults);
  ReducerRig rig;
  rig.backend = std::move(device.backend);
  rig.sums = std::move(device.sums);
  rig.reducer = std::make_unique<DeviceReducer>(ranks, *rig.backend, rig.sums.get(), config);
  return rig;
}

}  // namespace ddp::testing
