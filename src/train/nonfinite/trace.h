// Runs a shard forward and backward and looks at every value on the way: which layer was the first to compute something
// that is not finite, and for which samples.
//
//   const Trace trace = trace_shard(backend, network, parameters, running_statistics, stage.samples(0, count),
//                                   1.0F / global_batch);
//   const TraceRow* first = first_not_finite(trace.rows);   // null if everything is finite
//   first->where;     // "the output of layer 'conv2'"
//   first->samples;   // {3, 17}: within the shard
//
// It reads every activation back to the host, so it takes as long as many steps; it changes no weights and no running
// statistics.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/network.h"

namespace ddp {

// One value of a pass: the output of a layer, or a gradient.
struct TraceRow {
  bool backward = false;
  std::string where = {};
  // Over the finite elements.
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum_abs = 0;
  std::int64_t finite = 0;
  std::int64_t non_finite = 0;
  std::vector<std::int64_t> samples = {};  // with non-finite elements, ascending; empty for gradients of parameters

  double mean_abs() const { return finite == 0 ? 0 : sum_abs / static_cast<double>(finite); }
};

struct Trace {
  std::vector<TraceRow> rows;  // in the order of computation; the same rows for every shard
  double loss_sum = 0;
};

// `statistics`: the running statistics, of which it changes a copy. `gradient_scale` is that of the run:
// 1 / samples of the global batch.
Trace trace_shard(Backend& backend, Network& network, const float* parameters, std::span<const float> statistics,
                  const Samples& samples, float gradient_scale);

// Adds what another shard of the batch gave, whose first sample is number `first`.
void add_shard(Trace& all, const Trace& shard, std::int64_t first);

// The first row with a non-finite element, or null.
const TraceRow* first_not_finite(const std::vector<TraceRow>& rows);

// min, max, mean magnitude and the number of non-finite elements of every row, as a table for people.
std::string trace_table(const std::vector<TraceRow>& rows);

}  // namespace ddp
