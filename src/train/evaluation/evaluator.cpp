#include "train/evaluation/evaluator.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/partition.h"
#include "base/status/heartbeat.h"

namespace ddp {
namespace {

std::vector<std::uint32_t> all_of(std::int64_t samples) {
  std::vector<std::uint32_t> indices(static_cast<std::size_t>(samples));
  std::iota(indices.begin(), indices.end(), 0U);
  return indices;
}

}  // namespace

Evaluator::Evaluator(Backend& backend, Network& network, const Dataset& dataset, const ResidentImages* resident,
                     Communicator& ranks, EvalOn where, const DataOptions& options, EvalViews views)
    : backend_(backend),
      network_(network),
      dataset_(dataset),
      ranks_(ranks),
      where_(where),
      views_(eval_views(views, dataset.shape())),
      indices_(all_of(dataset.size())),
      stage_(backend.device(), {.image_bytes = dataset.shape().size(),
                                .max_samples = network.batch(),
                                .resident = views_.size() == 1 ? resident : nullptr}),
      counter_(backend.device(), network, dataset.classes()),
      loader_(dataset,
              {.max_batch = network.batch(),
               .workers = options.workers,
               .prefetch = options.prefetch,
               .read_pixels = resident == nullptr || views_.size() > 1,
               .allocate = stage_.pixel_allocator()},
              [] { return std::nullopt; }) {
  const auto count = static_cast<std::size_t>((dataset.size() + network.batch() - 1) / network.batch()) + 1;
  device_sums_ = backend.memory().allocate(count * sizeof(double), "the sums of an evaluation");
  host_sums_ = backend.memory().allocate_for_transfer((count + 1) * sizeof(double), "the sums of an evaluation");
  sums_ = {host_sums_.at<double>(0), count + 1};
  if (views_.size() == 1) return;
  const std::size_t most = static_cast<std::size_t>(network.batch()) * dataset.shape().size();
  shown_ = backend.memory().allocate_for_transfer(most, "the views of a batch");
}

EvalResult Evaluator::run(const ModelState& state) {
  const std::optional<EvalResult> result = run_unless(state, [] { return false; });
  DDP_ASSERT(result.has_value());
  return *result;
}

LogitLoss Evaluator::run_views(const ModelState& state, const Batch& batch) {
  const Shape shape = dataset_.shape();
  for (const EvalView& view : views_) {
    const std::span<std::uint8_t> pixels(shown_.at<std::uint8_t>(0), batch.pixels.size());
    std::copy(batch.pixels.begin(), batch.pixels.end(), pixels.begin());
    for (std::size_t at = 0; at < pixels.size(); at += shape.size()) {
      show(view, shape, pixels.subspan(at, shape.size()));
    }
    Batch shown = batch;
    shown.pixels = pixels;
    stage_.set(shown, 0);
    stage_.enqueue();
    double* unused = device_sums_.at<double>(0);
    network_.forward(Pass::evaluation, state, stage_.samples(0, batch.count), {unused, unused + 1, 0.0F});
    counter_.enqueue();
    backend_.queue().synchronize();
    counter_.add_view(static_cast<std::size_t>(batch.count), view.weight);
    heartbeat();
  }
  return counter_.count_views(batch.labels);
}

std::optional<EvalResult> Evaluator::run_unless(const ModelState& state, const std::function<bool()>& stopped) {
  backend_.math().fill_zero(device_sums_.data(), device_sums_.bytes());
  counter_.clear();
  const auto chunks = static_cast<std::int64_t>(sums_.size()) - 2;
  std::fill(sums_.begin(), sums_.end(), 0.0);
  double& stops = sums_.back();
  const Range mine = where_ == EvalOn::all ? part(chunks, ranks_.size(), ranks_.rank())
                     : ranks_.rank() == 0  ? Range{0, chunks}
                                           : Range{0, 0};
  std::int64_t ahead = mine.begin;
  loader_.restart([&]() -> std::optional<BatchRequest> {
    if (ahead == mine.end) return std::nullopt;
    const std::int64_t begin = ahead++ * network_.batch();
    const std::int64_t count = std::min(network_.batch(), dataset_.size() - begin);
    return BatchRequest{std::span(indices_).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
                        {}};
  });
  for (std::int64_t chunk = mine.begin; chunk < mine.end; ++chunk) {
    if (stopped()) {
      stops = 1;
      break;
    }
    const std::optional<Batch> batch = loader_.next();
    if (views_.size() > 1) {
      const LogitLoss found = run_views(state, *batch);
      sums_[static_cast<std::size_t>(chunk)] = found.loss_sum;
      sums_[static_cast<std::size_t>(chunks)] += static_cast<double>(found.correct);
      continue;
    }
    stage_.set(*batch, 0);
    stage_.enqueue();
    double* sums = device_sums_.at<double>(0);
    network_.forward(Pass::evaluation, state, stage_.samples(0, batch->count), {sums + chunk, sums + chunks, 0.0F});
    counter_.enqueue();
    // The stage accepts the next batch only after the copies of this one.
    backend_.queue().synchronize();
    counter_.add(batch->labels);
    heartbeat();
  }
  if (views_.size() == 1) {
    backend_.queue().download(sums_.data(), device_sums_.data(), device_sums_.bytes());
    backend_.queue().synchronize();
  }
  // Each chunk's sum is computed by one rank and zero on the others, so the total is exact in any order of additions.
  ranks_.all_reduce(sums_, ReduceOp::sum);
  if (stops > 0) return std::nullopt;
  EvalResult result;
  result.samples = dataset_.size();
  const auto samples = static_cast<double>(result.samples);
  result.loss = std::accumulate(sums_.begin(), sums_.begin() + chunks, 0.0) / samples;
  result.classes = counter_.total(ranks_);
  result.accuracy = sums_[static_cast<std::size_t>(chunks)] / samples;
  return result;
}

}  // namespace ddp
