// A named, non-owning view of a tensor, from which checkpoints are written and into which they are read.
//
//   TensorView view{"conv1.weight", {20, 1, 3, 3}, parameters.data()};   // 180 floats, PyTorch's layout
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp {

struct TensorView {
  std::string name;
  std::vector<std::int64_t> shape;  // empty: a scalar
  float* data = nullptr;

  std::size_t elements() const {
    std::size_t count = 1;
    for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
    return count;
  }
};

}  // namespace ddp
