#include "backend/cpu/lanes_kernels.h"

#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace ddp::lanes {

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

const Kernels& chosen() {
  const char* variable = std::getenv("DDP_INSTRUCTION_SET");
  const std::string_view wanted = variable != nullptr ? variable : "";
  const bool has_avx512 = __builtin_cpu_supports("avx512f") != 0;
  const bool has_avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  check(wanted.empty() || wanted == "avx512" || wanted == "avx2" || wanted == "baseline", ExitCode::usage,
        "DDP_INSTRUCTION_SET is '{}'; it must be avx512, avx2 or baseline", wanted);
  check((wanted != "avx512" || has_avx512) && (wanted != "avx2" || has_avx2), ExitCode::preflight,
        "DDP_INSTRUCTION_SET selects {}, which this processor does not support", wanted);
  if (wanted == "avx512" || (wanted.empty() && has_avx512)) return avx512::table();
  if (wanted == "avx2" || (wanted.empty() && has_avx2)) return avx2::table();
  return baseline::table();
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& best = chosen();
  return best;
}

}  // namespace ddp::lanes
