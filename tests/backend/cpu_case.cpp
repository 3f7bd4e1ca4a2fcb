#include "backend/backend_case.h"

namespace ddp {

std::vector<BackendCase> backend_cases() { return {{"cpu", make_cpu_backend}}; }

}  // namespace ddp
