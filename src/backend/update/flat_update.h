// Arguments of FlatMath::update(): one optimizer step over flat buffers. The arithmetic is in optim/rules/.
//
//   const std::vector<ParameterSegment> segments = {{0, 180, 1, 1}, {180, 20, 2, 0}};   // weights and biases
//   const UpdateTables tables = cut_into_chunks(segments);
//   UpdateArguments arguments;
//   arguments.settings = {.rule = UpdateRule::adamw, .weight_decay = 0.01};
//   ...
//   backend.math().update(arguments);
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "backend/over_shards.h"
#include "optim/rules/settings.h"

namespace ddp {

// Parameters that every update changes.
inline constexpr double kEveryStep = std::numeric_limits<double>::infinity();

// A contiguous range of the flat buffers with one set of factors, usually one tensor.
struct ParameterSegment {
  std::int64_t offset = 0;
  std::int64_t count = 0;
  float lr_scale = 1;              // factor of the learning rate
  float decay_scale = 1;           // factor of the weight decay
  bool adapt = true;               // lars and lamb: scale the learning rate by this segment's trust ratio
  double last_step = kEveryStep;   // the last update that changes it, from 1; 0: none
  std::int64_t rows = 0;           // muon: of the matrix that it is, row by row; 0: it is updated element by element
  double fade_steps = kEveryStep;  // updates in which its rate falls linearly to 0; kEveryStep: it follows the schedule
  // In a segment that is divided among the ranks: the elements that are updated here, counted from `offset`, as many on
  // each rank. Its norms are those of the whole segment (UpdateArguments::sums_over_ranks). 0: all of it is updated here.
  std::int64_t part_begin = 0;
  std::int64_t part_count = 0;
};

// Norms are summed within chunks, then over the chunks, so that the order of additions depends on shapes only.
inline constexpr std::int64_t kUpdateChunk = 4096;
struct UpdateChunk {
  std::int64_t begin = 0;
  std::int32_t count = 0;    // at most kUpdateChunk
  std::int32_t segment = 0;  // index of its segment
  float lr_scale = 1;
  float decay_scale = 1;
  double last_step = kEveryStep;
  bool in_matrix = false;
  double fade_steps = kEveryStep;
};
// The numbers of a step for a chunk, with the learning rate of the chunk before its factor.
DDP_HOST_DEVICE inline StepNumbers numbers_for(StepNumbers numbers, const UpdateChunk& chunk) {
  StepControl& control = numbers.control;
  if (chunk.fade_steps < kEveryStep) control.lr = control.full_lr * (1 - (control.step - 1) / chunk.fade_steps);
  return numbers;
}
struct ChunksOfSegment {
  std::int64_t first = 0;
  std::int64_t count = 0;
  float decay_scale = 1;
  bool adapt = true;
  bool divided = false;  // the chunks are this rank's part of it
};
// A segment that is updated as a whole.
struct UpdateMatrix {
  std::int64_t segment = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};
struct UpdateTables {
  std::vector<UpdateChunk> chunks;
  std::vector<ChunksOfSegment> segments;
  std::vector<UpdateMatrix> matrices;
  bool uniform = true;  // all segments have the same factors, and every update changes them
  bool gaps = false;    // there are elements between segments
};
// The segments must follow one another in the buffer; gaps between them are not part of any chunk.
UpdateTables cut_into_chunks(std::span<const ParameterSegment> segments);

class MatrixUpdate;

// All pointers are device memory. Values that change with the step are read there when the work runs, so that an update
// can be recorded once in a CUDA graph.
struct UpdateArguments : UpdateBuffers {
  UpdateSettings settings;
  std::int64_t count = 0;  // elements per buffer

  const UpdateChunk* chunks = nullptr;
  std::int64_t chunk_count = 0;
  const ChunksOfSegment* segments = nullptr;
  std::int64_t segment_count = 0;
  bool uniform = true;
  float lr_scale = 1;  // of all segments, if uniform
  float decay_scale = 1;

  // Scratch of the update.
  StepNumbers* numbers = nullptr;
  double* sums = nullptr;    // two per chunk
  double* ratios = nullptr;  // one per segment

  // Null if no segment is updated as a whole matrix; see matrix_update.h.
  MatrixUpdate* matrices = nullptr;
  std::byte* matrix_scratch = nullptr;

  // For segments that are divided among the ranks, which only the CPU has; all ranks call it in the same order.
  const SumOverShards* sums_over_ranks = nullptr;
  // If other ranks update other parts of the model, likewise.
  const SumOverParts* sum_over_parts = nullptr;

  const StepControl* control = nullptr;  // one element
  const double* skip = nullptr;          // one value: the update is skipped unless it is 0
};

}  // namespace ddp
