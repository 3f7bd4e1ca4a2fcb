// The memory of a device: blocks of it and of host memory, freed with their owner.
//
//   Memory memory = backend.memory().allocate(plan.arena_bytes, "the activations");
//   float* x = memory.at<float>(plan.offset(id));
//
// GPU memory may only be accessed by work and copies of the GPU; see DeviceMemory::on_host().
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace ddp {

// The alignment of memory blocks and of the parts that a plan divides them into: that of cudaMalloc(), required by
// cuBLASLt for its workspace.
inline constexpr std::size_t kMemoryAlignment = 256;
constexpr std::size_t aligned_bytes(std::size_t bytes) {
  return (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment;
}

class Memory {
 public:
  using Release = std::function<void(std::byte*)>;

  Memory() = default;
  Memory(std::byte* data, std::size_t bytes, Release release);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();

  std::size_t bytes() const { return bytes_; }
  std::byte* data() const { return data_; }
  template <class T>
  T* at(std::size_t offset) const {
    return static_cast<T*>(static_cast<void*>(data_ + offset));
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  Release release_;
};

class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  virtual ~DeviceMemory() = default;

  // Whether device memory is host memory and calls return when their work is done. Only for helpers that avoid copies
  // (host_mirror.h, staging.h, comm/sums/staged.cpp); a step is the same on both.
  virtual bool on_host() const = 0;
  // Zeroed device memory. Throws Error(out_of_memory) naming `purpose`, a plural such as "the activations".
  virtual Memory allocate(std::size_t bytes, const std::string& purpose) = 0;
  // Zeroed host memory for fast copies (page-locked for a GPU).
  virtual Memory allocate_for_transfer(std::size_t bytes, const std::string& purpose) = 0;
  // Bytes of device memory that allocate() can still give; 0: unknown.
  virtual std::size_t available_bytes() const { return 0; }
};

// Host memory, zeroed and resident when the call returns, on huge pages if available and the block is not small. Throws
// Error(out_of_memory) naming `purpose`, a plural such as "the activations".
Memory allocate_on_host(std::size_t bytes, const std::string& purpose);

}  // namespace ddp
