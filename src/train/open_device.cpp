#include "train/open_device.h"

namespace ddp {

std::unique_ptr<Backend> open_backend(const Device& device) {
  if (device.described) return device.gpus->make_described_backend(*device.described, device.config);
  return device.gpus ? device.gpus->make_backend(device.config) : make_cpu_backend();
}

std::unique_ptr<DeviceCommunicator> open_sums(const Device& device, Communicator& ranks, Backend& backend,
                                              const SumOrder& order) {
  const bool nccl = device.gpus && !device.through_host && order.algorithm == Reduction::ring;
  return nccl ? device.gpus->make_nccl_communicator(ranks, backend) : make_message_communicator(ranks, backend, order);
}

}  // namespace ddp
