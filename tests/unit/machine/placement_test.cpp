#include "machine/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>

#include "support/errors.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string pci(int gpu) { return fmt::format("0000:{:02x}:00.0", 16 * (gpu + 1)); }

// A rank that sees these GPUs of its host, in this order.
RankView view(int host, const std::vector<int>& gpus) {
  RankView view;
  view.host = host;
  view.host_name = "n" + std::to_string(host);
  for (const int gpu : gpus) {
    view.gpus.push_back({.ordinal = static_cast<int>(view.gpus.size()),
                         .name = "NVIDIA H200",
                         .pci_id = pci(gpu),
                         .numa_node = gpu / 4,
                         .major = 9,
                         .minor = 0,
                         .total_bytes = std::size_t{141} << 30U});
  }
  return view;
}

std::vector<std::string> gpus_of(const Placement& placement) {
  std::vector<std::string> gpus;
  for (const GpuInfo& gpu : placement.gpus) gpus.push_back(gpu.pci_id);
  return gpus;
}
std::vector<int> ordinals_of(const Placement& placement) {
  std::vector<int> ordinals;
  for (const GpuInfo& gpu : placement.gpus) ordinals.push_back(gpu.ordinal);
  return ordinals;
}

std::vector<std::string> pcis(const std::vector<int>& gpus) {
  std::vector<std::string> ids;
  for (const int gpu : gpus) ids.push_back(pci(gpu));
  return ids;
}

using Views = std::vector<RankView>;

TEST(Placement, RanksOfAHostTakeTheVisibleGpusInTheirOrder) {
  const Placement placement = place_ranks(Views{view(0, {2, 0, 1}), view(0, {2, 0, 1}), view(0, {2, 0, 1})}, {});
  EXPECT_EQ(gpus_of(placement), pcis({2, 0, 1}));
  EXPECT_EQ(ordinals_of(placement), (std::vector{0, 1, 2}));
  EXPECT_FALSE(placement.shared);
}

TEST(Placement, EachHostBeginsAnew) {
  // Ranks distributed over hosts in turn, as by mpirun --map-by node, with hosts of different sizes.
  const std::vector<int> four = {0, 1, 2, 3};
  const Placement placement = place_ranks(
      Views{view(0, four), view(1, {5}), view(0, four), view(2, {0, 1}), view(0, four), view(2, {0, 1})}, {});
  EXPECT_EQ(ordinals_of(placement), (std::vector{0, 0, 1, 0, 2, 1}));
  EXPECT_EQ(gpus_of(placement), pcis({0, 5, 1, 0, 2, 1}));
  EXPECT_FALSE(placement.shared) << "the same address on another host is another GPU";
}

TEST(Placement, OneVisibleGpuATaskIsToldApartByItsAddress) {
  const Placement placement = place_ranks(Views{view(0, {3}), view(0, {1}), view(1, {3}), view(1, {0})}, {});
  EXPECT_EQ(gpus_of(placement), pcis({3, 1, 3, 0}));
  EXPECT_EQ(ordinals_of(placement), (std::vector{0, 0, 0, 0}));
  EXPECT_FALSE(placement.shared);
}

TEST(Placement, TasksWithSeveralGpusOfTheirOwnTakeTheFirst) {
  const Placement placement = place_ranks(Views{view(0, {0, 1}), view(0, {2, 3})}, {});
  EXPECT_EQ(gpus_of(placement), pcis({0, 2}));
}

TEST(Placement, GpusNamesGpusAmongTheVisibleOnesInOrder) {
  DeviceOptions options;
  options.gpus = {3, 2};
  const Placement placement = place_ranks(Views{view(0, {4, 5, 6, 7}), view(0, {4, 5, 6, 7})}, options);
  EXPECT_EQ(ordinals_of(placement), (std::vector{3, 2}));
  EXPECT_EQ(gpus_of(placement), pcis({7, 6}));
  // More GPUs than ranks are fine; with one GPU per task, only number 0 exists.
  options.gpus = {1, 0, 3};
  EXPECT_EQ(gpus_of(place_ranks(Views{view(0, {4, 5, 6, 7})}, options)), pcis({5}));
  options.gpus = {0};
  EXPECT_EQ(gpus_of(place_ranks(Views{view(0, {4}), view(0, {5})}, options)), pcis({4, 5}));
}

TEST(Placement, RefusesWhatGpusCannotMean) {
  DeviceOptions options;
  options.gpus = {0, 2};
  const Views two = {view(0, {0, 1}), view(0, {0, 1})};
  EXPECT_THAT(error_text(ExitCode::usage, [&] { place_ranks(two, options); }),
              AllOf(HasSubstr("--gpus 0,2: there is no GPU 2 for rank 0 on host n0, which sees 2 GPUs"),
                    HasSubstr("CUDA_VISIBLE_DEVICES")));
  options.gpus = {1, 1};
  EXPECT_THAT(error_text(ExitCode::usage, [&] { place_ranks(two, options); }),
              HasSubstr("--gpus 1,1 lists GPU 1 twice"));
  options.gpus = {1};
  EXPECT_THAT(error_text(ExitCode::preflight, [&] { place_ranks(two, options); }),
              AllOf(HasSubstr("--gpus 1 lists 1 GPU for 2 ranks on host n0: ranks 0 and 1 would share"),
                    HasSubstr("start 1 rank there"), HasSubstr("--oversubscribe-gpus"),
                    HasSubstr("reduced by MPI through host memory")));
  // A number that is missing on one host only.
  options.gpus = {1};
  EXPECT_THAT(error_text(ExitCode::usage,
                         [&] {
                           place_ranks(Views{view(0, {0, 1}), view(1, {0})}, options);
                         }),
              HasSubstr("no GPU 1 for rank 1 on host n1, which sees 1 GPU,"));
}

TEST(Placement, MoreRanksThanGpusTakeTurnsOnRequestOnly) {
  const Views views = {view(0, {0, 1}), view(0, {0, 1}), view(0, {0, 1}), view(1, {0})};
  EXPECT_THAT(error_text(ExitCode::preflight, [&] { place_ranks(views, {}); }),
              AllOf(HasSubstr("3 ranks on host n0 see 2 GPUs: ranks 0 and 2 would share the GPU at " + pci(0) +
                              "; start 2 ranks there"),
                    HasSubstr("--device cpu"), HasSubstr("--oversubscribe-gpus")));
  DeviceOptions options;
  options.oversubscribe_gpus = true;
  const Placement placement = place_ranks(views, options);
  EXPECT_EQ(ordinals_of(placement), (std::vector{0, 1, 0, 0}));
  EXPECT_TRUE(placement.shared);
  // Oversubscription is allowed but not needed: gradients still go directly from GPU to GPU.
  EXPECT_FALSE(place_ranks(Views{view(0, {0, 1}), view(0, {0, 1})}, options).shared);
  options.gpus = {1};
  EXPECT_EQ(ordinals_of(place_ranks(Views{view(0, {0, 1}), view(0, {0, 1})}, options)), (std::vector{1, 1}));
}

TEST(Placement, TwoRanksOnOneGpuAreFoundByItsAddress) {
  // A launcher that assigns the same GPU to two tasks, among others that are correct.
  const Views views = {view(0, {0}), view(1, {0}), view(0, {1}), view(0, {1, 2})};
  EXPECT_THAT(error_text(ExitCode::preflight, [&] { place_ranks(views, {}); }),
              AllOf(HasSubstr("ranks 2 and 3 on host n0"), HasSubstr(pci(1)), HasSubstr("NVIDIA H200"),
                    HasSubstr("CUDA_VISIBLE_DEVICES"), HasSubstr("--oversubscribe-gpus")));
  DeviceOptions options;
  options.oversubscribe_gpus = true;
  const Placement placement = place_ranks(views, options);
  EXPECT_EQ(gpus_of(placement), pcis({0, 0, 1, 1}));
  EXPECT_TRUE(placement.shared);
}

TEST(Placement, ARandomJobIsEvenAndEveryRankSeesItsGpu) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int trial = 0; trial < 200; ++trial) {
    Views views;
    std::vector<std::vector<int>> gpus(1 + random() % 3);
    for (std::vector<int>& host : gpus) {
      for (int gpu = 0; gpu < 8; ++gpu) host.push_back(gpu);
      std::shuffle(host.begin(), host.end(), random);
      host.resize(1 + random() % 8);
    }
    for (auto ranks = 1 + random() % 16; ranks > 0; --ranks) {
      const int host = static_cast<int>(random() % gpus.size());
      views.push_back(view(host, gpus[static_cast<std::size_t>(host)]));
    }
    DeviceOptions options;
    options.oversubscribe_gpus = true;
    const Placement placement = place_ranks(views, options);
    std::map<std::pair<int, std::string>, int> load;
    std::vector<int> ranks_of_host(gpus.size());
    for (std::size_t rank = 0; rank < views.size(); ++rank) {
      const GpuInfo& gpu = placement.gpus[rank];
      ASSERT_EQ(views[rank].gpus.at(static_cast<std::size_t>(gpu.ordinal)).pci_id, gpu.pci_id);
      ++load[{views[rank].host, gpu.pci_id}];
      ++ranks_of_host[static_cast<std::size_t>(views[rank].host)];
    }
    int busiest = 0;
    for (const auto& [gpu, ranks] : load) {
      busiest = std::max(busiest, ranks);
      const auto host = static_cast<std::size_t>(gpu.first);
      const int fair = ranks_of_host[host] / static_cast<int>(gpus[host].size());
      EXPECT_TRUE(ranks == fair || ranks == fair + 1);
    }
    EXPECT_EQ(placement.shared, busiest > 1);
  }
}

TEST(Placement, TheTableShowsWhatIsKnown) {
  Views views = {view(0, {0}), view(0, {5})};
  views[1].driver = "580.95.05";
  views[0].gpus[0].numa_node = -1;
  const std::string table = placement_table(views, place_ranks(views, {}).gpus);
  EXPECT_EQ(table,
            "rank  host  GPU            PCI address   NUMA node  driver        memory\n"
            "   0  n0    0 NVIDIA H200  0000:10:00.0          –  –          141.0 GiB\n"
            "   1  n0    0 NVIDIA H200  0000:60:00.0          1  580.95.05  141.0 GiB\n");
  EXPECT_EQ(placement_table(Views{view(0, {})}, {}),
            "rank  host  GPU  PCI address  NUMA node  driver  memory\n"
            "   0  n0    CPU  –                    –  –            –\n");
}

Environment with(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(AllocatedGpusTest, AreThoseOfTheLauncherOrTheUser) {
  EXPECT_EQ(allocated_gpus(with({}), {}), "");
  EXPECT_EQ(allocated_gpus(with({{"CUDA_VISIBLE_DEVICES", "0"}}), {}), "CUDA_VISIBLE_DEVICES=0");
  EXPECT_EQ(allocated_gpus(with({{"SLURM_JOB_GPUS", "0,1"}}), {}), "SLURM_JOB_GPUS=0,1");
  DeviceOptions named;
  named.gpus = {2, 0};
  EXPECT_EQ(allocated_gpus(with({{"CUDA_VISIBLE_DEVICES", ""}}), named), "--gpus 2,0");
  for (const char* none : {"", "-1", "NoDevFiles"}) {
    EXPECT_EQ(allocated_gpus(with({{"CUDA_VISIBLE_DEVICES", none}, {"SLURM_JOB_GPUS", "0"}}), {}), "") << none;
  }
}

TEST(IdleGpusTest, NamesWhatWasAllocatedAndIsNotUsed) {
  std::vector<RankView> views(2);
  for (RankView& view : views) {
    view.host_name = "a";
    for (int i = 0; i < 3; ++i) {
      GpuInfo gpu;
      gpu.ordinal = i;
      gpu.name = "H";
      gpu.pci_id = std::to_string(i);
      view.gpus.push_back(gpu);
    }
  }
  const std::vector<GpuInfo> used = {views[0].gpus[0], views[0].gpus[2]};
  EXPECT_EQ(idle_gpus(views, used), "");
  for (RankView& view : views) view.allocated = "SLURM_JOB_GPUS=0,1,2";
  EXPECT_EQ(idle_gpus(views, used), "host a: 1 of 3 GPUs (1 H at 1)");
}

}  // namespace
}  // namespace ddp
