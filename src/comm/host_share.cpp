#include "comm/host_share.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "comm/transport/group.h"

namespace ddp {

std::unique_ptr<HostShare> HostShare::open(Communicator& ranks, std::span<const int> hosts, std::size_t bytes) {
  Rings rings = plan_rings(ranks.rank(), hosts, /*one_ring_if_uneven=*/true);
  if (rings.local.size() == 1) return nullptr;
  // All of it is the block of the first rank.
  auto memory = std::make_shared<const SharedMemory>(ranks, rings.local.place == 0 ? bytes : 0);
  std::int64_t shared = memory->of(rings.local.ranks[0]).size() == bytes ? 1 : 0;
  ranks.all_reduce(std::span(&shared, 1), ReduceOp::min);
  if (shared == 0) return nullptr;
  return std::unique_ptr<HostShare>(new HostShare(ranks, std::move(rings), std::move(memory)));
}

HostShare::HostShare(Communicator& ranks, Rings rings, std::shared_ptr<const SharedMemory> memory)
    : rings_(std::move(rings)),
      memory_(std::move(memory)),
      local_(make_group(ranks, rings_.local.ranks)),
      first_host_(rings_.local.ranks[0] == 0) {}

Memory HostShare::take(std::size_t bytes) {
  const std::span<std::byte> all = memory_->of(rings_.local.ranks[0]);
  DDP_ASSERT(taken_ + bytes <= all.size());
  std::byte* const data = all.data() + std::exchange(taken_, taken_ + aligned_bytes(bytes));
  return {data, bytes, [memory = memory_](std::byte*) mutable { memory.reset(); }};
}

void HostShare::meet() { local_->barrier(); }

double HostShare::sum(double value) {
  local_->all_reduce(std::span(&value, 1), ReduceOp::sum);
  return value;
}

}  // namespace ddp
