#include "comm/reduce.h"

#include <vector>

#include "base/error.h"
#include "base/partition.h"

namespace ddp {
namespace {

// The slice of `data` that belongs to rank `index`, modulo the number of ranks.
std::span<float> slice(std::span<float> data, int ranks, int index) {
  const Range range = part(static_cast<std::int64_t>(data.size()), ranks, (index % ranks + ranks) % ranks);
  return data.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()));
}

void ring_sum(Communicator& communicator, std::span<float> data, std::span<float> scratch) {
  const int ranks = communicator.size();
  const int rank = communicator.rank();
  const int next = (rank + 1) % ranks;
  const int previous = (rank + ranks - 1) % ranks;
  // Slice i starts at rank i and adds one rank's contribution per step: after N-1 steps rank i-1 holds its sum.
  for (int step = 0; step < ranks - 1; ++step) {
    const std::span<float> out = slice(data, ranks, rank - step);
    const std::span<float> sum = slice(data, ranks, rank - step - 1);
    const std::span<float> in = scratch.first(sum.size());
    communicator.send_receive(std::as_bytes(out), next, std::as_writable_bytes(in), previous);
    add_to(sum.data(), in.data(), in.size());
  }
  for (int step = 0; step < ranks - 1; ++step) {
    communicator.send_receive(std::as_bytes(slice(data, ranks, rank + 1 - step)), next,
                              std::as_writable_bytes(slice(data, ranks, rank - step)), previous);
  }
}

void root_sum(Communicator& communicator, std::span<float> data, std::span<float> scratch) {
  if (communicator.rank() == 0) {
    const std::span<float> in = scratch.first(data.size());
    for (int from = 1; from < communicator.size(); ++from) {
      communicator.receive(std::as_writable_bytes(in), from);
      add_to(data.data(), in.data(), in.size());
    }
  } else {
    communicator.send(std::as_bytes(data), 0);
  }
  communicator.broadcast(std::as_writable_bytes(data), 0);
}

}  // namespace

void add_to(float* __restrict sum, const float* __restrict addend, std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i) sum[i] += addend[i];
}

std::size_t reduce_scratch_elements(Reduction algorithm, std::size_t elements, int ranks) {
  DDP_ASSERT(algorithm != Reduction::tree);
  if (ranks == 1) return 0;
  if (algorithm == Reduction::root) return elements;
  return static_cast<std::size_t>(part(static_cast<std::int64_t>(elements), ranks, 0).size());
}

void all_reduce_sum(Communicator& communicator, std::span<float> data, Reduction algorithm, std::span<float> scratch) {
  DDP_ASSERT(scratch.size() >= reduce_scratch_elements(algorithm, data.size(), communicator.size()));
  if (communicator.size() == 1 || data.empty()) return;
  if (algorithm == Reduction::ring) {
    ring_sum(communicator, data, scratch);
  } else {
    root_sum(communicator, data, scratch);
  }
}

void all_reduce_sum(Communicator& communicator, std::span<float> data, Reduction algorithm) {
  std::vector<float> scratch(reduce_scratch_elements(algorithm, data.size(), communicator.size()));
  all_reduce_sum(communicator, data, algorithm, scratch);
}

}  // namespace ddp
