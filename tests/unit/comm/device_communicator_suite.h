// Requirements for sums in device memory, as functions that all ranks call with one device each: run on CPU memory, on
// stand-ins for a GPU, and on GPUs.
//
//   run_as_threads(4, [&](Communicator& ranks) { c.body(ranks, make_device); });
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "comm/sums/device_communicator.h"

namespace ddp::testing {

struct Device {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<DeviceCommunicator> sums;
};
// Called by all ranks.
using MakeDevice = std::function<Device(Communicator&)>;

struct DeviceCommunicatorCase {
  std::string name;
  void (*body)(Communicator&, const MakeDevice&);
};

const std::vector<DeviceCommunicatorCase>& device_communicator_cases();

inline std::ostream& operator<<(std::ostream& out, const DeviceCommunicatorCase& c) { return out << c.name; }

// On the CPU, with sums by messages: staged as for a device, or directly from host memory.
Device make_staged_cpu(Communicator& ranks);
Device make_host_cpu(Communicator& ranks);

}  // namespace ddp::testing
