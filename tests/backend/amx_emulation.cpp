#include "backend/amx_emulation.h"

#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace ddp::amx_emulation {
namespace {

constexpr int kRows = 16;
using Tile = std::array<std::array<std::uint32_t, kRows>, kRows>;

struct Registers {
  std::array<Tile, 8> tiles;
  std::array<std::uint8_t, 8> rows;
  bool configured;
};
thread_local Registers registers{};
volatile std::sig_atomic_t instructions = 0;

[[noreturn]] void refuse(std::string_view why) {
  for (const std::string_view part : {std::string_view("AMX emulation: "), why, std::string_view("\n")}) {
    if (write(STDERR_FILENO, part.data(), part.size()) < 0) break;
  }
  std::abort();
}

// The fields of an instruction with a prefix VEX of three bytes and the map 0F38, whose operation is `code` with a mandatory
// prefix: 0 none, 2 F3, 3 F2.
struct Instruction {
  int prefix, code, mode, reg, rm, second;
  const std::uint8_t* next;
  // Address of the operand in memory.
  std::int64_t base = 0, index = 0, displacement = 0;
};

std::int64_t value_of(const ucontext_t& context, int number) {
  constexpr std::array kNumbers = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                   REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return context.uc_mcontext.gregs[kNumbers.at(static_cast<std::size_t>(number))];
}

Instruction decode(const ucontext_t& context) {
  constexpr int kVex3 = 0xC4;
  constexpr int kSib = 4;
  constexpr int kNoBase = 5;
  const auto* p = std::bit_cast<const std::uint8_t*>(context.uc_mcontext.gregs[REG_RIP]);
  if (p[0] != kVex3 || (p[1] & 0x1F) != 2) refuse("another illegal instruction");
  const bool wide = (p[1] & 0x80) == 0 || (p[2] & 0x84) != 0;
  if (wide) refuse("register numbers, W or L beyond those of tiles");
  const int upper_index = (p[1] & 0x40) == 0 ? 8 : 0;
  const int upper_base = (p[1] & 0x20) == 0 ? 8 : 0;
  Instruction i{.prefix = p[2] & 3,
                .code = p[3],
                .mode = p[4] >> 6,
                .reg = (p[4] >> 3) & 7,
                .rm = p[4] & 7,
                .second = (~p[2] >> 3) & 15,
                .next = p + 5};
  if (i.mode == 3) return i;
  const bool relative = i.mode == 0 && i.rm == kNoBase;
  if (i.rm == kSib) {
    const int sib = *i.next++;
    const int index = ((sib >> 3) & 7) | upper_index;
    if (i.mode == 0 && (sib & 7) == kNoBase) refuse("an address without base");
    i.index = index == kSib ? 0 : value_of(context, index) * (1 << (sib >> 6));
    i.base = value_of(context, (sib & 7) | upper_base);
  } else if (!relative) {
    i.base = value_of(context, i.rm | upper_base);
  }
  if (i.mode == 1) {
    i.displacement = *i.next < 128 ? *i.next : *i.next - 256;
    ++i.next;
  }
  if (i.mode == 2 || relative) {
    std::int32_t value = 0;
    std::memcpy(&value, i.next, sizeof value);
    i.displacement = value;
    i.next += sizeof value;
  }
  if (relative) i.base = std::bit_cast<std::int64_t>(i.next);
  return i;
}

char* memory_at(std::int64_t address) { return std::bit_cast<char*>(address); }

// Eight tiles of 1 to 16 rows of 64 bytes; nothing else is set.
void configure(const char* from) {
  std::array<std::uint8_t, 64> all{};
  std::memcpy(all.data(), from, all.size());
  std::array<std::uint8_t, 64> wanted{1};
  registers = {};
  for (std::size_t tile = 0; tile < 8; ++tile) {
    const std::uint8_t rows = all.at(48 + tile);
    if (rows < 1 || rows > kRows) refuse("a tile without rows, or with more than 16");
    wanted.at(16 + 2 * tile) = 64;
    wanted.at(48 + tile) = rows;
    registers.rows.at(tile) = rows;
  }
  if (all != wanted) refuse("an unexpected configuration");
  registers.configured = true;
}

// The settings of this thread do not hold in a handler of signals.
float flushed(float value) { return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0F, value) : value; }
float float_of(std::uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return flushed(value);
}

void multiply(Tile& sums, const Tile& a, const Tile& b, std::size_t rows) {
  constexpr std::uint32_t kUpper = 0xFFFF0000U;
  for (std::size_t m = 0; m < rows; ++m) {
    for (std::size_t n = 0; n < kRows; ++n) {
      float even = 0;
      float odd = 0;
      for (std::size_t k = 0; k < kRows; ++k) {
        even = flushed(std::fma(float_of(a[m][k] << 16U), float_of(b[k][n] << 16U), even));
        odd = flushed(std::fma(float_of(a[m][k] & kUpper), float_of(b[k][n] & kUpper), odd));
      }
      const float sum = flushed(float_of(sums[m][n]) + flushed(even + odd));
      std::memcpy(&sums[m][n], &sum, sizeof sum);
    }
  }
}

void execute(const Instruction& i) {
  constexpr int kConfigure = 0x49;  // also release and zero
  constexpr int kMove = 0x4B;
  constexpr int kMultiply = 0x5C;
  const auto number = static_cast<std::size_t>(i.reg);
  Tile& tile = registers.tiles.at(number);
  if (i.code == kConfigure && i.prefix == 0 && i.mode != 3 && i.reg == 0) {
    configure(memory_at(i.base + i.index + i.displacement));
  } else if (!registers.configured) {
    refuse("tiles are not configured");
  } else if (i.code == kConfigure && i.prefix == 0 && i.mode == 3 && i.reg == 0 && i.rm == 0) {
    registers = {};
  } else if (i.code == kConfigure && i.prefix == 3 && i.mode == 3 && i.rm == 0) {
    tile = {};
  } else if (i.code == kMove && (i.prefix == 3 || i.prefix == 2) && i.mode != 3 && i.rm == 4) {
    char* row = memory_at(i.base + i.displacement);
    if (i.prefix == 3) tile = {};
    for (std::size_t m = 0; m < registers.rows.at(number); ++m, row += i.index) {
      if (i.prefix == 3) std::memcpy(tile[m].data(), row, sizeof tile[m]);
      if (i.prefix == 2) std::memcpy(row, tile[m].data(), sizeof tile[m]);
    }
  } else if (i.code == kMultiply && i.prefix == 2 && i.mode == 3) {
    if (i.reg == i.rm || i.reg == i.second || i.rm == i.second || i.second > 7)
      refuse("operands that are the same tile");
    const auto a = static_cast<std::size_t>(i.rm);
    const auto b = static_cast<std::size_t>(i.second);
    if (registers.rows.at(a) != registers.rows.at(number) || registers.rows.at(b) != kRows) {
      refuse("rows that do not fit to one another");
    }
    multiply(tile, registers.tiles.at(a), registers.tiles.at(b), registers.rows.at(a));
  } else {
    refuse("an instruction that is not expected");
  }
}

void on_illegal_instruction(int /*signal*/, siginfo_t* /*info*/, void* context) {
  auto& where = *static_cast<ucontext_t*>(context);
  const Instruction instruction = decode(where);
  execute(instruction);
  instructions = instructions + 1;
  where.uc_mcontext.gregs[REG_RIP] = std::bit_cast<greg_t>(instruction.next);
}

}  // namespace
}  // namespace ddp::amx_emulation

namespace ddp {

AmxEmulation::AmxEmulation() {
  amx_emulation::instructions = 0;
  struct sigaction action {};
  action.sa_sigaction = amx_emulation::on_illegal_instruction;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, &before_);
}

AmxEmulation::~AmxEmulation() { sigaction(SIGILL, &before_, nullptr); }

long AmxEmulation::executed() { return amx_emulation::instructions; }

}  // namespace ddp
