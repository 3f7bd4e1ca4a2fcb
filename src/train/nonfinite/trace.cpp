#include "train/nonfinite/trace.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text/text_table.h"

namespace ddp {
namespace {

void count(TraceRow& row, double value) {
  if (!std::isfinite(value)) {
    ++row.non_finite;
    return;
  }
  row.min = std::min(row.min, value);
  row.max = std::max(row.max, value);
  row.sum_abs += std::abs(value);
  ++row.finite;
}

TraceRow row_of(DeviceQueue& queue, const Observed& seen) {
  TraceRow row{seen.backward, seen.where};
  const std::int64_t stored =
      seen.samples == 0 ? seen.shape.elements() : stored_elements(seen.stored_samples, seen.shape, seen.layout);
  std::vector<std::byte> bytes(static_cast<std::size_t>(stored) * bytes_of(seen.values.element()));
  queue.download(bytes.data(), seen.values.data(), bytes.size());
  queue.synchronize();
  if (seen.samples == 0) {
    for (std::int64_t i = 0; i < stored; ++i) {
      count(row, value_at(bytes.data(), seen.values.element(), static_cast<std::size_t>(i)));
    }
    return row;
  }
  for (std::int64_t n = 0; n < seen.samples; ++n) {
    const std::int64_t before = row.non_finite;
    for (std::int64_t c = 0; c < seen.shape.channels; ++c) {
      for (std::int64_t y = 0; y < seen.shape.height; ++y) {
        for (std::int64_t x = 0; x < seen.shape.width; ++x) {
          const auto at = static_cast<std::size_t>(element_offset(seen.shape, seen.layout, n, c, y, x));
          count(row, value_at(bytes.data(), seen.values.element(), at));
        }
      }
    }
    if (row.non_finite > before) row.samples.push_back(n);
  }
  return row;
}

// Watches a network for as long as it lives.
class Watch {
 public:
  Watch(Network& network, Network::Observer observer) : network_(network) { network.observe(std::move(observer)); }
  ~Watch() { network_.observe(nullptr); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  Network& network_;
};

}  // namespace

Trace trace_shard(Backend& backend, Network& network, const float* parameters, std::span<const float> statistics,
                  const Samples& samples, float gradient_scale) {
  DeviceQueue& queue = backend.queue();
  const Memory scratch = backend.memory().allocate(statistics.size_bytes(), "the running statistics of a trace");
  if (!statistics.empty()) queue.upload(scratch.data(), statistics.data(), statistics.size_bytes());
  const Memory gradient = backend.memory().allocate(static_cast<std::size_t>(network.flat_elements()) * sizeof(float),
                                                    "the gradients of a trace");
  const Memory sums = backend.memory().allocate(2 * sizeof(double), "the losses of a trace");
  Trace trace;
  const Watch watch(network, [&](const Observed& seen) { trace.rows.push_back(row_of(queue, seen)); });
  network.forward(Pass::training, {parameters, scratch.at<float>(0)}, samples,
                  {sums.at<double>(0), sums.at<double>(sizeof(double)), gradient_scale});
  queue.download(&trace.loss_sum, sums.data(), sizeof(double));
  queue.synchronize();
  // The loss may overflow where the logits and their gradient do not.
  TraceRow loss{false, "the loss"};
  count(loss, trace.loss_sum);
  const auto backward =
      std::find_if(trace.rows.begin(), trace.rows.end(), [](const TraceRow& r) { return r.backward; });
  trace.rows.insert(backward, loss);
  network.backward(parameters, gradient.at<float>(0), [](std::int64_t) {});
  queue.synchronize();
  return trace;
}

void add_shard(Trace& all, const Trace& shard, std::int64_t first) {
  all.loss_sum += shard.loss_sum;
  if (all.rows.empty()) {
    for (const TraceRow& row : shard.rows) all.rows.push_back({row.backward, row.where});
  }
  DDP_ASSERT(all.rows.size() == shard.rows.size());
  for (std::size_t i = 0; i < all.rows.size(); ++i) {
    TraceRow& to = all.rows[i];
    const TraceRow& from = shard.rows[i];
    to.min = std::min(to.min, from.min);
    to.max = std::max(to.max, from.max);
    to.sum_abs += from.sum_abs;
    to.finite += from.finite;
    to.non_finite += from.non_finite;
    for (const std::int64_t sample : from.samples) to.samples.push_back(first + sample);
  }
}

const TraceRow* first_not_finite(const std::vector<TraceRow>& rows) {
  const auto found = std::find_if(rows.begin(), rows.end(), [](const TraceRow& row) { return row.non_finite > 0; });
  return found == rows.end() ? nullptr : &*found;
}

std::string trace_table(const std::vector<TraceRow>& rows) {
  std::vector<std::vector<std::string>> cells = {{"pass", "value", "min", "max", "mean |x|", "non-finite", "of"}};
  for (const TraceRow& row : rows) {
    const auto number = [&](double value) { return row.finite == 0 ? kUnknownCell : fmt::format("{:.4g}", value); };
    cells.push_back({row.backward ? "backward" : "forward", row.where, number(row.min), number(row.max),
                     number(row.mean_abs()), fmt::format("{}", row.non_finite),
                     fmt::format("{}", row.finite + row.non_finite)});
  }
  using enum Align;
  return text_table(cells, std::vector{left, left, right, right, right, right, right});
}

}  // namespace ddp
