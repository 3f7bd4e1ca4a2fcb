#include "comm/transport/shared_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "comm/host_share.h"
#include "comm/transport/threads.h"

namespace ddp {
namespace {

// Sizes of whole pages and of parts of them, and none.
TEST(SharedMemory, EachRankReadsWhatTheOthersWrite) {
  run_as_threads(4, [](Communicator& ranks) {
    const std::vector<std::size_t> sizes = {4096, 0, 10001, 1};
    const auto rank = static_cast<std::size_t>(ranks.rank());
    const SharedMemory shared(ranks, sizes[rank]);
    const std::span<std::byte> own = shared.of(ranks.rank());
    ASSERT_EQ(own.size(), sizes[rank]);
    EXPECT_EQ(std::count(own.begin(), own.end(), std::byte{0}), std::ssize(own));
    std::fill(own.begin(), own.end(), std::byte(rank + 1));
    ranks.barrier();
    for (int other = 0; other < ranks.size(); ++other) {
      const std::span<std::byte> block = shared.of(other);
      ASSERT_EQ(block.size(), sizes[static_cast<std::size_t>(other)]);
      EXPECT_EQ(std::count(block.begin(), block.end(), std::byte(other + 1)), std::ssize(block)) << other;
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % 4096, 0U);
    }
    ranks.barrier();
  });
}

// Rank 1 is the first to go.
TEST(SharedMemory, LastsAsLongAsAnyRankUsesIt) {
  run_as_threads(2, [](Communicator& ranks) {
    auto shared = std::make_unique<SharedMemory>(ranks, 100);
    shared->of(ranks.rank())[99] = std::byte{7};
    ranks.barrier();
    if (ranks.rank() == 1) shared.reset();
    ranks.barrier();
    if (shared) {
      EXPECT_EQ(shared->of(1)[99], std::byte{7});
    }
  });
}

TEST(HostShare, IsOneMemoryOfEachHost) {
  run_as_threads(4, [](Communicator& ranks) {
    const std::vector<int> hosts = {0, 1, 0, 1};
    const auto share = HostShare::open(ranks, hosts, 2 * aligned_bytes(300));
    ASSERT_NE(share, nullptr);
    const int place = ranks.rank() / 2;
    EXPECT_EQ(share->part(101), place == 0 ? (Range{0, 51}) : (Range{51, 101}));
    EXPECT_EQ(share->first(), place == 0);
    EXPECT_EQ(share->first_host(), ranks.rank() % 2 == 0);
    const Memory first = share->take(300);
    const Memory second = share->take(300);
    EXPECT_GE(second.data(), first.data() + 300);
    if (place == 1) *second.at<int>(296) = 40 + ranks.rank();
    share->meet();
    EXPECT_EQ(*first.at<int>(296), 0);
    EXPECT_EQ(*second.at<int>(296), ranks.rank() % 2 == 0 ? 42 : 43);
    EXPECT_EQ(share->sum(ranks.rank()), ranks.rank() % 2 == 0 ? 2 : 4);
  });
}

TEST(HostShare, NeedsAsManyRanksOnEachHostAndMoreThanOne) {
  run_as_threads(3, [](Communicator& ranks) {
    const std::vector<std::vector<int>> placements = {{0, 1, 2}, {0, 0, 1}};
    for (const std::vector<int>& hosts : placements) EXPECT_EQ(HostShare::open(ranks, hosts, 100), nullptr);
  });
}

}  // namespace
}  // namespace ddp
