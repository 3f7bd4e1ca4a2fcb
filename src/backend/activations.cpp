#include "backend/activations.h"

#include "base/error.h"
#include "base/types/half.h"

namespace ddp {

void wrong_element(Element element) {
  throw Error(ExitCode::internal,
              fmt::format("internal error: activations in {} were read as another type", to_string(element)));
}

float value_at(const void* values, Element element, std::size_t index) {
  switch (element) {
    case Element::fp32:
      return static_cast<const float*>(values)[index];
    case Element::bf16:
      return bfloat16_to_float(static_cast<const Bf16*>(values)[index].bits);
    case Element::fp16:
      break;
  }
  return half_to_float(static_cast<const Fp16*>(values)[index].bits);
}

void set_value(void* values, Element element, std::size_t index, float value) {
  switch (element) {
    case Element::fp32:
      static_cast<float*>(values)[index] = value;
      return;
    case Element::bf16:
      static_cast<Bf16*>(values)[index].bits = float_to_bfloat16(value);
      return;
    case Element::fp16:
      break;
  }
  static_cast<Fp16*>(values)[index].bits = float_to_half(value);
}

}  // namespace ddp
