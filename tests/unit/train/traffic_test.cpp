// How many messages and bytes a rank sends, by the number of ranks: the table of docs/communication.md, measured with ranks as
// threads, and counted on single ranks of more.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "comm/sums/reduce.h"
#include "comm/transport/threads.h"
#include "job/hangs/pulse_spread.h"
#include "metrics/recorder.h"
#include "model/zoo.h"
#include "support/counting_communicator.h"
#include "train/step/shard_statistics.h"

namespace ddp {
namespace {

constexpr int kMeasured[] = {4, 16, 64};
constexpr int kSimulated[] = {1024, 4096};
constexpr int kRanksOfHost = 8;

std::uint64_t bits(int ranks) { return std::bit_width(static_cast<unsigned>(ranks - 1)); }

MessageCount most(const MessageCount& a, const MessageCount& b) {
  return {std::max(a.messages, b.messages), std::max(a.bytes, b.bytes)};
}

MessageCount sent_by(Communicator& ranks, const std::function<void(Communicator&)>& work) {
  const MessageCount before = ranks.sent();
  work(ranks);
  return {ranks.sent().messages - before.messages, ranks.sent().bytes - before.bytes};
}

// The most that any rank sends.
MessageCount measured(int size, const std::function<void(Communicator&)>& work) {
  std::mutex mutex;
  MessageCount all;
  run_as_threads(size, [&](Communicator& ranks) {
    const MessageCount mine = sent_by(ranks, work);
    const std::lock_guard lock(mutex);
    all = most(all, mine);
  });
  return all;
}

MessageCount simulated(int size, const std::function<void(Communicator&)>& work) {
  MessageCount all;
  for (int rank = 0; rank < size; ++rank) {
    // With many ranks, some with each number of neighbours.
    const bool shown = size <= 64 || rank < 3 || rank == size / 3 || rank == size / 2 || rank + 2 >= size;
    if (!shown) continue;
    CountingCommunicator counting(rank, size);
    all = most(all, sent_by(counting, work));
  }
  return all;
}

// With up to 16 ranks, six numbers and the loss of each shard, here one per rank; with more, three of them, and the others on rank 0
// later. The sums of squares are those of ranks that count parts of the gradient's norm.
constexpr int kFewRanks = 16;
void step_message(Communicator& ranks) {
  const std::size_t own = ranks.size() <= kFewRanks ? 6 + static_cast<std::size_t>(ranks.size()) : 3;
  std::vector<double> values(own + kSquareSums);
  ranks.tree_sum(values);
}

void results_of_steps(Communicator& ranks) {
  if (ranks.size() <= kFewRanks) return;
  constexpr std::size_t kStepsTogether = 8;
  const std::vector<double> mine(kStepsTogether * (3 + 1));
  std::vector<double> all(ranks.rank() == 0 ? mine.size() * static_cast<std::size_t>(ranks.size()) : 0);
  ranks.gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
}

// The first of the two sums of a layer: of 512 channels, with their squares.
void synchronized_normalisation(Communicator& ranks) {
  std::vector<double> values(std::size_t{2} * 512 + 1);
  ranks.all_reduce(values, ReduceOp::sum);
}

void log_record(Communicator& ranks) {
  const RankTiming mine;
  std::vector<RankTiming> all(ranks.rank() == 0 ? static_cast<std::size_t>(ranks.size()) : 0);
  ranks.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
}

void agreement(Communicator& ranks) { (void)ranks.all_gather_text("", "an agreement"); }

void same_options(Communicator& ranks) {
  (void)ranks.broadcast_text(std::string(2000, 'x'), 0);
  std::int64_t lowest = ranks.size();
  ranks.all_reduce(std::span(&lowest, 1), ReduceOp::min);
}

void running_statistics(Communicator& ranks) {
  const Graph graph = make_model("resnet18", {3, 32, 32}, 10);
  const auto backend = make_cpu_backend();
  BatchOptions options;
  options.global_batch = 8192;
  const BatchPlan plan = resolve_batch(options, ranks.size(), 100000);
  ShardStatistics statistics(*backend, graph, plan, ranks.rank());
  statistics.gather(ranks);
}

Rings rings_of(const Communicator& ranks, int on_a_host, int on_the_last) {
  std::vector<int> hosts;
  for (int rank = 0; rank < ranks.size(); ++rank) hosts.push_back(rank / on_a_host);
  const int last = hosts.back();
  // The ranks that are too many for the last host are on the first.
  for (int rank = ranks.size() - on_a_host + on_the_last; rank < ranks.size(); ++rank) {
    if (last > 0) hosts[static_cast<std::size_t>(rank)] = 0;
  }
  return plan_rings(ranks.rank(), hosts);
}

void meeting(Communicator& ranks) { meet_on_host(ranks, rings_of(ranks, ranks.size(), ranks.size())); }

void bucket(Communicator& ranks, const Rings& rings) {
  std::vector<float> data(std::size_t{1} << 18U);
  std::vector<float> scratch(ring_scratch_elements(data.size(), rings));
  ring_sum(ranks, rings, std::span(data), std::span(scratch));
}
void even_bucket(Communicator& ranks) { bucket(ranks, rings_of(ranks, kRanksOfHost, kRanksOfHost)); }
void uneven_bucket(Communicator& ranks) { bucket(ranks, rings_of(ranks, kRanksOfHost, kRanksOfHost - 1)); }

// Within one second, while all is well.
MessageCount pulses(int ranks) {
  constexpr std::uint64_t kPerSecond = 4;
  PulseBoard board(0, ranks);
  PulseSpread spread(board, 0, ranks);
  Pulse own;
  MessageCount count;
  for (double clock = 1; clock < 10; clock += 1.0 / kPerSecond) {
    own.beats = ++own.ticks;
    board.note_own(own, clock);
    spread.note_own(board, false, clock);
    for (const int source : spread.sources()) board.merge(source, own, 0, 0, clock);
    count = {};
    for (std::size_t target = 0; target < spread.targets().size(); ++target) {
      count.bytes += kPerSecond * spread.message(board, target, clock).size();
      count.messages += kPerSecond;
    }
  }
  return count;
}

// What every rank says of its host, when eight say the same.
MessageCount host_names(int ranks) {
  return measured(ranks, [](Communicator& all) {
    (void)all.all_gather_text(
        fmt::format("{} node{:05}.cluster", all.rank() / kRanksOfHost * kRanksOfHost, all.rank() / kRanksOfHost),
        "the names of hosts");
  });
}

struct Row {
  std::string name;
  std::function<void(Communicator&)> work;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"each step: what all ranks must know", step_message},
      {"each eighth step: what only rank 0 writes down", results_of_steps},
      {"each synchronized batch normalisation of 512 channels", synchronized_normalisation},
      {"each bucket of 1 MiB: 8 ranks a host", even_bucket},
      {"each bucket of 1 MiB: 7 on the last host, 9 on the first", uneven_bucket},
      {"each bucket: the meeting of all ranks, if on one host", meeting},
      {"a log record", log_record},
      {"a checkpoint: the running statistics of ResNet-18", running_statistics},
      {"at the start: an agreement", agreement},
      {"at the start: whether 2,000 bytes of options are the same", same_options},
  };
  return all;
}

std::string cell(const MessageCount& count) {
  const auto number = [](std::uint64_t value) {
    std::string text = std::to_string(value);
    for (int at = static_cast<int>(text.size()) - 3; at > 0; at -= 3) text.insert(static_cast<std::size_t>(at), ",");
    return text;
  };
  return fmt::format(" {} / {} |", number(count.messages), number(count.bytes));
}

std::string table() {
  std::string text = "| messages / bytes that a rank sends |";
  std::string rule = "\n| --- |";
  const auto head = [&](int ranks) {
    text += fmt::format(" {} ranks |",
                        ranks < 1000 ? std::to_string(ranks) : fmt::format("{},{:03}", ranks / 1000, ranks % 1000));
    rule += " ---: |";
  };
  for (const int ranks : kMeasured) head(ranks);
  for (const int ranks : kSimulated) head(ranks);
  text += rule + "\n";
  for (const Row& row : rows()) {
    text += "| " + row.name + " |";
    for (const int ranks : kMeasured) text += cell(measured(ranks, row.work));
    for (const int ranks : kSimulated) text += cell(simulated(ranks, row.work));
    text += "\n";
  }
  text += "| each second: pulses |";
  for (const int ranks : kMeasured) text += cell(pulses(ranks));
  for (const int ranks : kSimulated) text += cell(pulses(ranks));
  return text + "\n";
}

TEST(Traffic, OfASingleRankIsCountedAsItIsMeasured) {
  for (const Row& row : rows()) {
    for (const int ranks : kMeasured) {
      const MessageCount counted = simulated(ranks, row.work);
      const MessageCount sent = measured(ranks, row.work);
      EXPECT_EQ(counted.messages, sent.messages) << row.name << " on " << ranks;
      EXPECT_EQ(counted.bytes, sent.bytes) << row.name << " on " << ranks;
    }
  }
}

// All but the sums of gradients, whose messages between hosts and within them are of a number that hosts and their ranks have.
TEST(Traffic, GrowsWithTheLogarithm) {
  const std::map<std::string,
                 std::pair<std::function<void(Communicator&)>, std::function<std::uint64_t(std::uint64_t)>>>
      bounds = {
          {"message", {step_message, [](std::uint64_t) { return 8 * (22 + kSquareSums); }}},
          {"normalisation",
           {synchronized_normalisation, [](std::uint64_t n) { return 8 * std::max<std::uint64_t>(1025, n); }}},
          {"meeting", {meeting, [](std::uint64_t) { return 0; }}},
          {"agreement", {agreement, [](std::uint64_t) { return 64; }}},
          {"options", {same_options, [](std::uint64_t) { return 64 + 2000; }}},
      };
  for (const auto& [name, each] : bounds) {
    for (const int ranks : {16, 64, 1024, 4096}) {
      const MessageCount sent = simulated(ranks, each.first);
      EXPECT_LE(sent.messages, 3 * bits(ranks) + 2) << name << " on " << ranks;
      EXPECT_LE(sent.bytes, each.second(static_cast<std::uint64_t>(ranks)) * bits(ranks)) << name << " on " << ranks;
    }
  }
  for (const int ranks : {17, 64, 1024, 4096}) EXPECT_LE(pulses(ranks).bytes, 4 * 128 * bits(ranks)) << ranks;
}

// Half of the ranks' blocks at most, and the row of a rank once; the mean goes along a tree.
TEST(Traffic, OfWhatRankZeroGathersIsSentOnce) {
  for (const int ranks : {16, 64, 1024}) {
    const auto n = static_cast<std::uint64_t>(ranks);
    const MessageCount record = simulated(ranks, log_record);
    EXPECT_EQ(record.messages, 1U);
    EXPECT_EQ(record.bytes, n / 2 * sizeof(RankTiming));
    const std::uint64_t row = 9600 * sizeof(float);
    EXPECT_LE(simulated(ranks, running_statistics).bytes, row * (bits(ranks) + 1) + n / 2 * 32) << ranks;
  }
}

// A host's ranks say the same, which is sent once.
TEST(Traffic, OfHostsIsThatOfTheirNumber) {
  for (const int ranks : {16, 64}) {
    const std::uint64_t hosts = static_cast<std::uint64_t>(ranks) / kRanksOfHost;
    EXPECT_LE(host_names(ranks).bytes, bits(ranks) * (64 + hosts * 32)) << ranks;
  }
}

TEST(Traffic, IsAsDocumented) {
  std::ifstream file(DDP_COMMUNICATION_PAGE);
  std::stringstream page;
  page << file.rdbuf();
  const std::string expected = table();
  EXPECT_NE(page.str().find(expected), std::string::npos) << "docs/communication.md lacks this table:\n" << expected;
}

}  // namespace
}  // namespace ddp
