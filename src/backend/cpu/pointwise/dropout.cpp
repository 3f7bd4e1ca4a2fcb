#include <algorithm>
#include <array>
#include <cstring>

#include "backend/arithmetic.h"
#include "backend/cpu/pointwise/pointwise.h"

namespace ddp {
namespace {

class Dropout final : public Op {
 public:
  Dropout(const DropoutSpec& spec, Layout layout) : spec_(spec), layout_(layout) {}

  OpTraits traits() const override { return {.in_place = true}; }

  void forward(const ForwardArguments& a) override {
    if (a.training) {
      drop(a.x().fp32(), a.keys, a.active, a.y.fp32());
    } else if (a.x().fp32() != a.y.fp32()) {
      const std::int64_t count = stored_elements(a.active, spec_.shape, layout_);
      std::memcpy(a.y.fp32(), a.x().fp32(), static_cast<std::size_t>(count) * sizeof(float));
    }
    clear_samples(a.y.fp32(), a.active);
  }
  void backward(const BackwardArguments& a) override {
    drop(a.dy.fp32(), a.keys, a.active, a.dx().fp32());
    clear_samples(a.dx().fp32(), a.active);
  }

 private:
  // Only whole samples, or blocks of them, can be cleared at once; drop() handles the rest of a block.
  void clear_samples(float* data, std::int64_t active) const {
    std::fill(data + stored_elements(active, spec_.shape, layout_),
              data + stored_elements(spec_.batch, spec_.shape, layout_), 0.0F);
  }

  // Whether a unit of the sample with this key is kept.
  bool keeps(std::uint64_t key, std::int64_t unit) const {
    return dropout_keeps(key, spec_.stream, static_cast<std::uint32_t>(unit), spec_.rate);
  }

  void drop(const float* from, const std::uint64_t* keys, std::int64_t active, float* to) const {
    if (layout_ == Layout::lanes16) {
      drop_blocks(from, keys, active, to);
    } else if (layout_ == Layout::nhwc && spec_.unit != DropoutUnit::sample) {
      drop_positions(from, keys, active, to);
    } else {
      drop_samples(from, keys, active, to);
    }
  }

  void drop_blocks(const float* from, const std::uint64_t* keys, std::int64_t active, float* to) const {
    const std::int64_t together = spec_.unit_elements();
    const std::int64_t units = spec_.shape.elements() / together;
    const float scale = dropout_scale(spec_.rate);
#pragma omp parallel for schedule(static)
    for (std::int64_t i = 0; i < (active + kLanes - 1) / kLanes * units; ++i) {
      const std::int64_t first = i / units * kLanes;
      std::array<std::int32_t, kLanes> kept;
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        // Samples beyond the active ones have no key.
        const bool matters = first + lane < active;
        kept[static_cast<std::size_t>(lane)] = matters && keeps(keys[first + lane], i % units) ? 1 : 0;
      }
      for (std::int64_t at = i * together * kLanes; at < (i + 1) * together * kLanes; at += kLanes) {
        const float* const x = from + at;
        float* const y = to + at;
#pragma omp simd
        for (std::size_t lane = 0; lane < kept.size(); ++lane) y[lane] = kept[lane] != 0 ? scale * x[lane] : 0;
      }
    }
  }

  // Units whose elements are contiguous.
  void drop_samples(const float* from, const std::uint64_t* keys, std::int64_t active, float* to) const {
    const std::int64_t together = spec_.unit_elements();
    const std::int64_t units = spec_.shape.elements() / together;
    const float scale = dropout_scale(spec_.rate);
#pragma omp parallel for schedule(static)
    for (std::int64_t n = 0; n < active; ++n) {
      for (std::int64_t unit = 0; unit < units; ++unit) {
        const std::int64_t begin = (n * units + unit) * together;
        const bool kept = keeps(keys[n], unit);
        for (std::int64_t i = begin; i < begin + together; ++i) to[i] = kept ? scale * from[i] : 0;
      }
    }
  }

  // Elements or channels in nhwc.
  void drop_positions(const float* from, const std::uint64_t* keys, std::int64_t active, float* to) const {
    constexpr std::int64_t kChannels = 64;
    const std::int64_t plane = spec_.shape.height * spec_.shape.width;
    const std::int64_t channels = spec_.shape.channels;
    const bool whole = spec_.unit == DropoutUnit::channel;
    const float scale = dropout_scale(spec_.rate);
#pragma omp parallel for schedule(static)
    for (std::int64_t n = 0; n < active; ++n) {
      for (std::int64_t first = 0; first < channels; first += kChannels) {
        const std::int64_t some = std::min(kChannels, channels - first);
        std::array<std::int32_t, kChannels> kept;
        for (std::int64_t position = 0; position < plane; ++position) {
          for (std::int64_t c = 0; c < some && (position == 0 || !whole); ++c) {
            const std::int64_t unit = whole ? first + c : (first + c) * plane + position;
            kept[static_cast<std::size_t>(c)] = keeps(keys[n], unit) ? 1 : 0;
          }
          const std::int64_t at = (n * plane + position) * channels + first;
#pragma omp simd
          for (std::int64_t c = 0; c < some; ++c) {
            to[at + c] = kept[static_cast<std::size_t>(c)] != 0 ? scale * from[at + c] : 0;
          }
        }
      }
    }
  }

  DropoutSpec spec_;
  Layout layout_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const DropoutSpec& spec, Layout layout) {
  return std::make_unique<Dropout>(spec, layout);
}

}  // namespace ddp
