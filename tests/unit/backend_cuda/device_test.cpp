// What can be tested about GPUs on a machine without one.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/device/check.h"
#include "backend/cuda/device/device_memory.h"
#include "backend/cuda/gpu_list.h"
#include "base/error.h"

namespace ddp::cuda {
namespace {

constexpr std::size_t kGiB = std::size_t{1} << 30U;

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Returns the error that `call` throws.
template <class Call>
Error error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(ExitCode::done, "nothing was thrown");
}

TEST(GpuList, SaysWhyThereIsNoGpu) {
  const GpuSearch no_driver{cudaErrorInsufficientDriver, 0, 0, 13000, {}};
  EXPECT_EQ(why_no_gpu(no_driver), "no NVIDIA driver is installed, or it is not loaded");
  const GpuSearch old_driver{cudaErrorInsufficientDriver, 0, 12040, 13000, {}};
  EXPECT_EQ(why_no_gpu(old_driver), "the NVIDIA driver is too old: it supports CUDA 12.4, this build needs CUDA 13.0");
  const GpuSearch no_gpu{cudaErrorNoDevice, 0, 13000, 13000, {}};
  EXPECT_EQ(why_no_gpu(no_gpu), "the NVIDIA driver sees no GPU");
  const GpuSearch hidden{cudaErrorNoDevice, 0, 13000, 13000, ""};
  EXPECT_EQ(why_no_gpu(hidden), "no GPU is visible: CUDA_VISIBLE_DEVICES is ''");
  const GpuSearch other{cudaErrorSystemDriverMismatch, 0, 12080, 13000, {}};
  EXPECT_TRUE(contains(why_no_gpu(other), "cudaErrorSystemDriverMismatch")) << why_no_gpu(other);
  const GpuSearch fine{cudaSuccess, 2, 13000, 13000, "3,2"};
  EXPECT_EQ(why_no_gpu(fine), "");
}

// Either all visible GPUs are described, or the error says why there are none.
TEST(GpuList, VisibleGpusOrAReason) {
  try {
    for (const GpuInfo& gpu : visible_gpus()) {
      EXPECT_FALSE(gpu.name.empty());
      EXPECT_EQ(gpu.pci_id.size(), 12U) << gpu.pci_id;
      EXPECT_GT(gpu.total_bytes, kGiB);
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::preflight);
    EXPECT_TRUE(contains(error.what(), "no GPU can be used: ")) << error.what();
  }
}

TEST(GpuList, VersionsNeedNoDriver) {
  EXPECT_TRUE(contains(cuda_versions(), "CUDA 1")) << cuda_versions();
  EXPECT_TRUE(contains(cuda_versions(), "cuDNN 9.")) << cuda_versions();
  EXPECT_EQ(cuda_version_text(12080), "12.8");
}

TEST(Check, SaysCallPlaceAndReason) {
  const Error memory = error_of([] { DDP_CUDA(cudaErrorMemoryAllocation); });
  EXPECT_EQ(memory.code(), ExitCode::out_of_memory);
  EXPECT_TRUE(contains(memory.what(), "cudaErrorMemoryAllocation at ")) << memory.what();
  EXPECT_TRUE(contains(memory.what(), "device_test.cpp:")) << memory.what();
  EXPECT_TRUE(contains(memory.what(), "out of memory")) << memory.what();
  EXPECT_EQ(error_of([] { DDP_CUDA(cudaErrorNoKernelImageForDevice); }).code(), ExitCode::preflight);
  EXPECT_EQ(error_of([] { DDP_CUDA(cudaErrorIllegalAddress); }).code(), ExitCode::internal);
  EXPECT_EQ(error_of([] { DDP_CUDNN(CUDNN_STATUS_BAD_PARAM); }).code(), ExitCode::internal);
  EXPECT_EQ(error_of([] { DDP_CUBLAS(CUBLAS_STATUS_ALLOC_FAILED); }).code(), ExitCode::out_of_memory);
  EXPECT_EQ(error_of([] { DDP_CUBLAS(CUBLAS_STATUS_NOT_SUPPORTED); }).code(), ExitCode::internal);
  EXPECT_EQ(error_of([] { DDP_CUDA(cudaSuccess); }).code(), ExitCode::done);
}

TEST(MemoryBudgetTest, TheWholeGpuHasNoReserve) {
  MemoryBudget budget(80 * kGiB, 1, 0);
  EXPECT_EQ(budget.cap(), 80 * kGiB);
  budget.take(80 * kGiB, "the activations");
  EXPECT_EQ(budget.left(), 0U);
  const Error error = error_of([&] { budget.take(1, "the weights"); });
  EXPECT_EQ(error.code(), ExitCode::out_of_memory);
  EXPECT_TRUE(contains(error.what(), "the weights need 1 B")) << error.what();
}

TEST(MemoryBudgetTest, ACapCountsCudaItself) {
  EXPECT_EQ(MemoryBudget(100 * kGiB, 0.4, 0).cap(), 40 * kGiB - kRuntimeReserve);
  EXPECT_EQ(MemoryBudget(100 * kGiB, 1, 4 * kGiB).cap(), 4 * kGiB - kRuntimeReserve);
  EXPECT_EQ(MemoryBudget(100 * kGiB, 0.4, 4 * kGiB).cap(), 4 * kGiB - kRuntimeReserve);
  EXPECT_EQ(MemoryBudget(100 * kGiB, 1, kRuntimeReserve / 2).cap(), 0U);
  EXPECT_EQ(MemoryBudget(100 * kGiB, 1, 200 * kGiB).cap(), 100 * kGiB);
}

TEST(MemoryBudgetTest, TheReserveIsWhatWasMeasured) {
  MemoryBudget budget(100 * kGiB, 0.4, 0);
  budget.take(38 * kGiB, "the activations");
  budget.set_reserve(kGiB / 2);
  EXPECT_EQ(budget.left(), 2 * kGiB - kGiB / 2);
  // If the reserve exceeds what is left, nothing more can be allocated, and existing allocations stay.
  budget.set_reserve(3 * kGiB);
  EXPECT_EQ(budget.left(), 0U);
  const Error error = error_of([&] { budget.take(1, "the weights"); });
  EXPECT_TRUE(contains(error.what(), "3.0 GiB are reserved for CUDA itself")) << error.what();
}

TEST(RuntimeReserve, IsWhatTheDriverCountsBesideAllocations) {
  EXPECT_EQ(runtime_reserve(5 * kGiB, 60 * kGiB, 3 * kGiB), 2 * kGiB + kLaterReserve);
  EXPECT_EQ(runtime_reserve(0, 60 * kGiB, 3 * kGiB), kLaterReserve);
}

TEST(RuntimeReserve, IsAtMostWhatIsGoneOfTheGpuWhereTheDriverDoesNotSay) {
  EXPECT_EQ(runtime_reserve(std::nullopt, 3 * kGiB + kGiB / 2, 3 * kGiB), kGiB / 2 + kLaterReserve);
  EXPECT_EQ(runtime_reserve(std::nullopt, 60 * kGiB, 3 * kGiB), kRuntimeReserve) << "others' share counts as theirs";
}

TEST(MemoryBudgetTest, WhatIsRefusedIsNotHeld) {
  MemoryBudget budget(100 * kGiB, 1, 8 * kGiB);
  budget.take(5 * kGiB, "the activations");
  const Error error = error_of([&] { budget.take(3 * kGiB, "the images of the data set"); });
  EXPECT_EQ(error.code(), ExitCode::out_of_memory);
  for (const char* part : {"the images of the data set need 3.0 GiB", "of the 8.0 GiB", "100.0 GiB", "holds 5.0 GiB"}) {
    EXPECT_TRUE(contains(error.what(), part)) << part << " in " << error.what();
  }
  EXPECT_EQ(budget.held(), 5 * kGiB);
  EXPECT_EQ(budget.allocations(), 1U);
  budget.take(2 * kGiB, "the weights");
  EXPECT_EQ(budget.left(), 0U);
  budget.give_back(5 * kGiB);
  EXPECT_EQ(budget.left(), 5 * kGiB);
  EXPECT_EQ(budget.allocations(), 2U);
  // Sizes that overflow are rejected too.
  EXPECT_EQ(error_of([&] { budget.take(~std::size_t{0}, "all there is"); }).code(), ExitCode::out_of_memory);
  EXPECT_EQ(budget.held(), 2 * kGiB);
}

}  // namespace
}  // namespace ddp::cuda
