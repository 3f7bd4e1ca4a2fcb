#include "backend/backend_case.h"

namespace ddp {

// Results in bf16 are rounded to 8 bits, so that they are up to 2^-8 of their size off, and sums of them more; in fp16 to 11.
std::vector<BackendCase> backend_cases() {
  return {{"cpu", [] { return make_cpu_backend(); }},
          {"cpu_bf16", [] { return make_cpu_backend(Precision::bf16); }, 1e-2},
          {"cpu_fp16", [] { return make_cpu_backend(Precision::fp16); }, 2e-3}};
}

}  // namespace ddp
