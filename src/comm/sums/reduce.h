// Sums of gradients over all ranks, in place.
//
//   const Rings rings = plan_rings(ranks.rank(), std::vector{0, 0, 1, 1});   // four ranks on two hosts
//   std::vector<float> scratch(ring_scratch_elements(gradient.size(), rings));
//   ring_sum(ranks, rings, std::span(gradient), std::span(scratch));   // bit-identical on every rank
//
// ring: reduce-scatter and all-gather along a ring (Patarasuk and Yuan: "Bandwidth optimal all-reduce algorithms for
//   clusters of workstations", J. Parallel Distrib. Comput. 69, 2009). Each rank sends and receives 2 (N-1)/N of the
//   data, where N is the number of ranks. The ranks of a host instead exchange all slices directly, in two rounds with as
//   much data: in a ring a rank that has all its slices would compute, while another one on the same core still has to
//   pass some on. On H hosts with several ranks each, the ranks of a host first reduce-scatter among themselves, each
//   then sums its slice along a ring of one rank per host, and the host gathers the slices: its link carries 2 (H-1)/H of
//   the data (as "2D" reductions do; Mikami et al., arXiv:1811.05233). If hosts have different numbers of ranks, only as many
//   ranks of each have slices as the smallest host has. Up to 17 hosts exchange short slices directly as well.
//   Ranks of a host that can read each other's memory send no data: each adds its slice from where the others have it.
// root: rank 0 receives all the data, adds them in rank order and broadcasts the sum, as in textbook
//   examples. Rank 0's link carries N times the data, so it is slow; it serves as a baseline.
// tree: the sum over logical shards in one fixed order, independent of the number of ranks: shard_tree.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/tensor.h"
#include "base/partition.h"
#include "base/types/reduction.h"
#include "comm/communicator.h"

namespace ddp {

// Ranks in the order in which they pass data on.
struct Ring {
  std::vector<int> ranks;
  int place = 0;  // of this rank
  int parts = 1;  // into which data are divided: the slices of the ranks at the first places

  bool has_slice() const { return place < parts; }
  int size() const { return static_cast<int>(ranks.size()); }
};

struct Rings {
  Ring local;  // the ranks of this rank's host, which exchange directly, or this rank alone
  // The ranks with the same place on their hosts, or all ranks. If their slices are short, they exchange directly.
  Ring across;
  int most_local = 1;  // ranks of the host that has most; 1 if they are all in one ring
};

// `hosts`: a number for each rank, equal on the same host. Two levels; or with `one_ring_if_uneven` one ring of all ranks if
// hosts have different numbers of them, in whose order runs add that began before there were two levels for these as well.
Rings plan_rings(int rank, std::span<const int> hosts, bool one_ring_if_uneven = false);

// The number of scratch elements that ring_sum() needs for `elements` of data; `in_memory`: with WithinHost::at.
std::size_t ring_scratch_elements(std::size_t elements, const Rings& rings, bool in_memory = false);

// How the ranks of a host sum.
struct WithinHost {
  // Where each rank of Rings::local has its data, in memory that this rank reads too; empty: they send messages.
  std::span<std::byte* const> at = {};
  // Only part_of_host() of the sum is wanted; the rest of the data is undefined afterwards.
  bool scatter = false;
};

// The elements that this rank sums within its host, of `elements` of data.
Range part_of_host(const Rings& rings, std::int64_t elements);

// Replaces `data` by its sum over all ranks. Both have the same size on all ranks. Where ranks read each other's memory, they
// may still do so when this returns, until meet_on_host().
void ring_sum(Communicator& communicator, const Rings& rings, std::span<float> data, std::span<float> scratch,
              const WithinHost& within = {});
// Sends in bfloat16: half the traffic. Rounds direct sums once, and each addition along a ring, by at most 2^-8.
void ring_sum(Communicator& communicator, const Rings& rings, std::span<Bf16> data, std::span<Bf16> scratch,
              const WithinHost& within = {});

// Returns once all ranks of this rank's host have called it.
void meet_on_host(Communicator& communicator, const Rings& rings);

// `scratch` has the size of `data` on rank 0; the others need none.
void root_sum(Communicator& communicator, std::span<float> data, std::span<float> scratch);

// Ring or root, with internally allocated scratch memory, and all ranks in one ring.
void all_reduce_sum(Communicator& communicator, std::span<float> data, Reduction algorithm);

// Elements that stay in the first-level cache while those of several ranks are added to them.
inline constexpr std::int64_t kSumBlock = 1024;

// sum[i] += addend[i]; the arrays do not overlap.
void add_to(float* __restrict sum, const float* __restrict addend, std::size_t elements);
void add_to(Bf16* __restrict sum, const Bf16* __restrict addend, std::size_t elements);

}  // namespace ddp
