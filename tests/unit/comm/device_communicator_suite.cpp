#include "unit/comm/device_communicator_suite.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <span>

#include "backend/arithmetic.h"
#include "base/error.h"
#include "base/random.h"
#include "unit/comm/communicator_suite.h"

namespace ddp::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kSizes[] = {1, 2, 7, 1000, 70001};

// An array in device memory that the host can set and read.
template <class T>
class DeviceArray {
 public:
  DeviceArray(Backend& backend, std::vector<T> values)
      : backend_(backend),
        host_(std::move(values)),
        memory_(backend.memory().allocate(host_.size() * sizeof(T), "the values of a test")) {
    backend_.queue().upload(memory_.data(), host_.data(), host_.size() * sizeof(T));
  }

  T* data() const { return memory_.at<T>(0); }
  std::size_t size() const { return host_.size(); }

  const std::vector<T>& fetch() {
    backend_.queue().download(host_.data(), memory_.data(), host_.size() * sizeof(T));
    backend_.queue().synchronize();
    return host_;
  }

 private:
  Backend& backend_;
  std::vector<T> host_;
  Memory memory_;
};

// Small integers that depend on rank and index; their sums are exact in any order.
template <class T>
std::vector<T> of_rank(int rank, std::size_t size, std::size_t round = 0) {
  std::vector<T> values(size);
  for (std::size_t i = 0; i < size; ++i) {
    values[i] = static_cast<T>((i * 7 + round * 13) % 1009 + static_cast<std::size_t>(rank) * 3);
  }
  return values;
}

template <class T>
std::vector<T> over_ranks(int ranks, std::size_t size, std::size_t round = 0) {
  std::vector<T> sums(size);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<T> values = of_rank<T>(rank, size, round);
    for (std::size_t i = 0; i < size; ++i) sums[i] += values[i];
  }
  return sums;
}

template <class T>
void check_sums(Communicator& ranks, const MakeDevice& make) {
  const Device device = make(ranks);
  // Growing and shrinking sizes, so that buffers kept between sums have to grow.
  for (std::size_t round = 0; round < 2; ++round) {
    for (const std::size_t size : kSizes) {
      DeviceArray<T> array(*device.backend, of_rank<T>(ranks.rank(), size, round));
      device.sums->all_reduce(array.data(), size);
      device.sums->join();
      device.sums->wait("the test");
      EXPECT_EQ(array.fetch(), over_ranks<T>(ranks.size(), size, round));
    }
  }
}

void sums_of_floats_are_exact(Communicator& ranks, const MakeDevice& make) { check_sums<float>(ranks, make); }
void sums_of_doubles_are_exact(Communicator& ranks, const MakeDevice& make) { check_sums<double>(ranks, make); }

void sums_of_bf16_are_exact(Communicator& ranks, const MakeDevice& make) {
  const Device device = make(ranks);
  // Integers up to 256 are exact in bf16.
  const auto of = [](int rank, std::size_t i) { return static_cast<float>(i % 19 + static_cast<std::size_t>(rank)); };
  std::vector<Bf16> values(30001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i].bits = bf16_bits(of(ranks.rank(), i));
  DeviceArray<Bf16> array(*device.backend, values);
  device.sums->all_reduce(array.data(), array.size(), Start::now);
  device.sums->join();
  device.sums->wait("the test");
  const std::vector<Bf16>& sums = array.fetch();
  for (std::size_t i = 0; i < sums.size(); ++i) {
    float expected = 0;
    for (int rank = 0; rank < ranks.size(); ++rank) expected += of(rank, i);
    ASSERT_EQ(float_of_bf16(sums[i].bits), expected) << i;
  }
}

void many_sums_under_way(Communicator& ranks, const MakeDevice& make) {
  const Device device = make(ranks);
  for (int step = 0; step < 3; ++step) {
    std::vector<std::unique_ptr<DeviceArray<float>>> arrays;
    for (std::size_t i = 0; i < 9; ++i) {
      arrays.push_back(
          std::make_unique<DeviceArray<float>>(*device.backend, of_rank<float>(ranks.rank(), 100 * i + 1, i)));
      // The first five may overlap; sums after an at_join must not overtake it.
      device.sums->all_reduce(arrays[i]->data(), arrays[i]->size(), i % 6 == 5 ? Start::at_join : Start::now);
    }
    DeviceArray<double> message(*device.backend, of_rank<double>(ranks.rank(), 5));
    device.sums->all_reduce(message.data(), message.size());
    device.sums->join();
    device.sums->wait("the test");
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      EXPECT_EQ(arrays[i]->fetch(), over_ranks<float>(ranks.size(), 100 * i + 1, i));
    }
    EXPECT_EQ(message.fetch(), over_ranks<double>(ranks.size(), 5));
  }
}

void later_work_sees_the_sums(Communicator& ranks, const MakeDevice& make) {
  const Device device = make(ranks);
  DeviceArray<float> array(*device.backend, of_rank<float>(ranks.rank(), 20000));
  DeviceArray<float> addend(*device.backend, std::vector<float>(20000, 1.0F));
  std::vector<float> expected = over_ranks<float>(ranks.size(), 20000);
  for (int round = 0; round < 5; ++round) {
    device.sums->all_reduce(array.data(), array.size());
    device.sums->join();
    device.backend->math().add(array.data(), addend.data(), array.size());
    if (round > 0) {
      for (float& value : expected) value *= static_cast<float>(ranks.size());
    }
    for (float& value : expected) value += 1.0F;
  }
  device.sums->wait("the test");
  EXPECT_EQ(array.fetch(), expected);
}

void all_ranks_have_the_same_bits(Communicator& ranks, const MakeDevice& make) {
  const Device device = make(ranks);
  DeviceArray<float> array(*device.backend, random_gradient(71, 0, ranks.rank(), 30011));
  device.sums->all_reduce(array.data(), array.size());
  device.sums->join();
  device.sums->wait("the test");
  std::vector<float> of_root = array.fetch();
  ranks.broadcast(std::as_writable_bytes(std::span(of_root)), 0);
  EXPECT_TRUE(same_bits(array.fetch(), of_root));
}

void a_sum_of_nothing(Communicator& ranks, const MakeDevice& make) {
  const Device device = make(ranks);
  device.sums->all_reduce(static_cast<float*>(nullptr), 0);
  device.sums->join();
  device.sums->wait("the test");
}

void a_silent_rank_is_an_error(Communicator& ranks, const MakeDevice& make) {
  if (ranks.size() == 1) return;
  const std::unique_ptr<Communicator> copy = ranks.duplicate();
  copy->set_timeout(0.5);
  ranks.barrier();
  const Device device = make(*copy);
  if (ranks.rank() != 0) {
    DeviceArray<float> array(*device.backend, of_rank<float>(ranks.rank(), 100000));
    try {
      device.sums->all_reduce(array.data(), array.size());
      device.sums->join();
      device.sums->wait("step 7");
      ADD_FAILURE() << "rank 0 is silent: this cannot end well";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::rank_lost);
      EXPECT_THAT(error.what(), HasSubstr("waited 0.5 s for "));
      EXPECT_THAT(error.what(), HasSubstr("a rank hung or died; see its last message"));
    }
  }
  ranks.barrier();
}

}  // namespace

const std::vector<DeviceCommunicatorCase>& device_communicator_cases() {
  static const std::vector<DeviceCommunicatorCase> cases = {
      {"SumsOfFloatsAreExact", sums_of_floats_are_exact},
      {"SumsOfDoublesAreExact", sums_of_doubles_are_exact},
      {"SumsOfBf16AreExact", sums_of_bf16_are_exact},
      {"ManySumsUnderWay", many_sums_under_way},
      {"LaterWorkSeesTheSums", later_work_sees_the_sums},
      {"AllRanksHaveTheSameBits", all_ranks_have_the_same_bits},
      {"ASumOfNothing", a_sum_of_nothing},
      {"ASilentRankIsAnError", a_silent_rank_is_an_error},
  };
  return cases;
}

Device make_staged_cpu(Communicator& ranks) {
  Device device;
  device.backend = make_cpu_backend();
  device.sums = make_staged_communicator(ranks, device.backend->device());
  return device;
}

Device make_host_cpu(Communicator& ranks) {
  Device device;
  device.backend = make_cpu_backend();
  device.sums = make_host_communicator(ranks, device.backend->device());
  return device;
}

}  // namespace ddp::testing
