// The kernels of amx_kernels.h by AMX's instructions; CMake compiles this file with these instruction sets.
#define LANES_NAMESPACE amx
#define LANES_NAME "AMX"
#define LANES_WIDTH 16
#include <immintrin.h>

#include "backend/cpu/conv/amx/amx_kernels.h"

namespace ddp::lanes::amx {
namespace {

// What LDTILECFG reads: palette 1, in which all eight tiles have rows of 64 bytes.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  TileRows rows{};
  std::uint8_t unused[8] = {};
};
static_assert(sizeof(TileConfiguration) == 64);

// The tile registers of this thread. Written as assembly, since compilers move stores across some of the intrinsics (GCC 12),
// and those take no template parameters. Operands are in the order of AT&T's syntax: the destination last.
class TileRegisters {
 public:
  TileRegisters() = default;
  ~TileRegisters() { asm volatile("tilerelease" : : : "memory"); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;

  void configure(const TileRows& rows) {
    const TileConfiguration configuration{.rows = rows};
    asm volatile("ldtilecfg %0" : : "m"(configuration) : "memory");
  }
  template <int Tile>
  __attribute__((always_inline)) void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(Tile));
  }
  template <int Tile>
  __attribute__((always_inline)) void load(const float* from) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(std::int64_t{64}), "i"(Tile) : "memory");
  }
  template <int Tile>
  __attribute__((always_inline)) void store(void* to) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(std::int64_t{64}), "i"(Tile) : "memory");
  }
  template <int Sum, int A, int B>
  __attribute__((always_inline)) void multiply() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sum), "i"(A), "i"(B));
  }
};

}  // namespace
}  // namespace ddp::lanes::amx

#include "backend/cpu/conv/amx/amx_kernels.inc"
