// mixup (Zhang, Cisse, Dauphin, Lopez-Paz: "mixup: Beyond Empirical Risk Minimization", 2018): convex combinations of
// pairs of samples and of their labels. Each sample of a pair has its own weight.
//
//   const std::int32_t share = mixing_share(0.2, key);   // weight of the sample itself, in 256ths
//   mix_pair(a, b, share, other_share);
//
// Mixed pixels are rounded to bytes, an error of at most half a level.
#pragma once

#include <cstdint>
#include <span>

namespace ddp {

constexpr std::int32_t kWholeShare = 256;

// Drawn from Beta(alpha, alpha), alpha > 0, and rounded to 256ths: a function of (alpha, key) alone.
std::int32_t mixing_share(double alpha, std::uint64_t key);

// a = share_a a + (1 - share_a) b, and likewise b with the old value of a.
void mix_pair(std::span<std::uint8_t> a, std::span<std::uint8_t> b, std::int32_t share_a, std::int32_t share_b);

}  // namespace ddp
