// Names that the examples in the headers of backend/ops use.
#pragma once

#include "backend/backend.h"

namespace ddp::backend_ops_examples {

extern Backend& backend;

}  // namespace ddp::backend_ops_examples
