// Normalisation within samples on the CPU (backend/ops/sample_norm.h), in any layout.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/device/planes.h"
#include "backend/cpu/isa/instruction_set.h"
#include "backend/cpu/norm/norm.h"
#include "backend/cpu/norm/sample_norm_kernels.h"
#include "backend/workspace.h"

LANES_TABLE(SampleNormTable, sample_norm_kernels)

namespace ddp {
namespace {

// Sets that are computed together, at most; their sums fit into the first-level cache.
constexpr std::int64_t kTile = 256;

// One or more sets that a thread computes: `parts` tasks of the same sets, whose values lie `part_step` apart and have
// consecutive weights.
struct SetTile {
  std::int64_t first_value = 0;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::int64_t stride = 0;
  std::int64_t parts = 1;
  std::int64_t part_step = 0;
  std::int64_t first_set = 0;
  std::int64_t sets = 1;
  std::int64_t first_channel = 0;
  std::int64_t channels = 0;
};

// All sets are divided into tiles, and tiles into units, whose sums of the parameters' gradients are added in order.
class SampleNorm final : public Op {
 public:
  SampleNorm(const SampleNormSpec& spec, Layout layout)
      : spec_(spec),
        layout_(layout),
        channels_(spec.shape.channels),
        plane_(spec.shape.height * spec.shape.width),
        contiguous_(layout == Layout::nhwc || (layout == Layout::plain && plane_ == 1)) {
    const lanes::SampleNormTable& table = lanes::sample_norm_kernels();
    const bool over_channels = spec.over == NormOver::channels;
    if (over_channels) {
      kernels_ = contiguous_ ? &table.row_column : &table.column_row;
    } else if (layout == Layout::lanes16) {
      kernels_ = &table.column_one;
    } else {
      kernels_ = contiguous_ ? &table.one_column : &table.one_row;
    }
    const std::int64_t all = tiles(spec.batch);
    tiles_per_unit_ = over_channels ? std::max<std::int64_t>(1, all / kMostUnits) : spec.groups;
    partial_ = workspace_.add<double>((all + tiles_per_unit_ - 1) / tiles_per_unit_ * 2 * channels_);
    means_ = workspace_.add<float>(2 * stored_sets());
  }

  OpTraits traits() const override {
    return {.saved_bytes = static_cast<std::size_t>(2 * stored_sets()) * sizeof(float),
            .workspace_bytes = workspace_.bytes(),
            .backward_reads_inputs = {0}};
  }

  void forward(const ForwardArguments& a) override {
    // An evaluation may come without saved memory.
    float* means = a.training ? static_cast<float*>(static_cast<void*>(a.saved)) : means_.in(a.workspace);
    const std::int64_t all = tiles(computed_samples(a.active, spec_.batch, layout_));
#pragma omp parallel for schedule(static)
    for (std::int64_t t = 0; t < all; ++t) {
      const SetTile tile = tile_at(t);
      Sums sums{};
      each_part(tile, a.x().fp32(), means, a.parameters, [&](lanes::SampleNormTask& task) {
        kernels_->moments(task, {sums.first.data(), sums.second.data()});
      });
      for (std::int64_t s = 0; s < tile.sets; ++s) put_mean(sums, s, means, tile.first_set + s);
      each_part(tile, a.x().fp32(), means, a.parameters, [&](lanes::SampleNormTask& task) {
        task.y = a.y.fp32() + (task.x - a.x().fp32());
        kernels_->forward(task);
      });
    }
  }

  void backward(const BackwardArguments& a) override {
    const auto* means = static_cast<const float*>(static_cast<const void*>(a.saved));
    // dy is zero beyond the active samples, and so is what follows from it.
    const std::int64_t all = tiles(computed_samples(a.active, spec_.batch, layout_));
    const std::int64_t units = (all + tiles_per_unit_ - 1) / tiles_per_unit_;
    double* partial = partial_.in(a.workspace);
    std::fill_n(partial, units * 2 * channels_, 0.0);
#pragma omp parallel for schedule(static)
    for (std::int64_t unit = 0; unit < units; ++unit) {
      const std::int64_t last = std::min(all, (unit + 1) * tiles_per_unit_);
      for (std::int64_t t = unit * tiles_per_unit_; t < last; ++t) {
        backward_tile(tile_at(t), a, means, partial + unit * 2 * channels_);
      }
    }
    clear_rest(a.dx().fp32(), a.active, spec_.batch, spec_.shape, layout_);
    // In the order of the units, whatever the number of threads.
#pragma omp parallel for schedule(static)
    for (std::int64_t c = 0; c < channels_; ++c) {
      double bias = 0;
      double weight = 0;
      for (std::int64_t unit = 0; unit < units; ++unit) {
        bias += partial[unit * 2 * channels_ + c];
        weight += partial[(unit * 2 + 1) * channels_ + c];
      }
      a.parameter_gradients[0][c] = static_cast<float>(weight);
      a.parameter_gradients[1][c] = static_cast<float>(bias);
    }
  }

 private:
  static constexpr std::int64_t kMostUnits = 64;

  struct Sums {
    std::array<double, kTile> first;
    std::array<double, kTile> second;
  };

  bool lanes16() const { return layout_ == Layout::lanes16; }
  // Samples, or blocks of 16.
  std::int64_t items(std::int64_t samples) const { return lanes16() ? (samples + kLanes - 1) / kLanes : samples; }
  std::int64_t lanes() const { return lanes16() ? kLanes : 1; }
  std::int64_t stored_sets() const { return items(spec_.batch) * lanes() * spec_.sets(); }

  std::int64_t tiles(std::int64_t samples) const {
    if (spec_.over == NormOver::groups) return items(samples) * spec_.groups;
    if (contiguous_) return (samples * plane_ + kTile - 1) / kTile;
    return items(samples) * tiles_per_item();
  }
  std::int64_t tiles_per_item() const { return (plane_ * lanes() + kTile - 1) / kTile; }

  SetTile tile_at(std::int64_t index) const {
    SetTile tile;
    tile.channels = channels_;
    if (spec_.over == NormOver::groups) return group_at(index);
    if (contiguous_) {
      // Each row is a set.
      tile.first_set = index * kTile;
      tile.first_value = tile.first_set * channels_;
      tile.rows = tile.sets = std::min(kTile, spec_.batch * plane_ - tile.first_set);
      tile.width = tile.stride = channels_;
      return tile;
    }
    // Each column is a set.
    const std::int64_t item = index / tiles_per_item();
    const std::int64_t first = index % tiles_per_item() * kTile;
    tile.stride = plane_ * lanes();
    tile.rows = channels_;
    tile.width = tile.sets = std::min(kTile, tile.stride - first);
    tile.first_value = item * channels_ * tile.stride + first;
    tile.first_set = item * tile.stride + first;
    return tile;
  }

  SetTile group_at(std::int64_t index) const {
    SetTile tile;
    tile.channels = channels_ / spec_.groups;
    tile.first_channel = index % spec_.groups * tile.channels;
    const std::int64_t item = index / spec_.groups;
    tile.first_set = index * lanes();
    tile.sets = lanes();
    tile.rows = contiguous_ || lanes16() ? plane_ : tile.channels;
    tile.width = lanes16() ? kLanes : contiguous_ ? tile.channels : plane_;
    tile.stride = contiguous_ ? channels_ : tile.width;
    tile.first_value = item * channels_ * plane_ * lanes() + tile.first_channel * (contiguous_ ? 1 : plane_ * lanes());
    if (lanes16()) {
      tile.parts = tile.channels;
      tile.part_step = plane_ * kLanes;
    }
    return tile;
  }

  template <class F>
  void each_part(const SetTile& tile, const float* x, const float* means, const ArgumentList<const float*>& parameters,
                 F f) const {
    lanes::SampleNormTask task{};
    task.rows = tile.rows;
    task.width = tile.width;
    task.stride = tile.stride;
    task.mean = means + tile.first_set;
    task.inverse = means + stored_sets() + tile.first_set;
    for (std::int64_t part = 0; part < tile.parts; ++part) {
      task.x = x + tile.first_value + part * tile.part_step;
      task.weight = parameters[0] + tile.first_channel + part;
      task.bias = parameters[1] + tile.first_channel + part;
      f(task);
    }
  }

  void put_mean(const Sums& sums, std::int64_t from, float* means, std::int64_t set) const {
    const auto at = static_cast<std::size_t>(from);
    const auto count = static_cast<double>(spec_.set_elements());
    const double mean = sums.first[at] / count;
    const double variance = std::max(0.0, sums.second[at] / count - mean * mean);
    means[set] = static_cast<float>(mean);
    means[stored_sets() + set] = static_cast<float>(1 / std::sqrt(variance + static_cast<double>(spec_.epsilon)));
  }

  void backward_tile(const SetTile& tile, const BackwardArguments& a, const float* means, double* partial) const {
    Sums sums{};
    double* bias_sums = partial + tile.first_channel;
    const auto with_dy = [&](const lanes::SampleNormTask& task) { return a.dy.fp32() + (task.x - a.x().fp32()); };
    each_part(tile, a.x().fp32(), means, a.parameters, [&](lanes::SampleNormTask& task) {
      task.dy = with_dy(task);
      double* own = bias_sums + (task.weight - a.parameters[0] - tile.first_channel);
      kernels_->products(task, {sums.first.data(), sums.second.data()}, {own, own + channels_});
    });
    std::array<float, kTile> offset;
    std::array<float, kTile> slope;
    for (std::size_t s = 0; s < static_cast<std::size_t>(tile.sets); ++s) {
      const auto inverse = static_cast<double>(means[stored_sets() + tile.first_set + static_cast<std::int64_t>(s)]);
      const auto count = static_cast<double>(spec_.set_elements());
      offset[s] = static_cast<float>(sums.first[s] / count);
      slope[s] = static_cast<float>(sums.second[s] / count * inverse * inverse);
    }
    each_part(tile, a.x().fp32(), means, a.parameters, [&](lanes::SampleNormTask& task) {
      task.dy = with_dy(task);
      task.dx = a.dx().fp32() + (task.x - a.x().fp32());
      task.offset = offset.data();
      task.slope = slope.data();
      kernels_->backward(task);
    });
  }

  SampleNormSpec spec_;
  Layout layout_;
  std::int64_t channels_;
  std::int64_t plane_;
  bool contiguous_;  // whether the channels of a position are
  const lanes::SampleNormKernels* kernels_ = nullptr;
  std::int64_t tiles_per_unit_ = 1;
  Workspace workspace_;
  Workspace::Part<double> partial_;
  Workspace::Part<float> means_;
};

}  // namespace

std::unique_ptr<Op> make_cpu_op(const SampleNormSpec& spec, Layout layout) {
  return std::make_unique<SampleNorm>(spec, layout);
}

}  // namespace ddp
