// The setup common to all commands: the ranks' hosts, cores, communicator and devices.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "job/mpi_session.h"
#include "machine/binding.h"
#include "machine/device.h"
#include "machine/topology.h"
#include "options/options.h"

namespace ddp {

struct Ranks {
  Topology topology;
  Binding binding;
  std::unique_ptr<Communicator> communicator;
  Device device;
};

Ranks open_ranks(const MpiSession& session, const Options& options);

// The same options without --progressive-size, for commands that measure steps.
Options at_full_size(const Options& options);
// The same options with the training images of one batch, for commands that need no more.
Options with_one_batch(const Options& options, int ranks);

// Logs why no GPU is used if one was looked for; for commands that print no header.
void log_device(const Device& device);

}  // namespace ddp
