#include "explain/trace_file.h"

#include <array>
#include <nlohmann/json.hpp>
#include <set>

namespace ddp {
namespace {

using TraceJson = nlohmann::ordered_json;

constexpr double kMicrosecond = 1e-6;
// Rows of a rank.
enum Row : int { step_row = 1, sum_row = 2, save_row = 3, loader_row = 4 };  // and a further one for each loader thread
// From here on one for each stream of the GPU.
constexpr int kStreamRow = 1000;

class Events {
 public:
  explicit Events(const TraceSource& source) : source_(source) {}

  void add(const TraceJson& event) {
    if (!text_.empty()) text_ += ",\n";
    text_ += event.dump(-1, ' ', false, TraceJson::error_handler_t::replace);
  }
  // Something that takes time.
  void add_span(const std::string& name, int row, double begin, double end, TraceJson details = TraceJson::object()) {
    if (end <= begin) return;
    add({{"ph", "X"},
         {"name", name},
         {"pid", source_.rank},
         {"tid", row},
         {"ts", micro(begin)},
         {"dur", micro(end) - micro(begin)},
         {"args", std::move(details)}});
  }
  void add_moment(const std::string& name, int row, double at) {
    add({{"ph", "i"}, {"name", name}, {"pid", source_.rank}, {"tid", row}, {"ts", micro(at)}, {"s", "t"}});
  }
  void add_count(const std::string& name, double at, double value) {
    add({{"ph", "C"}, {"name", name}, {"pid", source_.rank}, {"ts", micro(at)}, {"args", {{"batches", value}}}});
  }
  void name_row(const char* kind, int row, const std::string& name) {
    add({{"ph", "M"}, {"name", kind}, {"pid", source_.rank}, {"tid", row}, {"args", {{"name", name}}}});
  }
  const std::string& text() const { return text_; }

 private:
  double micro(double time) const { return source_.clock.on_rank0(time) / kMicrosecond; }

  const TraceSource& source_;
  std::string text_;
};

void add_phases(Events& events, const StepSample& step) {
  constexpr std::array kInOrder = {Phase::data_wait, Phase::forward, Phase::backward, Phase::exposed_communication,
                                   Phase::optimizer};
  double at = step.begin;
  for (const Phase phase : kInOrder) {
    events.add_span(phase_label(phase), step_row, at, at + step.phases[phase]);
    at += step.phases[phase];
  }
}

// Evaluations and checkpoints lie between the step before and this one; a checkpoint comes first.
void add_pauses(Events& events, const StepSample& step) {
  const double evaluation = step.phases[Phase::evaluation];
  const double checkpoint = step.phases[Phase::checkpoint];
  events.add_span("checkpoint", save_row, step.begin - evaluation - checkpoint, step.begin - evaluation);
  events.add_span("evaluation", save_row, step.begin - evaluation, step.begin);
}

// A row for each thread of the loader.
void add_loads(Events& events, const TraceSource& source) {
  std::set<int> named;
  for (const LoadSpan& load : source.loads) {
    if (source.steps.empty() || load.end < source.steps.front().begin) continue;
    const int row = loader_row + load.worker;
    if (named.insert(load.worker).second) {
      events.name_row("thread_name", row, "loader " + std::to_string(load.worker + 1));
    }
    events.add_span("batch of step " + std::to_string(load.step), row, load.begin, load.end, {{"step", load.step}});
  }
}

// A row for each stream.
void add_kernels(Events& events, const TraceSource& source) {
  std::set<std::uint32_t> named;
  for (const GpuSpan& kernel : source.kernels) {
    if (source.steps.empty() || kernel.begin < source.steps.front().begin) continue;
    const int row = kStreamRow + static_cast<int>(kernel.stream);
    if (named.insert(kernel.stream).second) {
      events.name_row("thread_name", row, "GPU, stream " + std::to_string(kernel.stream));
    }
    events.add_span(kernel.name, row, kernel.begin, kernel.end);
  }
}

}  // namespace

std::string trace_events(const TraceSource& source) {
  Events events(source);
  events.name_row("process_name", 0, "rank " + std::to_string(source.rank) + " on " + source.host);
  events.name_row("thread_name", step_row, "steps");
  events.name_row("thread_name", sum_row, "gradient sums");
  events.name_row("thread_name", save_row, "evaluations and checkpoints");
  events.add({{"ph", "M"},
              {"name", "process_labels"},
              {"pid", source.rank},
              {"args",
               {{"labels", "clock of rank 0"},
                {"clock_offset_seconds", source.clock.begin.offset},
                {"clock_drift", source.clock.drift()},
                {"clock_error_seconds", source.clock.error()}}}});
  for (const StepSample& step : source.steps) {
    events.add_span("step " + std::to_string(step.step), step_row, step.begin, step.end, {{"step", step.step}});
    add_phases(events, step);
    add_pauses(events, step);
    events.add_count("ready batches", step.begin, step.ready_batches);
    for (std::size_t i = 0; i < step.bucket_count; ++i) {
      const SumTimes& times = step.buckets[i];
      const std::string name = "bucket " + std::to_string(i + 1);
      events.add_moment(name + " ready", sum_row, times.started);
      events.add_span(name, sum_row, times.begun, times.done, {{"step", step.step}});
    }
  }
  add_loads(events, source);
  add_kernels(events, source);
  return events.text();
}

std::string trace_file(std::span<const std::string> events_of_ranks) {
  std::string file = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (std::size_t i = 0; i < events_of_ranks.size(); ++i) file += (i > 0 ? ",\n" : "") + events_of_ranks[i];
  return file + "\n]}\n";
}

}  // namespace ddp
