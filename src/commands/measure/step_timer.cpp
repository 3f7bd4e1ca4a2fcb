#include "commands/measure/step_timer.h"

#include <algorithm>
#include <span>

#include "base/clock.h"
#include "data/pipeline/sample_key.h"
#include "job/joint_error.h"

namespace ddp {
namespace {

constexpr std::int64_t kFirstSteps = 3;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

HeldBatch::HeldBatch(const PreparedRun& prepared) {
  const Dataset& data = prepared.inputs.train();
  const BatchPlan& batch = prepared.inputs.batch;
  const std::optional<Augmentation>& edits = prepared.inputs.images.edits;
  const Range samples = batch.rank_samples(prepared.job.rank(), batch.global_batch);
  const std::size_t bytes = data.shape().size();
  pixels_ = prepared.backend->memory().allocate_for_transfer(static_cast<std::size_t>(samples.size()) * bytes,
                                                             "the images of a batch");
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    const std::span<std::uint8_t> pixels(pixels_.at<std::uint8_t>(static_cast<std::size_t>(i) * bytes), bytes);
    labels_.push_back(data.label(data.read_plain(samples.begin + i, pixels)));
    indices_.push_back(static_cast<std::uint32_t>(samples.begin + i));
    keys_.push_back(sample_key(prepared.job.options.optimizer.seed, 0, indices_.back()));
    if (edits) edits_.push_back(edit_of(*edits, data.shape(), keys_.back()));
  }
}

StepTimer::StepTimer(const MpiSession& session, Communicator& communicator, Trainer& trainer, Batch batch,
                     const TimerSettings& settings)
    : session_(session),
      communicator_(communicator),
      trainer_(trainer),
      batch_(batch),
      settings_(settings),
      expected_(run(kFirstSteps)) {
  (void)run(steps_in(settings_.warm_up));
}

void StepTimer::measure(int stretches) {
  const PhaseTotals before = trainer_.phase_totals();
  std::vector<double> seconds;
  std::vector<double> processor;
  steps_ = steps_in(settings_.stretch) * stretches;
  for (int i = 0; i < stretches; ++i) {
    const std::int64_t steps = steps_in(settings_.stretch);
    const double begin = process_cpu_seconds();
    seconds.push_back(run(steps));
    processor.push_back((process_cpu_seconds() - begin) / static_cast<double>(steps));
  }
  step_seconds_ = median(seconds);
  processor_seconds_ = median(processor);
  phases_ = trainer_.phase_totals();
  phases_ -= before;
}

std::int64_t StepTimer::steps_in(double seconds) const {
  return std::max<std::int64_t>(2, static_cast<std::int64_t>(seconds / expected_));
}

// Seconds per step.
double StepTimer::run(std::int64_t count) {
  communicator_.barrier();
  const double begin = now();
  // Steps without an update are cheaper.
  if (!trainer_.steps_on(batch_, count)) {
    throw JointError(ExitCode::non_finite,
                     "the steps produced non-finite values, so their time is meaningless; lower --lr",
                     session_.rank() == 0);
  }
  communicator_.barrier();
  double seconds = now() - begin;
  communicator_.all_reduce(std::span(&seconds, 1), ReduceOp::max);
  return seconds / static_cast<double>(count);
}

}  // namespace ddp
