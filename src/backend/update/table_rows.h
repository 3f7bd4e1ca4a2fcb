// Tables in device memory of which each step reads the next row: what differs between steps that are one recording.
//
//   const std::vector<TableColumn> columns = {{table, 1024, place, 1024}};   // of rows of 256 floats
//   backend.math().copy_row(columns, cursor);                                // the row at which the cursor is, and moves it
//   const TableRow row{columns, cursor};                                     // for the first kernel of a pass, which does not
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/types/host_device.h"

namespace ddp {

// Rows of equal distance, of which one is copied. Bytes and addresses are multiples of 4.
struct TableColumn {
  const void* table = nullptr;
  std::size_t stride = 0;  // bytes from one row to the next; 0: all rows are the same
  void* to = nullptr;
  std::size_t bytes = 0;  // of a row that are copied
};
inline constexpr std::size_t kMostColumns = 8;

// In device memory: the row that is copied next, and their number.
struct TableCursor {
  std::int64_t row = 0;
  std::int64_t rows = 1;

  // The last row is followed by the first.
  DDP_HOST_DEVICE void advance() { row = row + 1 < rows ? row + 1 : 0; }
};
DDP_HOST_DEVICE inline std::size_t row_at(const TableCursor* cursor) {
  return cursor == nullptr ? 0 : static_cast<std::size_t>(cursor->row);
}

// The row of some columns at which the cursor is.
struct TableRow {
  std::span<const TableColumn> columns = {};  // kMostColumns at most
  const TableCursor* cursor = nullptr;        // null: row 0
};

}  // namespace ddp
