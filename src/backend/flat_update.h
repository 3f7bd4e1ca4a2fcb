// The update of flat buffers by an optimizer: what Backend::update() is given. The arithmetic itself stands in
// backend/update_rules.h.
//
//   const UpdateTables tables = cut_into_chunks({{0, 180, 1, 1}, {180, 20, 2, 0}});   // weights, and biases
//   UpdateArguments arguments;
//   arguments.settings = {.rule = UpdateRule::adam, .weight_decay = 0.01, .decoupled = true};
//   ...
//   backend.update(arguments);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/host_device.h"

namespace ddp {

enum class UpdateRule : std::uint8_t { sgd, adam, rmsprop, lars, lamb };

// What makes an optimizer; the same for a whole run. Which rule reads what stands in backend/update_rules.h.
struct UpdateSettings {
  UpdateRule rule = UpdateRule::sgd;
  double momentum = 0;  // sgd, rmsprop and lars; where it changes from step to step, any above 0
  bool nesterov = false;
  double weight_decay = 0;
  bool decoupled = false;  // the decay is not part of the gradient; lars and lamb have one form each
  double beta1 = 0.9;      // adam and lamb
  double beta2 = 0.999;
  double epsilon = 1e-8;     // adam, lamb and rmsprop
  double rho = 0.99;         // rmsprop
  bool keras = false;        // rmsprop: in Keras' form in place of PyTorch's
  double trust = 0.001;      // lars
  double clip_norm = 0;      // the most that the gradient's norm may be; 0: anything
  double clip_value = 0;     // the most that each of its values may be, of either sign; 0: anything. Not for lars
  double average_decay = 0;  // of the moving average of the weights; 0: there is none
  bool average_warmup = false;

  // Buffers that the rule keeps from step to step, beside the average.
  DDP_HOST_DEVICE bool has_first() const {
    return rule == UpdateRule::adam || rule == UpdateRule::lamb || momentum > 0;
  }
  DDP_HOST_DEVICE bool has_second() const { return rule != UpdateRule::sgd && rule != UpdateRule::lars; }
  DDP_HOST_DEVICE bool has_average() const { return average_decay > 0; }
  // The one of momentum and beta1 that the rule reads.
  DDP_HOST_DEVICE double own_momentum() const {
    return rule == UpdateRule::adam || rule == UpdateRule::lamb ? beta1 : momentum;
  }
  // The learning rate of each tensor follows from norms.
  DDP_HOST_DEVICE bool layerwise() const { return rule == UpdateRule::lars || rule == UpdateRule::lamb; }
};

// A run of a flat buffer that is updated in the same way: as a rule one tensor.
struct ParameterSegment {
  std::int64_t offset = 0;
  std::int64_t count = 0;
  float lr_scale = 1;     // factor of the learning rate
  float decay_scale = 1;  // factor of the weight decay
  bool adapt = true;      // lars and lamb: the learning rate follows from this segment's norms
};

// Sums over the elements are taken chunk by chunk and then over the chunks, so that their order depends on shapes
// alone.
inline constexpr std::int64_t kUpdateChunk = 4096;
struct UpdateChunk {
  std::int64_t begin = 0;
  std::int32_t count = 0;    // at most kUpdateChunk
  std::int32_t segment = 0;  // index of the one that it is part of
  float lr_scale = 1;
  float decay_scale = 1;
};
struct ChunksOfSegment {
  std::int64_t first = 0;
  std::int64_t count = 0;
  float decay_scale = 1;
  bool adapt = true;
};
struct UpdateTables {
  std::vector<UpdateChunk> chunks;
  std::vector<ChunksOfSegment> segments;
  bool uniform = true;  // all segments have the same scales
};
// The segments must cover a buffer from 0 on, one after the other.
UpdateTables cut_into_chunks(std::span<const ParameterSegment> segments);

// What an update computes once for all elements; in the device's memory.
struct StepNumbers {
  double lr = 0;
  double momentum = 0;        // or beta1
  double gradient_scale = 1;  // below 1 where the gradient is clipped
  double correction1 = 1;     // of the biases of adam's and lamb's averages
  double correction2 = 1;
  double average_keep = 0;  // the moving average's decay in this step
  bool average_starts = false;
};

// All pointers are device memory. What changes from step to step is read from there when the work runs, so that the
// work can be recorded once.
struct UpdateArguments {
  UpdateSettings settings;
  float* weights = nullptr;
  const float* gradient = nullptr;
  float* first = nullptr;    // momentum, or the average of gradients; null where the rule has none
  float* second = nullptr;   // the average of squared gradients; null where the rule has none
  float* average = nullptr;  // of the weights; null: none
  std::int64_t count = 0;    // elements of each

  const UpdateChunk* chunks = nullptr;
  std::int64_t chunk_count = 0;
  const ChunksOfSegment* segments = nullptr;
  std::int64_t segment_count = 0;
  bool uniform = true;
  float lr_scale = 1;  // where uniform, those of all segments
  float decay_scale = 1;

  // Scratch of the update.
  StepNumbers* numbers = nullptr;
  double* sums = nullptr;    // two of each chunk
  double* ratios = nullptr;  // one of each segment

  const double* lr = nullptr;        // one value
  const double* momentum = nullptr;  // one value: what settings.own_momentum() is in this update
  const double* step = nullptr;      // one value: the number of this update, 1, 2, ...
  const double* skip = nullptr;      // one value: nothing is updated where it is not 0
};

}  // namespace ddp
