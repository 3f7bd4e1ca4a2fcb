// Names that the examples in the headers of backend/update use.
#pragma once

#include "backend/backend.h"

namespace ddp::backend_update_examples {

extern Backend& backend;
extern const UpdateArguments arguments;
extern const std::size_t count;
extern float *sum, *place;
extern const float *addend, *table;
extern TableCursor* cursor;

}  // namespace ddp::backend_update_examples
