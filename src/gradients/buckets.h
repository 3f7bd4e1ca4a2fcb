// Which gradients are reduced together: the flat gradient buffer cut into buckets of whole parameters.
//
//   const std::size_t sizes[] = {500, 50, 200000, 10};
//   plan_buckets(sizes, 1 << 20, 25 << 20);   // {{0, 200560, 0, 4}}: all in the first MiB
//
// Backward computes the last parameter's gradient first, so the first bucket is the tail of the buffer. A large bucket
// uses a link better, a small one is ready earlier: the first is kept small so that communication begins soon (Li et
// al.: "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, section 3.2.3; its sizes
// of 1 MiB and then 25 MiB are the defaults here; bucket_size.h finds better ones for slow links).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ddp {

struct Bucket {
  // The elements [begin, end) of the flat buffer.
  std::size_t begin = 0;
  std::size_t end = 0;
  // The parameters [first_parameter, last_parameter) in flat order; the bucket is ready when the first of them is.
  std::size_t first_parameter = 0;
  std::size_t last_parameter = 0;

  std::size_t elements() const { return end - begin; }
  friend bool operator==(const Bucket&, const Bucket&) = default;
};

inline constexpr std::size_t kFirstBucketBytes = std::size_t{1} << 20U;
inline constexpr std::size_t kBucketBytes = std::size_t{25} << 20U;

// The buckets in the order in which they become ready, together all parameters of `parameter_sizes` (in elements with
// what lies between them, in flat order). A bucket holds at most `first_bytes` (the first) or `other_bytes` of float32, but at
// least one parameter; while it has less than an eighth of that, the next parameter joins it, however large. Parameters that are
// `kept` are in no bucket (empty: none is).
std::vector<Bucket> plan_buckets(std::span<const std::size_t> parameter_sizes,
                                 std::size_t first_bytes = kFirstBucketBytes, std::size_t other_bytes = kBucketBytes,
                                 const std::vector<bool>& kept = {});

}  // namespace ddp
