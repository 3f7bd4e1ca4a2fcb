// What an option changes of the steps of a run: which numbers of a step differ first between two runs that differ in it.
//
//   const OptionEffects effects = effects_of("label-smoothing").value();
//   effects.has(Effect::loss);   // the same batch gives another loss
//
// OptionSpec::effects holds it for each option. The command compare derives its verdict from it, so that every option must
// have an entry, if only Effect::nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ddp {

enum class Effect : std::uint16_t {
  nothing = 0,
  samples = 1,       // which samples a batch has, and their order
  pixels = 2,        // the images as the network receives them
  rate = 4,          // the learning rate
  weights = 8,       // the weights of the first step
  loss = 16,         // of the same batch and weights
  gradient = 32,     // its norm
  rounding = 64,     // loss and gradient by the order of additions or the precision of numbers
  statistics = 128,  // the running statistics of batch normalisation after the step
  update = 256,      // the weights after it, and so the loss of later steps
  evaluation = 512   // the results of evaluations alone
};

struct OptionEffects {
  std::uint16_t bits = 0;

  constexpr OptionEffects() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): one effect is a set.
  constexpr OptionEffects(Effect effect) : bits(static_cast<std::uint16_t>(effect)) {}
  // Any of these.
  constexpr bool has(OptionEffects others) const { return (bits & others.bits) != 0; }
  friend constexpr OptionEffects operator|(OptionEffects a, OptionEffects b) {
    a.bits = static_cast<std::uint16_t>(a.bits | b.bits);
    return a;
  }
  friend bool operator==(const OptionEffects&, const OptionEffects&) = default;
};
constexpr OptionEffects operator|(Effect a, Effect b) { return OptionEffects(a) | OptionEffects(b); }

// Other parts of a batch, from which batch normalisation takes its statistics.
inline constexpr OptionEffects kShardEffects = Effect::loss | Effect::gradient | Effect::rounding | Effect::statistics;
// Other images.
inline constexpr OptionEffects kDataEffects = Effect::samples | Effect::pixels | Effect::loss | Effect::evaluation;

// The effects of an option by its key; nullopt if it has no entry.
std::optional<OptionEffects> effects_of(std::string_view key);

}  // namespace ddp
