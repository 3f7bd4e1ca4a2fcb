// Names that the examples in the headers of backend use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/gpu_trace.h"
#include "backend/op.h"
#include "model/memory_plan.h"

namespace ddp::backend_examples {

extern Backend& backend;
extern const OpSpec spec;
extern const std::unique_ptr<Op> op;
extern const std::vector<OpSpec> specs;
extern const std::vector<std::string> chosen;
extern const MemoryPlan plan;
extern const BufferId id;
extern const Memory memory;
extern const std::vector<std::int32_t> values;
extern const std::size_t bytes, count, max_samples, offset;
extern const std::int64_t n;
extern const int local_rank;
extern const void* host;
extern void* stream;
extern std::byte *workspace, *saved;
extern float *device_floats, *sum, *x, *y;
extern const float *addend, *weight, *bias, *table;
template <class... Arguments>
void kernel(Arguments...);
template <class... Arguments>
void launch(Arguments...);
struct Gpus {
  std::unique_ptr<GpuTrace> start_trace();
};
extern Gpus* gpus;
void train();
void draw(std::uint32_t stream, double begin, double end);
void initialize(std::span<float> values);
void save(std::span<const float> values);

}  // namespace ddp::backend_examples
