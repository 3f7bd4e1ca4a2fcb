// Divides an operator's workspace into typed parts.
//
//   Workspace layout;
//   Workspace::Part<float> packed = layout.add<float>(count);
//   const std::size_t bytes = layout.bytes();   // the operator's OpTraits::workspace_bytes
//   float* p = packed.in(workspace);
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/memory.h"

namespace ddp {

class Workspace {
 public:
  template <class T>
  struct Part {
    std::size_t offset = 0;
    T* in(std::byte* workspace) const { return static_cast<T*>(static_cast<void*>(workspace + offset)); }
  };

  template <class T>
  Part<T> add(std::int64_t count) {
    const std::size_t offset = bytes_;
    bytes_ += aligned_bytes(static_cast<std::size_t>(count) * sizeof(T));
    return {offset};
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

}  // namespace ddp
