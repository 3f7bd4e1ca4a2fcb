// Opens the backend and the device communicator of a run. The only place that selects devices and transports.
//
//   std::unique_ptr<Backend> backend = open_backend(device);
//   std::unique_ptr<DeviceCommunicator> sums = open_sums(device, ranks, *backend, {Reduction::ring});
#pragma once

#include <memory>

#include "backend/backend.h"
#include "comm/communicator.h"
#include "comm/device_communicator.h"
#include "machine/device.h"

namespace ddp {

std::unique_ptr<Backend> open_backend(const Device& device);

// Collective. NCCL where every rank has a GPU of its own; messages on the CPU, where ranks share a GPU, and for
// SumOrders that NCCL does not know.
std::unique_ptr<DeviceCommunicator> open_sums(const Device& device, Communicator& ranks, Backend& backend,
                                              const SumOrder& order);

}  // namespace ddp
