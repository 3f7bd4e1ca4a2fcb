#include "backend/cpu/lanes_kernels.h"

#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace ddp::lanes {

namespace avx512bf16 {
const Kernels& table();
}
namespace avx512 {
const Kernels& table();
}
namespace avx2 {
const Kernels& table();
}
namespace baseline {
const Kernels& table();
}

namespace {

struct Chosen {
  const Kernels* kernels;
  bool uses_pairs;
};

Chosen chosen() {
  const char* variable = std::getenv("DDP_INSTRUCTION_SET");
  std::string_view wanted = variable != nullptr ? variable : "";
  constexpr std::string_view kPairs = "+bf16";
  const bool model = wanted.ends_with(kPairs);
  if (model) wanted.remove_suffix(kPairs.size());
  const bool has_avx512 = __builtin_cpu_supports("avx512f") != 0;
  const bool has_avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  check((wanted.empty() && !model) || wanted == "avx512" || wanted == "avx2" || wanted == "baseline", ExitCode::usage,
        "DDP_INSTRUCTION_SET is '{}'; it must be avx512, avx2 or baseline, and may end in +bf16", variable);
  check((wanted != "avx512" || has_avx512) && (wanted != "avx2" || has_avx2), ExitCode::preflight,
        "DDP_INSTRUCTION_SET selects {}, which this processor does not support", wanted);
  if (wanted == "avx512" || (wanted.empty() && has_avx512)) {
    // The same kernels, with the same bits, besides those with pairs.
    if (__builtin_cpu_supports("avx512bf16") != 0) return {&avx512bf16::table(), true};
    return {&avx512::table(), model};
  }
  return {wanted == "avx2" || (wanted.empty() && has_avx2) ? &avx2::table() : &baseline::table(), model};
}

const Chosen& best() {
  static const Chosen found = chosen();
  return found;
}

}  // namespace

const Kernels& kernels() { return *best().kernels; }
bool uses_pairs() { return best().uses_pairs; }

}  // namespace ddp::lanes
