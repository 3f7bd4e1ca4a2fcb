// Opens the backend and the device communicator of a run. The only place that selects devices and transports.
//
//   std::unique_ptr<Backend> backend = open_backend(device);
//   std::unique_ptr<DeviceCommunicator> sums = open_sums(device, ranks, backend->device(), {Reduction::ring});
#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "comm/sums/device_communicator.h"
#include "machine/device.h"

namespace ddp {

std::unique_ptr<Backend> open_backend(const Device& device);

// How a single rank, which has nothing to sum, opens the sums.
enum class SingleRank : std::uint8_t {
  without_nccl,  // for speed: starting NCCL takes seconds
  with_nccl,     // like several ranks, to test NCCL
};

// Collective. NCCL if every rank has its own GPU; messages on the CPU, if ranks share a GPU, and for SumOrders that NCCL
// does not support. `order.hosts` is filled in if it is empty and `ranks` are those of the device.
std::unique_ptr<DeviceCommunicator> open_sums(const Device& device, Communicator& ranks, const DeviceContext& on,
                                              const SumOrder& order, SingleRank single = SingleRank::without_nccl);

}  // namespace ddp
