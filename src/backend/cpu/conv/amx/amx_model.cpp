// The kernels of amx_kernels.h by a software model of AMX's instructions, for any processor.
#define LANES_NAMESPACE amx_model
#define LANES_NAME "a software model of AMX"
#define LANES_WIDTH 4

#include "backend/cpu/conv/amx/amx_kernels.h"

namespace ddp::lanes::amx_model {
namespace {

// Tile registers of rows of 64 bytes, and the instructions as Intel's Software Developer's Manual defines them (volume 2,
// TDPBF16PS). Denormal numbers are zero, by the settings of the thread: the instructions have that whatever these are.
class TileRegisters {
 public:
  void configure(const TileRows& rows) {
    rows_ = rows;
    __builtin_memset(tiles_, 0, sizeof tiles_);
  }
  template <int Tile>
  void zero() {
    __builtin_memset(&tiles_[Tile], 0, sizeof tiles_[Tile]);
  }
  template <int Tile>
  void load(const float* from) {
    zero<Tile>();
    __builtin_memcpy(&tiles_[Tile], from, rows_.of[Tile] * sizeof(Row));
  }
  template <int Tile>
  void store(float* to) const {
    __builtin_memcpy(to, &tiles_[Tile], rows_.of[Tile] * sizeof(Row));
  }
  // The products of the even and of the odd elements of a row are summed apart, by multiply-adds in ascending order; their
  // total is added to the destination.
  template <int Sum, int A, int B>
  void multiply() {
    for (int m = 0; m < rows_.of[Sum]; ++m) {
      float even[kAmxRows] = {};
      float odd[kAmxRows] = {};
      for (int k = 0; k < kAmxRows; ++k) {
        add_products(tiles_[A][m][k] << 16U, tiles_[B][k], 16U, even);
        add_products(tiles_[A][m][k] & 0xFFFF0000U, tiles_[B][k], 0U, odd);
      }
      float sums[kAmxRows];
      __builtin_memcpy(sums, tiles_[Sum][m], sizeof sums);
      for (int n = 0; n < kAmxRows; ++n) sums[n] += even[n] + odd[n];
      __builtin_memcpy(tiles_[Sum][m], sums, sizeof sums);
    }
  }

 private:
  using Row = std::uint32_t[kAmxRows];

  // In double precision, where a product is exact. Rounding the sum twice is as good as once: it is exact too, or one
  // addend is too small to matter, since a product has 16 bits and the sum 24.
  static void add_products(std::uint32_t factor, const Row& row, unsigned shift, float* sums) {
    const double a = static_cast<double>(__builtin_bit_cast(float, factor));
    for (int n = 0; n < kAmxRows; ++n) {
      const double b = static_cast<double>(__builtin_bit_cast(float, (row[n] << shift) & 0xFFFF0000U));
      sums[n] = static_cast<float>(static_cast<double>(sums[n]) + a * b);
    }
  }

  TileRows rows_{};
  alignas(64) Row tiles_[8][kAmxRows] = {};
};

}  // namespace
}  // namespace ddp::lanes::amx_model

#include "backend/cpu/conv/amx/amx_kernels.inc"
