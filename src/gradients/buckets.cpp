#include "gradients/buckets.h"

#include <numeric>

namespace ddp {
namespace {

// A bucket smaller than this part of what it may hold takes little longer to send than an empty message.
constexpr std::size_t kSmallPart = 8;

}  // namespace

std::vector<Bucket> plan_buckets(std::span<const std::size_t> parameter_sizes, std::size_t first_bytes,
                                 std::size_t other_bytes, const std::vector<bool>& kept) {
  std::vector<Bucket> buckets;
  bool open = false;
  std::size_t begin = std::accumulate(parameter_sizes.begin(), parameter_sizes.end(), std::size_t{0});
  for (std::size_t parameter = parameter_sizes.size(); parameter-- > 0;) {
    const std::size_t end = begin;
    begin -= parameter_sizes[parameter];
    if (!kept.empty() && kept[parameter]) {
      open = false;
      continue;
    }
    const std::size_t limit = (buckets.size() > 1 ? other_bytes : first_bytes) / sizeof(float);
    const bool small = open && buckets.back().elements() < limit / kSmallPart;
    if (!open || (!small && buckets.back().end - begin > limit)) {
      buckets.push_back({begin, end, parameter, parameter + 1});
      open = true;
    } else {
      buckets.back().begin = begin;
      buckets.back().first_parameter = parameter;
    }
  }
  return buckets;
}

}  // namespace ddp
