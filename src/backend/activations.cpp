#include "backend/activations.h"

#include "base/error.h"

namespace ddp {

void wrong_element(Element element) {
  throw Error(ExitCode::internal, fmt::format("internal error: activations in {} were read as {}", to_string(element),
                                              element == Element::fp32 ? "bf16" : "fp32"));
}

}  // namespace ddp
