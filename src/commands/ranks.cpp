#include "commands/ranks.h"

#include <algorithm>

#include "base/log.h"
#include "base/status/position.h"
#include "comm/gpu_module.h"
#include "job/exchange.h"
#include "job/report.h"
#include "machine/described_gpu.h"

namespace ddp {
Ranks open_ranks(const MpiSession& session, const Options& options) {
  note_phase(WorkPhase::set_up);
  const DistributedOptions& distributed = options.distributed;
  Ranks ranks;
  ranks.topology = discover_topology(session, distributed.timeout);
  ranks.binding = bind_ranks(session, ranks.topology, distributed, distributed.timeout);
  ranks.communicator = session.ranks().duplicate();
  ranks.communicator->set_timeout(distributed.timeout + kAfterWatchdog);
  if (options.device.gpu_description.empty()) {
    ranks.device = choose_device(*ranks.communicator, ranks.topology, options, open_gpu_module);
  } else {
    ranks.device = together(session, [&] { return describe_device(options, open_gpu_module_without_driver); });
  }
  return ranks;
}

Options at_full_size(const Options& options) {
  Options mine = options;
  const DataOptions standard;
  mine.data.progressive_size = standard.progressive_size;
  mine.data.eval_size = standard.eval_size;
  mine.data.progressive_begin = standard.progressive_begin;
  mine.data.progressive_end = standard.progressive_end;
  mine.data.progressive_stages = standard.progressive_stages;
  return mine;
}

Options with_one_batch(const Options& options, int ranks) {
  Options mine = options;
  const std::int64_t largest = std::max(options.batch.global_batch.value_or(kDefaultGlobalBatch),
                                        options.batch.batch_per_rank.value_or(0) * ranks);
  mine.data.train_limit = std::max(largest, options.batch.batch_size.value_or(0));
  mine.data.test_limit = 1;
  return mine;
}

void log_device(const Device& device) {
  if (!device.gpu_module && !device.note.empty()) log_info("on the CPU; {}", device.note);
}

}  // namespace ddp
