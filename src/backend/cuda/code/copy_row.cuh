// The device code that copies a row of tables, for kernels that have other work too.
//
//   const Columns columns(row.columns);
//   launch(stream, columns.blocks(), kThreads, some_kernel, columns, row.cursor);   // whose blocks call columns.copy(...)
#pragma once

#include <span>

#include "backend/cuda/code/launch.cuh"
#include "backend/update/table_rows.h"

namespace ddp::cuda {

// A kernel's argument.
struct Columns {
  TableColumn all[kMostColumns];
  std::uint32_t count = 0;

  explicit Columns(std::span<const TableColumn> columns) {
    for (const TableColumn& column : columns) all[count++] = column;
  }
  // For the longest of them.
  unsigned blocks() const {
    std::size_t most = 0;
    for (std::uint32_t c = 0; c < count; ++c) most = all[c].bytes / 4 > most ? all[c].bytes / 4 : most;
    return blocks_for(most);
  }
  // The share of one of so many blocks.
  __device__ void copy(std::size_t row, std::uint32_t block, std::uint32_t blocks) const {
    for (std::uint32_t c = 0; c < count; ++c) {
      const TableColumn& column = all[c];
      const auto* from = static_cast<const std::uint32_t*>(column.table) + row * (column.stride / 4);
      auto* to = static_cast<std::uint32_t*>(column.to);
      const std::size_t step = std::size_t{blocks} * kThreads;
      for (std::size_t i = std::size_t{block} * kThreads + threadIdx.x; i < column.bytes / 4; i += step)
        to[i] = from[i];
    }
  }
};

}  // namespace ddp::cuda
