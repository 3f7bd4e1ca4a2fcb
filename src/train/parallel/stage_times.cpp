#include "train/parallel/stage_times.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "base/random.h"
#include "base/text/text_table.h"

namespace ddp {
namespace {

// Random images, each with a label, in the backend's memory.
struct RandomBatch {
  Memory pixels, labels, keys;
  std::int64_t count;

  RandomBatch(const DeviceContext& device, const Network& network) : count(network.batch()) {
    Random random(1, 0);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count * network.image_elements()));
    for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random.below(256));
    std::vector<std::int32_t> classes(static_cast<std::size_t>(count));
    for (std::int32_t& label : classes) {
      label = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(network.classes())));
    }
    pixels = device.memory().allocate(bytes.size(), "random images");
    labels = device.memory().allocate(classes.size() * sizeof(std::int32_t), "random labels");
    keys = device.memory().allocate(classes.size() * sizeof(std::uint64_t), "the keys of random images");
    DeviceQueue& queue = device.queue();
    queue.upload(pixels.data(), bytes.data(), bytes.size());
    queue.upload(labels.data(), classes.data(), classes.size() * sizeof(std::int32_t));
    queue.synchronize();
  }
};

// Takes the times of a network's steps for as long as it lives.
class Stopwatch {
 public:
  Stopwatch(DeviceQueue& queue, Network& network, std::vector<StageTime>& times)
      : network_(network), begin_(queue.make_event()), end_(queue.make_event()) {
    network.watch_steps([&](std::size_t step, bool backward, bool begins) {
      queue.mark(begins ? *begin_ : *end_);
      if (begins) return;
      queue.synchronize();
      double& least = backward ? times[step].backward_seconds : times[step].forward_seconds;
      least = std::min(least, end_->seconds_since(*begin_));
    });
  }
  ~Stopwatch() { network_.watch_steps(nullptr); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  Network& network_;
  std::unique_ptr<DeviceEvent> begin_, end_;
};

// The four cells of one direction.
void add_cells(std::vector<std::string>& row, double seconds, double flops, double bytes,
               const std::optional<DevicePeak>& peak) {
  // Nothing is computed: backward of what is frozen.
  if (flops == 0 && bytes == 0) {
    row.insert(row.end(), 4, kUnknownCell);
    return;
  }
  const auto rate = [&](double amount) {
    return amount == 0 || seconds == 0 ? kUnknownCell : fmt::format("{:.1f}", amount / seconds / 1e9);
  };
  row.push_back(fmt::format("{:.3f}", seconds * 1e3));
  row.push_back(rate(flops));
  row.push_back(rate(bytes));
  const double most = !peak ? 0 : flops > 0 ? peak->flops : peak->bytes_per_second;
  const double done = flops > 0 ? flops : bytes;
  row.push_back(most == 0 || seconds == 0 ? kUnknownCell : fmt::format("{:.0f}%", 100 * done / seconds / most));
}

}  // namespace

std::vector<StageTime> time_stages(Backend& backend, Network& network, const float* parameters, std::int64_t statistics,
                                   double seconds) {
  DeviceQueue& queue = backend.queue();
  const RandomBatch batch(backend.device(), network);
  const Memory scratch = backend.memory().allocate(static_cast<std::size_t>(statistics) * sizeof(float),
                                                   "the running statistics of timed passes");
  const Memory gradient = backend.memory().allocate(static_cast<std::size_t>(network.flat_elements()) * sizeof(float),
                                                    "the gradients of timed passes");
  const Memory sums = backend.memory().allocate(2 * sizeof(double), "the losses of timed passes");
  const auto pass = [&] {
    network.forward(Pass::training, {parameters, scratch.at<float>(0)},
                    {batch.pixels.at<std::uint8_t>(0), nullptr, batch.labels.at<std::int32_t>(0), batch.count,
                     batch.keys.at<std::uint64_t>(0)},
                    {sums.at<double>(0), sums.at<double>(sizeof(double)), 1.0F / static_cast<float>(batch.count)});
    network.backward(parameters, gradient.at<float>(0), [](std::int64_t) {});
    queue.synchronize();
  };
  pass();
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<StageTime> times;
  for (StageWork& work : network.work()) times.push_back({std::move(work), kNever, kNever});
  const Stopwatch stopwatch(queue, network, times);
  const double begin = now();
  for (int passes = 0; passes < 2 || now() - begin < seconds; ++passes) pass();
  return times;
}

std::string stage_table(const std::vector<StageTime>& times, const std::optional<DevicePeak>& peak) {
  std::vector<std::vector<std::string>> rows = {{"stage", "kind", "layout", "forward ms", "GFLOP/s", "GB/s", "of peak",
                                                 "backward ms", "GFLOP/s", "GB/s", "of peak"}};
  StageTime all;
  const auto add_row = [&](const StageTime& time, std::string layout) {
    const StageWork& work = time.work;
    std::vector<std::string> row = {work.name, work.kind, std::move(layout)};
    add_cells(row, time.forward_seconds, work.forward_flops, work.forward_bytes, peak);
    add_cells(row, time.backward_seconds, work.backward_flops, work.backward_bytes, peak);
    rows.push_back(std::move(row));
  };
  for (const StageTime& time : times) {
    add_row(time, std::string(to_string(time.work.layout)));
    all.forward_seconds += time.forward_seconds;
    all.backward_seconds += time.backward_seconds;
    all.work.forward_flops += time.work.forward_flops;
    all.work.backward_flops += time.work.backward_flops;
    all.work.forward_bytes += time.work.forward_bytes;
    all.work.backward_bytes += time.work.backward_bytes;
  }
  all.work.name = "sum";
  add_row(all, "");
  using enum Align;
  std::string text =
      text_table(rows, std::vector{left, left, left, right, right, right, right, right, right, right, right});
  if (peak) {
    text += fmt::format(
        "measured peak: {:.1f} GFLOP/s of fp32 multiply-adds, {:.1f} GB/s of copies in memory; the share is of the "
        "former "
        "for stages that multiply, of the latter for others, which may exceed it in caches\n",
        peak->flops / 1e9, peak->bytes_per_second / 1e9);
  }
  return text;
}

}  // namespace ddp
