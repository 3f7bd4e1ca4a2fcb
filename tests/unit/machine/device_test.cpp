#include "machine/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "comm/transport/self.h"
#include "comm/transport/threads.h"
#include "job/joint_error.h"
#include "support/errors.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

GpuInfo gpu(int ordinal, const std::string& pci_id) {
  return {.ordinal = ordinal,
          .name = "A GPU\twith a tab",
          .pci_id = pci_id,
          .numa_node = -1,
          .major = 9,
          .minor = 0,
          .total_bytes = (std::size_t{1} << 40U) + 1};
}

// A module with fictitious GPUs.
class StandInModule final : public GpuModule {
 public:
  explicit StandInModule(std::vector<GpuInfo> gpus) : gpus_(std::move(gpus)) {}
  std::string versions() const override { return "none"; }
  std::vector<GpuInfo> visible() override {
    check(!gpus_.empty(), ExitCode::preflight, "the driver reports no GPU");
    return gpus_;
  }
  std::unique_ptr<Backend> make_backend(const GpuBackendConfig&) override { return nullptr; }
  std::unique_ptr<Backend> make_described_backend(const GpuDescription&, const GpuBackendConfig&) override {
    return nullptr;
  }
  std::unique_ptr<DeviceCommunicator> make_nccl_communicator(Communicator&, const DeviceContext&) override {
    return nullptr;
  }
  std::unique_ptr<GpuTrace> start_trace() override { return nullptr; }

 private:
  std::vector<GpuInfo> gpus_;
};

GpuModuleOpener shows(std::vector<GpuInfo> gpus) {
  return [gpus = std::move(gpus)] { return std::make_shared<StandInModule>(gpus); };
}
GpuModuleOpener fails(ExitCode code) {
  return [code]() -> std::shared_ptr<GpuModule> { throw Error(code, "this is why"); };
}

Topology topology_of(const Communicator& ranks, const std::vector<int>& hosts) {
  Topology topology;
  topology.rank = ranks.rank();
  topology.size = ranks.size();
  for (const int host : hosts) topology.ranks.push_back({host, "n" + std::to_string(host)});
  return topology;
}

// The devices that the ranks of a job on `hosts` choose, by rank.
std::vector<Device> choose(const std::vector<int>& hosts, const Options& options,
                           const std::vector<GpuModuleOpener>& openers) {
  std::vector<Device> devices(hosts.size());
  run_as_threads(static_cast<int>(hosts.size()), [&](Communicator& ranks) {
    const auto rank = static_cast<std::size_t>(ranks.rank());
    devices[rank] = choose_device(ranks, topology_of(ranks, hosts), options, openers[rank]);
  });
  return devices;
}

// Returns the error that all ranks end with; the test fails if a rank ends with another or none.
std::string joint_error(ExitCode code, const std::vector<int>& hosts, const Options& options,
                        const std::vector<GpuModuleOpener>& openers) {
  std::vector<std::string> messages(hosts.size());
  std::vector<bool> reporters(hosts.size());
  std::mutex mutex;
  run_as_threads(static_cast<int>(hosts.size()), [&](Communicator& ranks) {
    const auto rank = static_cast<std::size_t>(ranks.rank());
    try {
      (void)choose_device(ranks, topology_of(ranks, hosts), options, openers[rank]);
    } catch (const JointError& error) {
      const std::lock_guard lock(mutex);
      EXPECT_EQ(error.code(), code);
      messages[rank] = error.what();
      reporters[rank] = error.reporter();
    }
  });
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    EXPECT_EQ(messages[rank], messages[0]);
    EXPECT_EQ(reporters[rank], rank == 0);
  }
  return messages[0];
}

TEST(Device, EachRankTakesItsGpuAndKnowsThoseOfAll) {
  Options options;
  options.model.precision = Precision::bf16;
  options.optimizer.deterministic = true;
  options.device.gpu_memory_fraction = 0.4;
  options.device.gpu_memory_limit = 12345;
  const GpuModuleOpener two = shows({gpu(0, "0000:01:00.0"), gpu(1, "0000:02:00.0")});
  const std::vector<Device> devices = choose({0, 0, 1}, options, {two, two, shows({gpu(0, "0000:01:00.0")})});
  const std::vector<int> expected = {0, 1, 0};
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const Device& device = devices[rank];
    ASSERT_NE(device.gpu_module, nullptr);
    EXPECT_EQ(device.config.ordinal, expected[rank]);
    EXPECT_EQ(device.config.precision, Precision::bf16);
    EXPECT_TRUE(device.config.deterministic);
    EXPECT_EQ(device.config.memory_fraction, 0.4);
    EXPECT_EQ(device.config.memory_limit, 12345U);
    EXPECT_FALSE(device.through_host);
    EXPECT_EQ(device.note, "3 GPUs, one per rank");
    ASSERT_EQ(device.gpus.size(), 3U);
    EXPECT_EQ(device.gpus[1].pci_id, "0000:02:00.0");
    EXPECT_EQ(device.gpus[1].name, "A GPU with a tab");
    EXPECT_EQ(device.gpus[1].numa_node, -1);
    EXPECT_EQ(device.gpus[1].total_bytes, (std::size_t{1} << 40U) + 1);
    EXPECT_EQ(device.views[2].host_name, "n1");
  }
}

TEST(Device, SharedGpusSendGradientsThroughTheHost) {
  Options options;
  const GpuModuleOpener one = shows({gpu(0, "0000:01:00.0")});
  EXPECT_THAT(joint_error(ExitCode::preflight, {0, 0}, options, {one, one}), HasSubstr("2 ranks on host n0 see 1 GPU"));
  options.device.oversubscribe_gpus = true;
  for (const Device& device : choose({0, 0}, options, {one, one})) {
    EXPECT_TRUE(device.through_host);
    EXPECT_EQ(device.note, "2 ranks share 1 GPU, gradients are reduced by MPI through host memory");
  }
}

TEST(Device, AutoIsTheCpuWhereNoGpuCanBeUsed) {
  for (const GpuModuleOpener& opener : {fails(ExitCode::preflight), shows({})}) {
    for (const Device& device : choose({0, 0}, {}, {opener, opener})) {
      EXPECT_EQ(device.gpu_module, nullptr);
      EXPECT_TRUE(device.gpus.empty());
      EXPECT_THAT(device.note, HasSubstr("no GPU: th"));
    }
  }
  EXPECT_EQ(choose({0}, {}, {fails(ExitCode::preflight)})[0].note, "no GPU: this is why");
}

TEST(Device, OneRankWithoutAGpuKeepsAllOnTheCpu) {
  const std::vector<GpuModuleOpener> openers = {shows({gpu(0, "0000:01:00.0")}), fails(ExitCode::preflight)};
  for (const Device& device : choose({0, 1}, {}, openers)) {
    EXPECT_EQ(device.gpu_module, nullptr);
    EXPECT_EQ(device.note, "no GPU: rank 1 on host n1: this is why");
  }
  Options options;
  options.device.device = DeviceChoice::cuda;
  EXPECT_EQ(joint_error(ExitCode::preflight, {0, 1}, options, openers),
            "--device cuda: rank 1 on host n1: this is why");
}

TEST(Device, CudaWithoutAGpuIsAnErrorThatSaysWhy) {
  Options options;
  options.device.device = DeviceChoice::cuda;
  EXPECT_EQ(joint_error(ExitCode::preflight, {0, 0}, options, {fails(ExitCode::preflight), fails(ExitCode::preflight)}),
            "--device cuda: this is why");
  EXPECT_EQ(joint_error(ExitCode::preflight, {0}, options, {shows({})}), "--device cuda: the driver reports no GPU");
}

TEST(Device, ADefectIsNoReasonToGoOnWithoutAGpu) {
  const std::vector<GpuModuleOpener> openers = {
      shows({gpu(0, "0000:01:00.0")}), []() -> std::shared_ptr<GpuModule> { throw std::logic_error("a mistake"); }};
  EXPECT_THAT(joint_error(ExitCode::internal, {0, 0}, {}, openers),
              AllOf(HasSubstr("rank 1 on host n0: internal error: a mistake"), HasSubstr("report it")));
}

TEST(Device, TheCpuIsTakenWithoutLookingForGpus) {
  Options options;
  options.device.device = DeviceChoice::cpu;
  const GpuModuleOpener never = []() -> std::shared_ptr<GpuModule> {
    ADD_FAILURE() << "the module was opened";
    return nullptr;
  };
  const Device device = choose({0}, options, {never})[0];
  EXPECT_EQ(device.gpu_module, nullptr);
  EXPECT_EQ(device.note, "");
}

TEST(Device, TheCpuTakesEveryPrecision) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    Options options;
    options.model.precision = precision;
    for (const DeviceChoice choice : {DeviceChoice::cpu, DeviceChoice::automatic}) {
      options.device.device = choice;
      for (const Device& device : choose({0, 0}, options, {fails(ExitCode::preflight), fails(ExitCode::preflight)})) {
        EXPECT_EQ(device.gpu_module, nullptr);
        EXPECT_EQ(device.config.precision, precision);
      }
    }
  }
}

}  // namespace
}  // namespace ddp
