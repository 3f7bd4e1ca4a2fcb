#include <algorithm>
#include <cstring>

#include "backend/arithmetic.h"
#include "backend/cpu/operators.h"

namespace ddp {
namespace {

class Dropout final : public Op {
 public:
  Dropout(const DropoutSpec& spec, Layout layout) : spec_(spec), layout_(layout) {}

  bool in_place() const override { return true; }

  void forward(const ForwardArguments& a) override {
    if (a.training) {
      drop(a.x.fp32(), a.keys, a.active, a.y.fp32());
    } else if (a.x.fp32() != a.y.fp32()) {
      const std::int64_t count = stored_elements(a.active, spec_.shape, layout_);
      std::memcpy(a.y.fp32(), a.x.fp32(), static_cast<std::size_t>(count) * sizeof(float));
    }
    clear_samples(a.y.fp32(), a.active);
  }
  void backward(const BackwardArguments& a) override {
    drop(a.dy.fp32(), a.keys, a.active, a.dx.fp32());
    clear_samples(a.dx.fp32(), a.active);
  }

 private:
  // Only whole samples, or blocks of them, can be cleared at once; drop() handles the rest of a block.
  void clear_samples(float* data, std::int64_t active) const {
    std::fill(data + stored_elements(active, spec_.shape, layout_),
              data + stored_elements(spec_.batch, spec_.shape, layout_), 0.0F);
  }

  void drop(const float* from, const std::uint64_t* keys, std::int64_t active, float* to) const {
    const std::int64_t elements = spec_.shape.elements();
    const float scale = dropout_scale(spec_.rate);
    const auto together = static_cast<std::uint32_t>(spec_.unit_elements());
    const auto one = [&](std::uint64_t key, std::int64_t element, float value) {
      // Divides only where it must: the division takes longer than the rest.
      auto unit = static_cast<std::uint32_t>(element);
      if (together > 1) unit /= together;
      return dropout_keeps(key, spec_.stream, unit, spec_.rate) ? scale * value : 0.0F;
    };
    if (layout_ == Layout::lanes16) {
#pragma omp parallel for schedule(static)
      for (std::int64_t i = 0; i < (active + kLanes - 1) / kLanes * elements; ++i) {
        const std::int64_t first = i / elements * kLanes;
        for (std::int64_t lane = 0; lane < kLanes; ++lane) {
          // Samples beyond the active ones have no key.
          const bool matters = first + lane < active;
          to[i * kLanes + lane] = matters ? one(keys[first + lane], i % elements, from[i * kLanes + lane]) : 0.0F;
        }
      }
      return;
    }
    const std::int64_t plane = spec_.shape.height * spec_.shape.width;
    const std::int64_t channels = spec_.shape.channels;
#pragma omp parallel for schedule(static)
    for (std::int64_t n = 0; n < active; ++n) {
      for (std::int64_t i = 0; i < elements; ++i) {
        const std::int64_t place = layout_ == Layout::nhwc ? i % channels * plane + i / channels : i;
        to[n * elements + i] = one(keys[n], place, from[n * elements + i]);
      }
    }
  }

  DropoutSpec spec_;
  Layout layout_;
};

}  // namespace

std::unique_ptr<Op> make_dropout(const DropoutSpec& spec, Layout layout) {
  return std::make_unique<Dropout>(spec, layout);
}

}  // namespace ddp
