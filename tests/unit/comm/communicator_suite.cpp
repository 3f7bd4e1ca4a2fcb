#include "unit/comm/communicator_suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

#include "backend/arithmetic.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/random.h"
#include "comm/sums/reduce.h"
#include "comm/sums/shard_tree.h"

namespace ddp::testing {
namespace {

using ::testing::HasSubstr;

// Expects `work` to throw an Error with this code; returns its message.
template <class Work>
std::string expect_error(ExitCode code, Work work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "an Error was expected";
  return "";
}

void barrier_waits_for_all(Communicator& ranks) {
  for (int round = 0; round < 5; ++round) {
    if (round % ranks.size() == ranks.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    // All ranks run on one machine and share its monotonic clock.
    const double entered = now();
    ranks.barrier();
    std::vector<double> times = {entered, -now()};
    ranks.all_reduce(times, ReduceOp::max);
    EXPECT_LE(times[0], -times[1]) << "a rank left before another had entered";
  }
}

void send_and_receive_along_a_line(Communicator& ranks) {
  for (const std::size_t bytes : kSizes) {
    std::vector<std::byte> data = pattern(0, 3, bytes);
    if (ranks.rank() > 0) {
      data.assign(bytes, std::byte{0});
      ranks.receive(data, ranks.rank() - 1);
    }
    EXPECT_EQ(data, pattern(0, 3, bytes));
    if (ranks.rank() + 1 < ranks.size()) ranks.send(data, ranks.rank() + 1);
  }
}

void send_receive_round_the_ring(Communicator& ranks) {
  const int next = (ranks.rank() + 1) % ranks.size();
  const int previous = (ranks.rank() + ranks.size() - 1) % ranks.size();
  for (const std::size_t bytes : kSizes) {
    std::vector<std::byte> in(bytes);
    ranks.send_receive(pattern(ranks.rank(), 4, bytes), next, in, previous);
    EXPECT_EQ(in, pattern(previous, 4, bytes));
  }
}

void exchange_keeps_the_order_of_messages(Communicator& ranks) {
  // Sends a long message between two short ones to every other rank.
  const std::size_t bytes[] = {3, 2000000, 0, 3};
  std::vector<std::vector<std::byte>> sent;
  std::vector<std::vector<std::byte>> received;
  std::vector<Outgoing> out;
  std::vector<Incoming> in;
  for (int number = 0; number < 4; ++number) sent.push_back(pattern(ranks.rank(), number, bytes[number]));
  received.reserve(4 * static_cast<std::size_t>(ranks.size()));
  for (int peer = 0; peer < ranks.size(); ++peer) {
    if (peer == ranks.rank()) continue;
    for (std::size_t number = 0; number < 4; ++number) {
      out.push_back({sent[number], peer});
      received.emplace_back(bytes[number]);
      in.push_back({received.back(), peer});
    }
  }
  ranks.exchange(out, in, "test");
  for (std::size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(received[i], pattern(in[i].from, static_cast<int>(i % 4), bytes[i % 4]));
  }
}

void duplicates_do_not_mix(Communicator& ranks) {
  const std::unique_ptr<Communicator> first = ranks.duplicate();
  const std::unique_ptr<Communicator> second = first->duplicate();
  EXPECT_EQ(first->rank(), ranks.rank());
  EXPECT_EQ(second->size(), ranks.size());
  EXPECT_EQ(second->timeout(), ranks.timeout());
  // Each communicator on its own thread, all with the same sizes.
  const auto talk = [](Communicator& communicator, int offset) {
    for (int round = 0; round < 50; ++round) {
      double value = round + offset;
      communicator.all_reduce(std::span(&value, 1), ReduceOp::sum);
      EXPECT_EQ(value, communicator.size() * (round + offset));
    }
  };
  const std::jthread thread1([&] { talk(*first, 1000); });
  const std::jthread thread2([&] { talk(*second, 2000); });
  talk(ranks, 0);
}

void gradient_sums_are_exact(Communicator& ranks) {
  const int n = ranks.size();
  for (const std::size_t elements : {0U, 1U, 2U, 3U, 5U, 17U, 1000U, 400001U}) {
    for (const auto algorithm : {Reduction::ring, Reduction::root}) {
      std::vector<float> data(elements);
      std::vector<float> expected(elements);
      for (std::size_t i = 0; i < elements; ++i) {
        // Sums of small integers are exact in any order.
        const int base = static_cast<int>(i % 1000);
        data[i] = static_cast<float>(base + ranks.rank());
        expected[i] = static_cast<float>(n * base + n * (n - 1) / 2);
      }
      all_reduce_sum(ranks, data, algorithm);
      EXPECT_EQ(data, expected) << elements << " elements";
    }
  }
}

void gradient_sums_have_the_same_bits_on_all_ranks(Communicator& ranks) {
  for (const auto algorithm : {Reduction::ring, Reduction::root}) {
    std::vector<float> data = random_gradient(23, 0, ranks.rank(), 10007);
    all_reduce_sum(ranks, data, algorithm);
    std::vector<float> of_root = data;
    ranks.broadcast(std::as_writable_bytes(std::span(of_root)), 0);
    EXPECT_TRUE(same_bits(data, of_root));
    for (std::size_t i = 0; i < data.size(); ++i) {
      if (algorithm == Reduction::ring) break;
      float sum = random_gradient(23, 0, 0, i + 1)[i];
      for (int rank = 1; rank < ranks.size(); ++rank) sum += random_gradient(23, 0, rank, i + 1)[i];
      EXPECT_EQ(data[i], sum) << "the root adds in the order of the ranks";
      i += 1000;
    }
  }
}

// Ranks on hosts as launchers place them: in blocks, in turns, all apart, unevenly, all together.
std::vector<std::vector<int>> placements(int ranks) {
  std::vector<std::vector<int>> all(6);
  for (int rank = 0; rank < ranks; ++rank) {
    all[0].push_back(rank / 2);
    all[1].push_back(rank % 2);
    all[2].push_back(rank);
    all[3].push_back(rank == 0 ? 7 : 3);
    all[4].push_back(5);
    all[5].push_back(rank * rank % 3);
  }
  return all;
}

template <class T>
std::vector<T> summed(Communicator& ranks, const std::vector<int>& hosts, std::vector<T> data) {
  const Rings rings = plan_rings(ranks.rank(), hosts);
  std::vector<T> scratch(ring_scratch_elements(data.size(), rings));
  ring_sum(ranks, rings, std::span(data), std::span(scratch));
  return data;
}

void sums_within_and_across_hosts(Communicator& ranks) {
  const int n = ranks.size();
  for (const std::vector<int>& hosts : placements(n)) {
    // Hosts exchange slices of up to 32768 elements directly, and longer ones along a ring.
    const std::size_t long_slices = 33000U * static_cast<std::size_t>(n) + 1;
    for (const std::size_t elements : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{5}, std::size_t{17},
                                       std::size_t{1000}, long_slices}) {
      std::vector<float> data(elements);
      std::vector<float> expected(elements);
      std::vector<Bf16> rounded(elements);
      std::vector<Bf16> expected_rounded(elements);
      for (std::size_t i = 0; i < elements; ++i) {
        // Integers up to 256 are exact in bfloat16 too.
        const int base = static_cast<int>(i % 20);
        data[i] = static_cast<float>(base + ranks.rank());
        expected[i] = static_cast<float>(n * base + n * (n - 1) / 2);
        rounded[i].bits = bf16_bits(data[i]);
        expected_rounded[i].bits = bf16_bits(expected[i]);
      }
      EXPECT_EQ(summed(ranks, hosts, data), expected) << elements << " elements";
      const std::vector<Bf16> sums = summed(ranks, hosts, rounded);
      EXPECT_TRUE(std::equal(sums.begin(), sums.end(), expected_rounded.begin(),
                             [](Bf16 a, Bf16 b) { return a.bits == b.bits; }));
    }
  }
}

void sums_in_bf16_are_near_exact_ones(Communicator& ranks) {
  const int n = ranks.size();
  constexpr std::size_t kElements = 5003;
  std::vector<std::vector<float>> gradients;
  for (int rank = 0; rank < n; ++rank) gradients.push_back(random_gradient(29, 0, rank, kElements));
  for (const std::vector<int>& hosts : placements(n)) {
    std::vector<Bf16> mine(kElements);
    for (std::size_t i = 0; i < kElements; ++i) {
      mine[i].bits = bf16_bits(gradients[static_cast<std::size_t>(ranks.rank())][i]);
    }
    const std::vector<Bf16> sums = summed(ranks, hosts, mine);
    std::vector<Bf16> of_root = sums;
    ranks.broadcast(std::as_writable_bytes(std::span(of_root)), 0);
    EXPECT_EQ(std::memcmp(sums.data(), of_root.data(), kElements * sizeof(Bf16)), 0) << "the ranks have other bits";
    for (std::size_t i = 0; i < kElements; ++i) {
      double exact = 0;
      double magnitude = 0;
      for (const std::vector<float>& gradient : gradients) {
        exact += gradient[i];
        magnitude += std::abs(static_cast<double>(gradient[i]));
      }
      // Each addend is rounded once, and each of the n - 1 partial sums, which are at most the sum of magnitudes.
      ASSERT_LE(std::abs(float_of_bf16(sums[i].bits) - exact), n * magnitude * std::ldexp(1.01, -8)) << i;
    }
  }
}

void wrong_sizes_are_errors(Communicator& ranks) {
  if (ranks.size() == 1) return;
  for (const std::size_t sent : {4U, 16U}) {
    const std::unique_ptr<Communicator> copy = ranks.duplicate();
    if (ranks.rank() == 0) copy->set_timeout(1);
    std::vector<std::byte> data(ranks.rank() == 0 ? sent : 8);
    if (ranks.rank() == 1) expect_error(ExitCode::internal, [&] { copy->receive(data, 0); });
    if (ranks.rank() == 0) {
      try {
        copy->send(data, 1);  // returns if the transport buffers the message
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::rank_lost);
      }
    }
    ranks.barrier();
  }
}

void silent_rank_is_named(Communicator& ranks) {
  if (ranks.size() == 1) return;
  const std::unique_ptr<Communicator> copy = ranks.duplicate();
  const int silent = ranks.size() - 1;
  copy->set_timeout(0.2);
  if (ranks.rank() != silent) {
    const std::string message = expect_error(ExitCode::rank_lost, [&] { copy->barrier(); });
    EXPECT_THAT(message, ::testing::StartsWith("waited 0.2 s for rank"));
    EXPECT_THAT(message, HasSubstr(" in barrier"));
    // The other ranks may be waiting for a rank that waits for the silent one.
    if (ranks.rank() == 0) {
      EXPECT_THAT(message, HasSubstr(" " + std::to_string(silent) + " in barrier"));
    }
    const std::string again = expect_error(ExitCode::rank_lost, [&] { copy->barrier(); });
    EXPECT_THAT(again, HasSubstr("after an earlier error"));
    EXPECT_THAT(again, HasSubstr("waited 0.2 s"));
  }
  ranks.barrier();  // the communicator of the other ranks still works
}

void silent_rank_in_a_gradient_sum_is_an_error(Communicator& ranks) {
  if (ranks.size() == 1) return;
  for (const auto algorithm : {Reduction::ring, Reduction::root}) {
    const std::unique_ptr<Communicator> copy = ranks.duplicate();
    copy->set_timeout(0.2);
    if (ranks.rank() != 0) {
      std::vector<float> data(100);
      expect_error(ExitCode::rank_lost, [&] { all_reduce_sum(*copy, data, algorithm); });
    }
    ranks.barrier();
  }
}

void interrupt_frees_a_waiting_thread(Communicator& ranks) {
  if (ranks.size() == 1) return;
  const std::unique_ptr<Communicator> copy = ranks.duplicate();
  if (ranks.rank() == 0) {
    std::string message;
    {
      const std::jthread waiting([&] {
        message = expect_error(ExitCode::rank_lost, [&] {
          std::byte data{};
          copy->receive(std::span(&data, 1), 1);
        });
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      copy->interrupt();
    }
    EXPECT_THAT(message, HasSubstr("interrupted while it waited for rank 1"));
  }
  ranks.barrier();
}

void tree_sums_have_the_same_bits_for_any_number_of_ranks(Communicator& ranks) {
  for (int shards = ranks.size(); shards <= 9; ++shards) {
    for (const std::size_t elements : {0U, 1U, 2U, 3U, 17U, 1001U}) {
      check_tree_sum(ranks, shards, elements, static_cast<std::uint64_t>(shards) * 1000 + elements);
    }
  }
  check_tree_sum(ranks, ranks.size() + 1, 300001, 5);
}

}  // namespace

const std::vector<CommunicatorCase>& communicator_cases() {
  static const std::vector<CommunicatorCase> others = {
      {"BarrierWaitsForAll", barrier_waits_for_all},
      {"SendAndReceiveAlongALine", send_and_receive_along_a_line},
      {"SendReceiveRoundTheRing", send_receive_round_the_ring},
      {"ExchangeKeepsTheOrderOfMessages", exchange_keeps_the_order_of_messages},
      {"DuplicatesDoNotMix", duplicates_do_not_mix},
      {"GradientSumsAreExact", gradient_sums_are_exact},
      {"SumsWithinAndAcrossHosts", sums_within_and_across_hosts},
      {"SumsInBf16AreNearExactOnes", sums_in_bf16_are_near_exact_ones},
      {"GradientSumsHaveTheSameBitsOnAllRanks", gradient_sums_have_the_same_bits_on_all_ranks},
      {"WrongSizesAreErrors", wrong_sizes_are_errors},
      {"SilentRankIsNamed", silent_rank_is_named},
      {"SilentRankInAGradientSumIsAnError", silent_rank_in_a_gradient_sum_is_an_error},
      {"InterruptFreesAWaitingThread", interrupt_frees_a_waiting_thread},
      {"TreeSumsHaveTheSameBitsForAnyNumberOfRanks", tree_sums_have_the_same_bits_for_any_number_of_ranks},
  };
  static const std::vector<CommunicatorCase> cases = [] {
    std::vector<CommunicatorCase> all = collective_cases();
    all.insert(all.end(), others.begin(), others.end());
    return all;
  }();
  return cases;
}

std::vector<float> random_gradient(std::uint64_t seed, std::int64_t step, int shard, std::size_t elements) {
  Random random(seed, static_cast<std::uint64_t>(step), static_cast<std::uint32_t>(shard));
  std::vector<float> gradient(elements);
  // Very different magnitudes, so that another order of addition gives another result.
  for (float& value : gradient) value = random.uniform(-1, 1) * std::exp(random.uniform(-8, 8));
  return gradient;
}

std::vector<float> reference_tree_sum(std::uint64_t seed, std::int64_t step, std::int64_t begin, std::int64_t end,
                                      std::size_t elements) {
  if (end - begin == 1) return random_gradient(seed, step, static_cast<int>(begin), elements);
  std::int64_t left = 1;
  while (left * 2 < end - begin) left *= 2;
  std::vector<float> sum = reference_tree_sum(seed, step, begin, begin + left, elements);
  const std::vector<float> right = reference_tree_sum(seed, step, begin + left, end, elements);
  for (std::size_t i = 0; i < elements; ++i) sum[i] += right[i];
  return sum;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

void check_tree_sum(Communicator& ranks, int shards, std::size_t elements, std::uint64_t seed) {
  ShardTree tree(shards, ranks.size(), ranks.rank());
  const Accumulation& plan = tree.accumulation();
  std::vector<std::vector<float>> buffers(plan.buffers);
  std::size_t in_use = 0;
  for (std::int64_t shard = tree.run().begin; shard < tree.run().end; ++shard) {
    buffers[in_use++] = random_gradient(seed, 0, static_cast<int>(shard), elements);
    for (int merges = plan.merges[static_cast<std::size_t>(shard - tree.run().begin)]; merges > 0; --merges) {
      --in_use;
      add_to(buffers[in_use - 1].data(), buffers[in_use].data(), elements);
    }
  }
  std::vector<float*> partials;
  for (std::size_t k = 0; k < in_use; ++k) partials.push_back(buffers[k].data());
  std::vector<float> scratch(tree.scratch_elements(elements));
  tree.all_reduce_sum(ranks, partials, elements, scratch);
  EXPECT_TRUE(same_bits(buffers[0], reference_tree_sum(seed, 0, 0, shards, elements)))
      << shards << " shards, " << ranks.size() << " ranks, " << elements << " elements";
}

}  // namespace ddp::testing
