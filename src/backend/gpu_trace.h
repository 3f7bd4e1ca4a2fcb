// What a GPU executed and when: single kernels, copies and fills, for a trace of the last steps.
//
//   std::unique_ptr<GpuTrace> trace = gpus->start_trace();      // throws Error(preflight) that says what is missing
//   train();
//   for (const GpuSpan& span : trace->finish()) draw(span.stream, span.begin, span.end);
//
// A GPU backend may offer it. A trace costs time, since the GPU notes begin and end of each kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ddp {

// A kernel, a copy or a fill.
struct GpuSpan {
  std::string name;
  std::uint32_t stream = 0;  // a number that the driver gave it
  double begin = 0;          // base/clock.h
  double end = 0;
};

class GpuTrace {
 public:
  GpuTrace() = default;
  GpuTrace(const GpuTrace&) = delete;
  GpuTrace& operator=(const GpuTrace&) = delete;
  virtual ~GpuTrace() = default;

  // Ends the trace, once the GPU is idle; call it once. The last spans in the order of their begin: as many as the bounded
  // memory holds.
  virtual std::vector<GpuSpan> finish() = 0;
};

}  // namespace ddp
