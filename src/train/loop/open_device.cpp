#include "train/loop/open_device.h"

namespace ddp {

std::unique_ptr<Backend> open_backend(const Device& device) {
  if (device.described) return device.gpu_module->make_described_backend(*device.described, device.config);
  return device.gpu_module ? device.gpu_module->make_backend(device.config) : make_cpu_backend(device.config.precision);
}

std::unique_ptr<DeviceCommunicator> open_sums(const Device& device, Communicator& ranks, const DeviceContext& on,
                                              const SumOrder& order, SingleRank single) {
  const bool supported = device.gpu_module && !device.through_host && order.algorithm == Reduction::ring;
  const bool nccl = supported && (ranks.size() > 1 || single == SingleRank::with_nccl);
  if (nccl) return device.gpu_module->make_nccl_communicator(ranks, on);
  SumOrder placed = order;
  const bool fills = placed.hosts.empty() && !device.views.empty();
  for (int rank = 0; rank < ranks.size() && fills; ++rank) {
    placed.hosts.push_back(device.views[static_cast<std::size_t>(rank)].host);
  }
  return make_message_communicator(ranks, on, placed);
}

}  // namespace ddp
