// mixup (Zhang, Cisse, Dauphin, Lopez-Paz: "mixup: Beyond Empirical Risk Minimization", 2018): pairs of samples are
// mixed, pixels and labels alike. Each sample of a pair has a share of its own.
//
//   const std::int32_t share = mixing_share(0.2, key);   // of the sample itself, in 256ths
//   mix_pair(a, b, share, other_share);
//
// Pixels are rounded to whole bytes after mixing, which changes them by half a level at most.
#pragma once

#include <cstdint>
#include <span>

namespace ddp {

constexpr std::int32_t kWholeShare = 256;

// Drawn from Beta(alpha, alpha), alpha > 0, and rounded to 256ths: a function of (alpha, key) alone.
std::int32_t mixing_share(double alpha, std::uint64_t key);

// a becomes share_a of itself and the rest of b; b becomes share_b of itself and the rest of what a was.
void mix_pair(std::span<std::uint8_t> a, std::span<std::uint8_t> b, std::int32_t share_a, std::int32_t share_b);

}  // namespace ddp
