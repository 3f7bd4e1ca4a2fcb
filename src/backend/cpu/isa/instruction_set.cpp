#include "backend/cpu/isa/instruction_set.h"

#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace ddp::lanes {

namespace {

struct Chosen {
  InstructionSet set;
  bool uses_pairs;
  Amx amx;
  bool limits_onednn = false;
};

Chosen chosen_by(std::string_view wanted, std::string_view variable) {
  constexpr std::string_view kPairs = "+bf16";
  constexpr std::string_view kTiles = "+amx";
  const bool tiles = wanted.ends_with(kTiles);
  const bool model = tiles || wanted.ends_with(kPairs);
  if (model) wanted.remove_suffix(tiles ? kTiles.size() : kPairs.size());
  const bool has_avx512 = __builtin_cpu_supports("avx512f") != 0;
  const bool has_avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  check(
      (wanted.empty() && !model) || wanted == "avx512" || wanted == "avx2" || wanted == "baseline", ExitCode::usage,
      "DDP_INSTRUCTION_SET is '{}'; it must be avx512, avx2 or baseline, and may end in +bf16 or +amx, and in +onednn",
      variable);
  check((wanted != "avx512" || has_avx512) && (wanted != "avx2" || has_avx2), ExitCode::preflight,
        "DDP_INSTRUCTION_SET selects {}, which this processor does not support", wanted);
  if (wanted == "avx512" || (wanted.empty() && has_avx512)) {
    const Amx amx = wanted.empty() ? Amx::if_there : tiles ? Amx::asked : Amx::never;
    // The same kernels, with the same bits, besides those with pairs.
    if (__builtin_cpu_supports("avx512bf16") != 0) return {InstructionSet::avx512bf16, true, amx};
    return {InstructionSet::avx512, model, amx};
  }
  const bool avx2 = wanted == "avx2" || (wanted.empty() && has_avx2);
  return {avx2 ? InstructionSet::avx2 : InstructionSet::baseline, model, tiles ? Amx::model : Amx::never};
}

Chosen chosen() {
  const char* variable = std::getenv("DDP_INSTRUCTION_SET");
  const std::string_view all = variable != nullptr ? variable : "";
  constexpr std::string_view kOneDnn = "+onednn";
  const bool both = all.ends_with(kOneDnn) && all != kOneDnn;
  Chosen found = chosen_by(both ? all.substr(0, all.size() - kOneDnn.size()) : all, all);
  found.limits_onednn = both;
  return found;
}

const Chosen& best() {
  static const Chosen found = chosen();
  return found;
}

}  // namespace

InstructionSet instruction_set() { return best().set; }
const char* instruction_set_name() {
  switch (instruction_set()) {
    case InstructionSet::baseline:
      return "baseline";
    case InstructionSet::avx2:
      return "avx2";
    case InstructionSet::avx512:
    case InstructionSet::avx512bf16:
      break;
  }
  return "avx512";
}
bool uses_pairs() { return best().uses_pairs; }
bool limits_onednn() { return best().limits_onednn; }
Amx wanted_amx() { return best().amx; }

}  // namespace ddp::lanes
