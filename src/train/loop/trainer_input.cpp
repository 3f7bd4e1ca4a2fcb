// What the steps of a trainer read.
#include <algorithm>

#include "base/error.h"
#include "train/loop/trainer.h"

namespace ddp {

Trainer::Input::Input(const PreparedRun& prepared, const TrainingImages& images, const TrainingRun& run,
                      std::int64_t steps, const BatchStage& stage)
    : at_a_time(images.resident == nullptr ? 1 : prepared.state.batch.steps_per_epoch),
      begin(run.step()),
      end(run.step() + steps),
      aligned(images.resident == nullptr ? begin : begin - run.cursor().step),
      stream(prepared.state.batch, prepared.plan.parallelism.place.replica, prepared.inputs.train().size(),
             {.seed = prepared.job.options.optimizer.seed,
              .alternating = prepared.job.options.data.random_flip == FlipMode::alternate,
              .copies = prepared.job.options.data.repeat_augment,
              .at_a_time = at_a_time},
             run.cursor(), steps),
      loader(*images.data,
             {.max_batch = at_a_time * prepared.state.batch.per_rank,
              .workers = prepared.job.options.data.workers,
              // One whole epoch ahead is enough.
              .prefetch = images.resident == nullptr ? prepared.job.options.data.prefetch : 1,
              .read_pixels = images.resident == nullptr && prepared.plan.parallelism.place.first(),
              .training = true,
              .mixup = prepared.plan.parallelism.place.first() ? prepared.job.options.data.mixup : 0,
              .cutmix = prepared.plan.parallelism.place.first() ? prepared.job.options.data.cutmix : 0,
              .edits = images.edits,
              .mixes_by_batch = prepared.job.options.data.mixup_per == MixPer::batch,
              .held = stage.batches_in_use(),
              .allocate = stage.pixel_allocator()},
             [this] { return stream.next(); }) {}

std::int64_t Trainer::Input::first_step_of(std::int64_t batch) const {
  return batch == 0 ? begin : std::min(end, aligned + batch * at_a_time);
}

LoaderCounts Trainer::Input::counts() const {
  LoaderCounts counts = loader_counts(loader.statistics());
  const auto steps = static_cast<double>(first_step_of(taken) - begin);
  counts.ready *= steps / std::max(1.0, counts.batches);
  counts.batches = steps;
  return counts;
}

std::vector<LoadSpan> Trainer::last_loads() const {
  std::vector<LoadSpan> loads;
  if (!input_) return loads;
  for (const LoaderSpan& span : input_->loader.last_spans()) {
    loads.push_back({span.worker, input_->first_step_of(span.batch) + 1, span.begin, span.end});
  }
  return loads;
}

// The batches from the run's position on.
void Trainer::read_from_here() {
  input_.reset();  // before the next one allocates memory
  input_ = std::make_unique<Input>(prepared_, images_, run_, steps_with_these_images(), stepper_->stage);
  recorder_.follow(stepper_->reducer);
  loaded_to_ = run_.step();
}

Batch Trainer::next_batch() {
  const std::optional<Batch> batch = input_->loader.next();
  DDP_ASSERT(batch.has_value());
  ++input_->taken;
  return *batch;
}

// The batch of the step at the run's position, of so many samples.
Batch Trainer::read_again(std::int64_t samples) {
  read_from_here();
  const BatchPlan& plan = prepared_.state.batch;
  return part_of(next_batch(), 0, plan.rank_samples(prepared_.plan.parallelism.place.replica, samples).size());
}

// Gives the device the steps from here to the end of the epoch. None is in flight, because epochs end with a wait.
void Trainer::load_steps() {
  if (input_->first_step_of(input_->taken) != run_.step()) read_from_here();
  const Batch batches = next_batch();
  loaded_to_ = input_->first_step_of(input_->taken);
  std::vector<StepInput> inputs;
  for (std::int64_t step = run_.step(); step < loaded_to_; ++step) inputs.push_back(input_of(step));
  stepper_->step.load(batches, std::move(inputs));
}

// The input of a step of the cursor's epoch.
StepInput Trainer::input_of(std::int64_t step) const {
  StepControl control = schedule_.control(step);
  control.loss_scale = run_.loss_scale().at(step);
  return {control, prepared_.state.batch.batch_of_step(run_.cursor().step + step - run_.step()), {}};
}

// From the cursor on.
std::int64_t Trainer::steps_with_these_images() const {
  const std::int64_t epochs = prepared_.inputs.sizes.epochs_from(run_.cursor().epoch);
  const std::int64_t all = std::max<std::int64_t>(0, total_steps_ - run_.step());
  if (epochs == 0) return all;
  return std::min(all, epochs * prepared_.state.batch.steps_per_epoch - run_.cursor().step);
}

}  // namespace ddp
