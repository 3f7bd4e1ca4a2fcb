// Executes AMX's instructions for bf16 in software on processors without them: catches the signal of an illegal instruction, decodes
// it and does what Intel's Software Developer's Manual defines. So tests run the code of amx_instructions.cpp as it was compiled,
// with its operands, addresses and configuration, although about a microsecond an instruction.
//
//   const AmxEmulation emulation;          // for the time of its life; nothing happens where there is AMX
//   lanes::amx::table().forward[0].kernel[0](task);
//   EXPECT_GT(emulation.executed(), 0);    // unless lanes::has_amx()
#pragma once

#include <csignal>

namespace ddp {

class AmxEmulation {
 public:
  AmxEmulation();
  ~AmxEmulation();
  AmxEmulation(const AmxEmulation&) = delete;
  AmxEmulation& operator=(const AmxEmulation&) = delete;

  // Instructions since it began. An instruction that is not AMX's, or not as the kernels should use it, ends the program.
  static long executed();

 private:
  struct sigaction before_ {};
};

}  // namespace ddp
