// Whether this process can execute AMX's instructions for bf16, and which kernels with AMX it uses.
#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "backend/cpu/conv/amx/amx_kernels.h"
#include "backend/cpu/isa/instruction_set.h"

namespace ddp::lanes {

#ifdef __x86_64__
namespace {

// Bits of CPUID leaf 7 (EDX), of leaf 1 (ECX), and of the register XCR0: state that the operating system saves.
constexpr unsigned kHasBf16 = 1U << 22U;
constexpr unsigned kHasTiles = 1U << 24U;
constexpr unsigned kReadsXcr0 = 1U << 27U;
constexpr unsigned kTileState = (1U << 17U) | (1U << 18U);
// Request of arch_prctl(2), in kernel headers since Linux 5.16, for the state of tiles, which is off until then.
constexpr int kRequestState = 0x1023;
constexpr int kTileData = 18;

bool processor_has_amx() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kHasBf16) == 0 || (d & kHasTiles) == 0) return false;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kReadsXcr0) == 0) return false;
  unsigned low = 0;
  unsigned high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kTileState) == kTileState;
}

}  // namespace

bool has_amx() {
  // What amx_instructions.cpp is compiled with besides AMX.
  const bool has_avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                          __builtin_cpu_supports("avx512bf16") != 0;
  return has_avx512 && processor_has_amx() && syscall(SYS_arch_prctl, kRequestState, kTileData) == 0;
}
#else
bool has_amx() { return false; }
#endif

const AmxKernels& amx_kernels() {
  static const bool instructions = (wanted_amx() == Amx::if_there || wanted_amx() == Amx::asked) && has_amx();
  return instructions ? amx::table() : amx_model::table();
}
bool uses_amx() {
  const bool tiles = wanted_amx() == Amx::asked || wanted_amx() == Amx::model;
  return tiles || &amx_kernels() == &amx::table();
}

}  // namespace ddp::lanes
