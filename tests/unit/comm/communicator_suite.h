// Requirements for every communicator, as functions that all ranks call: run on threads and under mpirun.
//
//   for (const CommunicatorCase& c : communicator_cases()) c.body(ranks);
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace ddp::testing {

struct CommunicatorCase {
  std::string name;
  void (*body)(Communicator&);
};

const std::vector<CommunicatorCase>& communicator_cases();

inline std::ostream& operator<<(std::ostream& out, const CommunicatorCase& c) { return out << c.name; }

// Checks that the sum of random gradients over `shards` shards is bit-identical to a plain recursion over the tree.
void check_tree_sum(Communicator& ranks, int shards, std::size_t elements, std::uint64_t seed);

// The random gradient of one shard.
std::vector<float> random_gradient(std::uint64_t seed, std::int64_t step, int shard, std::size_t elements);

// The sum over shards [begin, end), by recursion.
std::vector<float> reference_tree_sum(std::uint64_t seed, std::int64_t step, std::int64_t begin, std::int64_t end,
                                      std::size_t elements);

// Returns true if the arrays are bit-identical (0 and -0 differ, NaNs may be equal).
bool same_bits(std::span<const float> a, std::span<const float> b);

// Those of collectives among these.
std::vector<CommunicatorCase> collective_cases();

// Bytes that depend on sender, message number and position.
inline std::vector<std::byte> pattern(int sender, int number, std::size_t bytes) {
  std::vector<std::byte> result(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    const std::size_t value = i * 7 + static_cast<std::size_t>(sender) * 31 + static_cast<std::size_t>(number) * 101;
    result[i] = static_cast<std::byte>(value % 251);
  }
  return result;
}

// The last size spans several pieces of an MPI message and a remainder.
inline constexpr std::size_t kSizes[] = {0, 1, 7, 1000, 70000, (3U << 20U) + 5};

}  // namespace ddp::testing
