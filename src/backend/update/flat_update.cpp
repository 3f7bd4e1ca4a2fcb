#include "backend/update/flat_update.h"

#include <algorithm>

#include "base/error.h"

namespace ddp {

UpdateTables cut_into_chunks(std::span<const ParameterSegment> segments) {
  UpdateTables tables;
  std::int64_t end = 0;
  for (const ParameterSegment& segment : segments) {
    DDP_ASSERT(segment.offset >= end && segment.count >= 0);
    tables.gaps = tables.gaps || segment.offset != end;
    end = segment.offset + segment.count;
    tables.uniform = tables.uniform && segment.lr_scale == segments.front().lr_scale &&
                     segment.decay_scale == segments.front().decay_scale && segment.last_step == kEveryStep &&
                     segment.fade_steps == kEveryStep && segment.rows == 0 && segment.part_count == 0;
    const auto index = static_cast<std::int32_t>(tables.segments.size());
    const auto first = static_cast<std::int64_t>(tables.chunks.size());
    const bool divided = segment.part_count > 0;
    const std::int64_t own = segment.offset + (divided ? segment.part_begin : 0);
    const std::int64_t own_end = divided ? own + segment.part_count : end;
    DDP_ASSERT(own_end <= end && !(divided && segment.rows > 0));
    for (std::int64_t begin = own; begin < own_end; begin += kUpdateChunk) {
      const auto count = static_cast<std::int32_t>(std::min(kUpdateChunk, own_end - begin));
      tables.chunks.push_back({begin, count, index, segment.lr_scale, segment.decay_scale, segment.last_step,
                               segment.rows > 0, segment.fade_steps});
    }
    const auto count = static_cast<std::int64_t>(tables.chunks.size()) - first;
    tables.segments.push_back({first, count, segment.decay_scale, segment.adapt, divided});
    if (segment.rows > 0) tables.matrices.push_back({index, segment.rows, segment.count / segment.rows});
  }
  return tables;
}

}  // namespace ddp
