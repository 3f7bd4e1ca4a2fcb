// The instruction set whose kernels this process uses: the best that the processor has, or the one that the environment variable
// DDP_INSTRUCTION_SET selects (avx512, avx2, baseline, each also with +bf16, or with +amx, and with +onednn), so that different
// machines can compute the same bits.
//
//   LANES_TABLE(PoolKernels, pool_kernels)     // in a .cpp file: defines pool_kernels() for the header that declares it
//
// The sources of kernels are compiled once for each instruction set (kernels.inc).
#pragma once

#include <cstdint>

namespace ddp::lanes {

// In ascending order. avx512bf16 is AVX-512 on a processor that multiplies bf16 numbers; families without such numbers have no
// kernels of their own for it, and use those of avx512.
enum class InstructionSet { baseline, avx2, avx512, avx512bf16 };

// Throws Error(preflight) for one that the processor does not have.
InstructionSet instruction_set();
// "avx512", "avx2" or "baseline", as DDP_INSTRUCTION_SET takes them.
const char* instruction_set_name();

// Whether to use the kernels with pairs of bf16 numbers: if the processor has instructions for them. Otherwise they are
// a software model with the same bits, which is slower than fp32 and used only if DDP_INSTRUCTION_SET ends in +bf16 or +amx.
bool uses_pairs();
// Whether oneDNN is to be limited to the same instruction set, which DDP_INSTRUCTION_SET says by +onednn at its end.
bool limits_onednn();
// Whether kernels with AMX are wanted: where the processor has it, never, those of the software model, or always. AMX is asked for
// separately, as the permission to use it is (conv/amx/amx_kernels.h).
enum class Amx { if_there, never, model, asked };
Amx wanted_amx();

template <class Table>
const Table& table_of(const Table& (*baseline)(), const Table& (*avx2)(), const Table& (*avx512)(),
                      const Table& (*avx512bf16)()) {
  switch (instruction_set()) {
    case InstructionSet::baseline:
      return baseline();
    case InstructionSet::avx2:
      return avx2();
    case InstructionSet::avx512:
      return avx512();
    case InstructionSet::avx512bf16:
      break;
  }
  return avx512bf16();
}

}  // namespace ddp::lanes

// Define `const Table& name()` of ddp::lanes as the table of this processor's instruction set; for families that are compiled
// for all sets, and for those without bf16 numbers.
#define LANES_DECLARE_TABLE(set, Table, name) \
  namespace ddp::lanes::set {                 \
  const Table& name();                        \
  }
#define LANES_BF16_TABLE(Table, name)                                                                         \
  LANES_DECLARE_TABLE(baseline, Table, name)                                                                  \
  LANES_DECLARE_TABLE(avx2, Table, name)                                                                      \
  LANES_DECLARE_TABLE(avx512, Table, name)                                                                    \
  LANES_DECLARE_TABLE(avx512bf16, Table, name)                                                                \
  namespace ddp::lanes {                                                                                      \
  const Table& name() { return table_of<Table>(baseline::name, avx2::name, avx512::name, avx512bf16::name); } \
  }
#define LANES_TABLE(Table, name)                                                                          \
  LANES_DECLARE_TABLE(baseline, Table, name)                                                              \
  LANES_DECLARE_TABLE(avx2, Table, name)                                                                  \
  LANES_DECLARE_TABLE(avx512, Table, name)                                                                \
  namespace ddp::lanes {                                                                                  \
  const Table& name() { return table_of<Table>(baseline::name, avx2::name, avx512::name, avx512::name); } \
  }
