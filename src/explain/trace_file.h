// The last steps of all ranks as a trace in Chrome's format, which ui.perfetto.dev and chrome://tracing show.
//
//   const std::string mine = trace_events({rank, "host-a", AlignedClock{}, last_steps});   // or also loads and kernels
//   const std::vector<std::string> all = communicator.all_gather_text(mine, "the trace");
//   replace_file("trace.json", trace_file(all), ExitCode::checkpoint);
//
// A rank is a process of the trace. Its rows: steps with their phases one after the other, the sums of the buckets with
// the moment at which each was ready, evaluations and checkpoints, the batches that each thread of the loader reads, the
// kernels of each stream of its GPU, and a counter of batches that are ready. With several shards per rank forward and
// backward alternate, but are shown as one block each.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "backend/gpu_trace.h"
#include "metrics/clock_sync.h"
#include "metrics/recorder.h"

namespace ddp {

struct TraceSource {
  int rank = 0;
  std::string host;
  AlignedClock clock;
  std::vector<StepSample> steps;
  // Only those since the first step are shown.
  std::vector<LoadSpan> loads = {};
  std::vector<GpuSpan> kernels = {};
};

// The events of a rank, separated by commas. Times are microseconds on the clock of rank 0.
std::string trace_events(const TraceSource& source);
// The whole file.
std::string trace_file(std::span<const std::string> events_of_ranks);

}  // namespace ddp
