#include "backend/cuda/device/device_memory.h"

#include <algorithm>

#include "base/error.h"
#include "base/text/text.h"

namespace ddp::cuda {
namespace {

std::size_t allowed_bytes(std::size_t total, double fraction, std::size_t limit) {
  DDP_ASSERT(fraction > 0 && fraction <= 1);
  const auto share = fraction < 1 ? static_cast<std::size_t>(fraction * static_cast<double>(total)) : total;
  return limit == 0 ? share : std::min(share, limit);
}

}  // namespace

std::size_t runtime_reserve(std::optional<std::size_t> counted, std::size_t gone, std::size_t held) {
  const std::size_t all = counted.value_or(gone);
  const std::size_t beside = all - std::min(all, held) + kLaterReserve;
  // Memory of other processes is not counted: at most the assumed reserve.
  return counted ? beside : std::min(beside, kRuntimeReserve);
}

MemoryBudget::MemoryBudget(std::size_t total, double fraction, std::size_t limit)
    : total_(total), allowed_(allowed_bytes(total, fraction, limit)) {}

std::size_t MemoryBudget::cap() const {
  return capped() ? allowed_ - std::min<std::size_t>(allowed_, reserve_) : total_;
}

std::size_t MemoryBudget::left() const {
  const std::size_t most = cap();
  return most - std::min<std::size_t>(most, held_);
}

void MemoryBudget::take(std::size_t bytes, const std::string& purpose) {
  const std::size_t before = held_.fetch_add(bytes);
  const std::size_t most = cap();
  if (bytes <= most && before <= most - bytes) {
    ++allocations_;
    return;
  }
  held_ -= bytes;
  if (!capped()) {
    throw Error(ExitCode::out_of_memory,
                fmt::format("{} need {}, but this process holds {} of the GPU's {} already; use a smaller batch or "
                            "more logical shards",
                            purpose, format_bytes(bytes), format_bytes(before), format_bytes(total_)));
  }
  throw Error(
      ExitCode::out_of_memory,
      fmt::format("{} need {}, but of the {} that this process may take of the GPU's {} it holds {} already, "
                  "and {} are reserved for CUDA itself; use a smaller batch, more logical shards or a higher limit",
                  purpose, format_bytes(bytes), format_bytes(allowed_), format_bytes(total_), format_bytes(before),
                  format_bytes(allowed_ - most)));
}

void MemoryBudget::refused_by_gpu(std::size_t bytes, const std::string& purpose, std::size_t free) const {
  throw Error(ExitCode::out_of_memory,
              fmt::format("{} need {}, but only {} of the GPU's {} are free, with {} held by this process; use a "
                          "smaller batch or more logical shards, or end other processes that use the GPU",
                          purpose, format_bytes(bytes), format_bytes(free), format_bytes(total_), format_bytes(held_)));
}

}  // namespace ddp::cuda
