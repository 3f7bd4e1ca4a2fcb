#include "train/step/batch_buffers.h"

namespace ddp {

// Only a device with a queue of its own computes while the host goes on. Sums by messages make the host wait in each
// step, as do the stages of a pipeline, and shards are only moved between steps.
std::size_t steps_in_flight(const Options& options, const StepDevice& device) {
  constexpr std::size_t kOnGpu = 4;
  if (options.batch.balance || device.pipelined) return 1;
  if (options.device.steps_in_flight > 0) return static_cast<std::size_t>(options.device.steps_in_flight);
  return device.on_gpu && device.recordable_sums ? kOnGpu : 1;
}

// Only the ends of a pipeline see images and labels.
StageConfig batch_buffers(const Options& options, const BatchPlan& plan, const PipelinePlace& place,
                          const TrainingImages& images, std::size_t in_flight) {
  const bool resident = images.resident != nullptr;
  return {.image_bytes = place.first() ? images.data->shape().size() : 0,
          .max_samples = plan.per_rank,
          .resident = images.resident,
          .mixed = mixes(options.data) && (place.first() || place.last()),
          .edited = images.edits != nullptr,
          .buffers = resident ? 1 : in_flight,
          .steps = resident ? static_cast<std::size_t>(plan.steps_per_epoch) : 0};
}

}  // namespace ddp
