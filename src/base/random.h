// Counter-based random numbers: each stream is a pure function of its key, so the random numbers of a sample depend
// neither on the rank or thread that draws them nor on earlier draws.
//
//   Random random(seed, /*stream=*/epoch, /*substream=*/sample_index);
//   float angle = random.uniform(-0.2f, 0.2f);
//   float noise = random.normal();
//
// The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace ddp {

// One Philox4x32-10 block: 128 random bits for a 128-bit counter and a 64-bit key.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// 32 hexadecimal digits from the operating system, other ones with each call: a name that no other process takes.
std::string random_token();

class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t stream, std::uint32_t substream = 0);

  std::uint32_t next_u32();
  std::uint64_t next_u64();
  // Uniform in [0, 1), on a grid of 2^-24.
  float uniform();
  float uniform(float lower, float upper);
  // Uniform in [0, 1), on a grid of 2^-53.
  double uniform_double();
  // Uniform integer in [0, bound), without bias (Lemire 2019); bound > 0.
  std::uint64_t below(std::uint64_t bound);
  // Standard normal by the Box-Muller transform.
  float normal();
  double normal_double();

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> block_{};
  int used_ = 4;
  double spare_normal_ = 0;
  bool has_spare_ = false;
};

// Shuffles `values` uniformly (Fisher-Yates) as a function of the generator's state alone.
void shuffle(std::span<std::uint32_t> values, Random& random);

}  // namespace ddp
