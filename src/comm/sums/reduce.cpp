#include "comm/sums/reduce.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>

#include "backend/arithmetic.h"
#include "base/error.h"

namespace ddp {
namespace {

int place_in(const Ring& ring, int place) {
  const int size = ring.size();
  return (place % size + size) % size;
}

// The slice of `data` that belongs to the place `index` of a ring, modulo its size.
template <class T>
std::span<T> slice(std::span<T> data, const Ring& ring, int index) {
  const int place = place_in(ring, index);
  if (place >= ring.parts) return {};
  const Range range = part(static_cast<std::int64_t>(data.size()), ring.parts, place);
  return data.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()));
}

int rank_at(const Ring& ring, int place) { return ring.ranks[static_cast<std::size_t>(place_in(ring, place))]; }

constexpr auto kBlock = static_cast<std::size_t>(kSumBlock);

// Adds arrays of the size of `sum`, one after the other: addend(0) to addend(count - 1).
template <class Addend>
void add_several(std::span<float> sum, int count, Addend addend) {
  for (std::size_t begin = 0; begin < sum.size(); begin += kBlock) {
    const std::size_t size = std::min(kBlock, sum.size() - begin);
    for (int i = 0; i < count; ++i) add_to(sum.data() + begin, addend(i) + begin, size);
  }
}

// The same, rounded once.
template <class Addend>
void add_several(std::span<Bf16> sum, int count, Addend addend) {
  std::array<float, kBlock> exact;
  for (std::size_t begin = 0; begin < sum.size(); begin += kBlock) {
    const std::size_t size = std::min(kBlock, sum.size() - begin);
    for (std::size_t k = 0; k < size; ++k) exact[k] = float_of_bf16(sum[begin + k].bits);
    for (int i = 0; i < count; ++i) {
      const Bf16* const from = addend(i) + begin;
      for (std::size_t k = 0; k < size; ++k) exact[k] += float_of_bf16(from[k].bits);
    }
    for (std::size_t k = 0; k < size; ++k) sum[begin + k].bits = bf16_bits(exact[k]);
  }
}

// With this many others a rank exchanges messages at the same time.
constexpr int kPeers = 16;
// Largest slice, in elements, that hosts exchange directly instead of along a ring.
constexpr std::size_t kShortSlice = std::size_t{32} << 10U;

// Every rank of `ring` sends to the one `distance` places after it and receives from the one as far before it, for all distances
// from `first` on at the same time. out(distance) and in(distance) are the memory of the messages; a message without a slice,
// because its place has none, is not sent.
template <class Out, class In>
void exchange_directly(Communicator& communicator, const Ring& ring, int first, Out out, In in) {
  std::array<Outgoing, kPeers> outgoing;
  std::array<Incoming, kPeers> incoming;
  std::size_t sent = 0;
  std::size_t received = 0;
  for (int distance = first; distance < std::min(first + kPeers, ring.size()); ++distance) {
    if (const auto slice = out(distance)) {
      outgoing[sent++] = {std::as_bytes(*slice), rank_at(ring, ring.place + distance)};
    }
    if (const auto slice = in(distance)) {
      incoming[received++] = {std::as_writable_bytes(*slice), rank_at(ring, ring.place - distance)};
    }
  }
  communicator.exchange(std::span(outgoing).first(sent), std::span(incoming).first(received), "a sum of gradients");
}

// The rank at place i adds what the others have of slice i.
template <class T>
void reduce_scatter_directly(Communicator& communicator, const Ring& ring, std::span<T> data, std::span<T> scratch) {
  using Slice = std::optional<std::span<T>>;
  const std::span<T> own = slice(data, ring, ring.place);
  for (int first = 1; first < ring.size(); first += kPeers) {
    const int count = std::min(kPeers, ring.size() - first);
    exchange_directly(
        communicator, ring, first,
        [&](int distance) {
          const int place = ring.place + distance;
          return place_in(ring, place) < ring.parts ? Slice(slice(data, ring, place)) : std::nullopt;
        },
        [&](int distance) {
          if (!ring.has_slice()) return Slice();
          return Slice(scratch.subspan(static_cast<std::size_t>(distance - first) * own.size(), own.size()));
        });
    if (!ring.has_slice()) continue;
    add_several(own, count, [&](int i) { return scratch.data() + static_cast<std::size_t>(i) * own.size(); });
  }
}

template <class T>
void all_gather_directly(Communicator& communicator, const Ring& ring, std::span<T> data) {
  using Slice = std::optional<std::span<T>>;
  for (int first = 1; first < ring.size(); first += kPeers) {
    exchange_directly(
        communicator, ring, first,
        [&](int) { return ring.has_slice() ? Slice(slice(data, ring, ring.place)) : std::nullopt; },
        [&](int distance) {
          const int place = ring.place - distance;
          return place_in(ring, place) < ring.parts ? Slice(slice(data, ring, place)) : std::nullopt;
        });
  }
}

// What the rank `distance` places before this one has of this array.
template <class T>
const T* read_from(const Ring& ring, const WithinHost& within, int distance) {
  const int size = ring.size();
  return static_cast<const T*>(
      static_cast<const void*>(within.at[static_cast<std::size_t>((ring.place - distance + size) % size)]));
}

// In the order of reduce_scatter_directly().
template <class T>
void reduce_scatter_in_memory(Communicator& communicator, const Rings& rings, std::span<T> data,
                              const WithinHost& within) {
  meet_on_host(communicator, rings);
  if (!rings.local.has_slice()) return;
  const std::span<T> own = slice(data, rings.local, rings.local.place);
  const std::ptrdiff_t begin = own.data() - data.data();
  add_several(own, rings.local.size() - 1, [&](int i) { return read_from<T>(rings.local, within, i + 1) + begin; });
}

template <class T>
void all_gather_in_memory(Communicator& communicator, const Rings& rings, std::span<T> data, const WithinHost& within) {
  meet_on_host(communicator, rings);
  for (int distance = 1; distance < rings.local.size(); ++distance) {
    const std::span<T> to = slice(data, rings.local, rings.local.place - distance);
    if (to.empty()) continue;
    std::copy_n(read_from<T>(rings.local, within, distance) + (to.data() - data.data()), to.size(), to.data());
  }
}

// Slice i starts at place i and adds one rank's contribution per step: afterwards the rank at place i - 1 holds its sum.
template <class T>
void reduce_scatter(Communicator& communicator, const Ring& ring, std::span<T> data, std::span<T> scratch) {
  for (int step = 0; step < ring.size() - 1; ++step) {
    const std::span<T> out = slice(data, ring, ring.place - step);
    const std::span<T> sum = slice(data, ring, ring.place - step - 1);
    const std::span<T> in = scratch.first(sum.size());
    communicator.send_receive(std::as_bytes(out), rank_at(ring, ring.place + 1), std::as_writable_bytes(in),
                              rank_at(ring, ring.place - 1));
    add_to(sum.data(), in.data(), in.size());
  }
}

template <class T>
void all_gather(Communicator& communicator, const Ring& ring, std::span<T> data) {
  for (int step = 0; step < ring.size() - 1; ++step) {
    communicator.send_receive(std::as_bytes(slice(data, ring, ring.place + 1 - step)), rank_at(ring, ring.place + 1),
                              std::as_writable_bytes(slice(data, ring, ring.place - step)),
                              rank_at(ring, ring.place - 1));
  }
}

// Whether hosts exchange the slices of this many elements directly; the same on all ranks.
bool hosts_exchange_directly(const Rings& rings, std::size_t elements) {
  const auto ranks = static_cast<std::size_t>(rings.local.parts) * rings.across.ranks.size();
  return rings.across.size() <= kPeers + 1 && elements <= kShortSlice * ranks;
}

template <class T>
void sum_over(Communicator& communicator, const Rings& rings, std::span<T> data, std::span<T> scratch,
              const WithinHost& within) {
  const bool reads = !within.at.empty();
  DDP_ASSERT(scratch.size() >= ring_scratch_elements(data.size(), rings, reads));
  if (data.empty()) return;
  if (reads) {
    reduce_scatter_in_memory(communicator, rings, data, within);
  } else {
    reduce_scatter_directly(communicator, rings.local, data, scratch);
  }
  const std::span<T> own = slice(data, rings.local, rings.local.place);
  if (!rings.local.has_slice()) {
    // The others sum between the hosts.
  } else if (hosts_exchange_directly(rings, data.size())) {
    reduce_scatter_directly(communicator, rings.across, own, scratch);
    all_gather_directly(communicator, rings.across, own);
  } else {
    reduce_scatter(communicator, rings.across, own, scratch);
    all_gather(communicator, rings.across, own);
  }
  if (within.scatter) return;
  if (reads) {
    all_gather_in_memory(communicator, rings, data, within);
  } else {
    all_gather_directly(communicator, rings.local, data);
  }
}

Ring ring_of(std::vector<int> ranks, int rank, int parts) {
  const auto place = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  return {std::move(ranks), place, parts};
}

}  // namespace

Rings plan_rings(int rank, std::span<const int> hosts, bool one_ring_if_uneven) {
  DDP_ASSERT(rank >= 0 && rank < static_cast<int>(hosts.size()));
  std::map<int, std::vector<int>> by_host;
  for (std::size_t other = 0; other < hosts.size(); ++other) by_host[hosts[other]].push_back(static_cast<int>(other));
  std::size_t least = hosts.size();
  std::size_t most = 1;
  for (const auto& [host, ranks] : by_host) {
    least = std::min(least, ranks.size());
    most = std::max(most, ranks.size());
  }
  if (one_ring_if_uneven && least != most) {
    std::vector<int> all(hosts.size());
    std::iota(all.begin(), all.end(), 0);
    const int size = static_cast<int>(all.size());
    return {ring_of({rank}, rank, 1), ring_of(std::move(all), rank, size), 1};
  }
  Rings rings;
  rings.most_local = static_cast<int>(most);
  rings.local = ring_of(by_host[hosts[static_cast<std::size_t>(rank)]], rank, static_cast<int>(least));
  if (!rings.local.has_slice()) {
    rings.across = ring_of({rank}, rank, 1);
    return rings;
  }
  // In the order of the hosts' first ranks.
  std::vector<std::vector<int>> in_order;
  for (auto& [host, ranks] : by_host) in_order.push_back(std::move(ranks));
  std::sort(in_order.begin(), in_order.end());
  std::vector<int> across;
  for (const std::vector<int>& ranks : in_order) across.push_back(ranks[static_cast<std::size_t>(rings.local.place)]);
  rings.across = ring_of(std::move(across), rank, static_cast<int>(in_order.size()));
  return rings;
}

std::size_t ring_scratch_elements(std::size_t elements, const Rings& rings, bool in_memory) {
  const auto largest = [](std::size_t count, const Ring& ring) {
    return static_cast<std::size_t>(part(static_cast<std::int64_t>(count), ring.parts, 0).size());
  };
  const auto at_once = [&](std::size_t count, const Ring& ring) {
    return static_cast<std::size_t>(std::min(kPeers, ring.size() - 1)) * largest(count, ring);
  };
  const std::size_t of_host = largest(elements, rings.local);
  const std::size_t across =
      hosts_exchange_directly(rings, elements) ? at_once(of_host, rings.across) : largest(of_host, rings.across);
  return std::max(in_memory ? 0 : at_once(elements, rings.local), rings.across.size() > 1 ? across : 0);
}

Range part_of_host(const Rings& rings, std::int64_t elements) {
  if (!rings.local.has_slice()) return {elements, elements};
  return part(elements, rings.local.parts, rings.local.place);
}

void ring_sum(Communicator& communicator, const Rings& rings, std::span<float> data, std::span<float> scratch,
              const WithinHost& within) {
  sum_over(communicator, rings, data, scratch, within);
}

void ring_sum(Communicator& communicator, const Rings& rings, std::span<Bf16> data, std::span<Bf16> scratch,
              const WithinHost& within) {
  sum_over(communicator, rings, data, scratch, within);
}

// As Communicator::barrier().
void meet_on_host(Communicator& communicator, const Rings& rings) {
  const Ring& ring = rings.local;
  for (int distance = 1; distance < ring.size(); distance *= 2) {
    const Outgoing outgoing{{}, rank_at(ring, ring.place + distance)};
    const Incoming incoming{{}, rank_at(ring, ring.place - distance)};
    communicator.exchange(std::span(&outgoing, 1), std::span(&incoming, 1), "a sum of gradients");
  }
}

void root_sum(Communicator& communicator, std::span<float> data, std::span<float> scratch) {
  if (communicator.size() == 1 || data.empty()) return;
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

void all_reduce_sum(Communicator& communicator, std::span<float> data, Reduction algorithm) {
  DDP_ASSERT(algorithm != Reduction::tree);
  const Rings rings = plan_rings(communicator.rank(), std::vector<int>(static_cast<std::size_t>(communicator.size())));
  const bool root = algorithm == Reduction::root;
  std::vector<float> scratch(root ? data.size() : ring_scratch_elements(data.size(), rings));
  if (root) {
    root_sum(communicator, data, scratch);
  } else {
    ring_sum(communicator, rings, data, scratch);
  }
}

void add_to(float* __restrict sum, const float* __restrict addend, std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i) sum[i] += addend[i];
}

void add_to(Bf16* __restrict sum, const Bf16* __restrict addend, std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i) {
    sum[i].bits = bf16_bits(float_of_bf16(sum[i].bits) + float_of_bf16(addend[i].bits));
  }
}

}  // namespace ddp
