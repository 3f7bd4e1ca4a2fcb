#include "backend/choose/kernel_chooser.h"

#include <limits>
#include <memory>
#include <variant>

#include "base/error.h"

namespace ddp {

KernelChoice KernelChooser::choose(const OpSpec& spec, Layout x, Layout y, ChoiceMode mode) {
  DDP_ASSERT(ops_.supports(spec, x, y));
  if (mode != ChoiceMode::timed) return fastest(spec, x, y, mode);
  const OpSpec sample = timed_spec(spec);
  const std::string key = fmt::format("{} {} {}", describe(sample), to_string(x), to_string(y));
  auto found = timed_.find(key);
  if (found == timed_.end()) found = timed_.emplace(key, fastest(sample, x, y, mode)).first;
  KernelChoice choice = found->second;
  choice.seconds *= static_cast<double>(batch_of(spec)) / static_cast<double>(batch_of(sample));
  return choice;
}

KernelChoice KernelChooser::fastest(const OpSpec& spec, Layout x, Layout y, ChoiceMode mode) {
  KernelChoice best{"", std::numeric_limits<double>::infinity()};
  const std::vector<Candidate> candidates = candidates_.list(spec, x, y, mode);
  for (const Candidate& candidate : candidates) {
    const double seconds = candidate.seconds
                               ? *candidate.seconds
                               : candidates_.seconds({&spec, 1}, x, y, *ops_.make_op(spec, x, y, candidate.kernels));
    if (&candidate == candidates.data() || seconds < best.seconds) best = {candidate.kernels, seconds};
  }
  return best;
}

double KernelChooser::joined_seconds(std::span<const OpSpec> specs, Layout layout) {
  const std::int64_t samples = batch_of(timed_spec(specs[0]));
  std::vector<OpSpec> timed(specs.begin(), specs.end());
  std::vector<std::string> kernels;
  for (OpSpec& spec : timed) {
    std::visit([&](auto& s) { s.batch = samples; }, spec);
    const bool chosen = candidates_.joins_chosen(spec);
    kernels.push_back(chosen ? choose(spec, layout, layout, ChoiceMode::timed).kernels : "");
  }
  const std::unique_ptr<Op> op = ops_.join(timed, layout, kernels);
  if (op == nullptr || !candidates_.is_right(timed, *op)) return std::numeric_limits<double>::infinity();
  return candidates_.seconds(timed, layout, layout, *op) * static_cast<double>(batch_of(specs[0])) /
         static_cast<double>(samples);
}

}  // namespace ddp
