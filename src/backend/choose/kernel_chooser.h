// Chooses the kernels of an operator, by time or by rule, the same way on every device.
//
//   KernelChoice choice = backend.chooser().choose(spec, Layout::plain, Layout::lanes16, ChoiceMode::timed);
//   std::unique_ptr<Op> op = backend.ops().make_op(spec, Layout::plain, Layout::lanes16, choice.kernels);
//
// A backend lists candidates and measures one; the chooser measures those whose time is not known yet, and takes the fastest.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/op.h"
#include "backend/op_factory.h"

namespace ddp {

// The kernels of an operator, and the time of one forward and backward pass.
struct KernelChoice {
  std::string kernels;  // e.g. "forward=lanes.5x2x2 data=lanes.10x1x2 weights=lanes.5x5"; "" if there is only one
  double seconds = 0;
};

enum class ChoiceMode {
  timed,     // run the candidates and choose the fastest
  expected,  // those that a cost model expects to be the fastest: the same on every machine with the same instruction set
  fixed,     // likewise, but without algorithms that round differently
};

// Kernels that can compute a spec.
struct Candidate {
  std::string kernels;
  // An estimate, or what a search for these kernels has measured; nullopt: the operator has to be timed.
  std::optional<double> seconds = std::nullopt;
};

// What a backend knows of kernels.
class KernelCandidates {
 public:
  KernelCandidates() = default;
  KernelCandidates(const KernelCandidates&) = delete;
  KernelCandidates& operator=(const KernelCandidates&) = delete;
  virtual ~KernelCandidates() = default;

  // In mode timed those worth timing; otherwise one, with an estimate. Of equally fast ones the first is taken.
  virtual std::vector<Candidate> list(const OpSpec& spec, Layout x, Layout y, ChoiceMode mode) = 0;
  // The time of one forward and backward pass of an operator of these specs, which is joined if there are several.
  virtual double seconds(std::span<const OpSpec> specs, Layout x, Layout y, Op& op) = 0;
  // The spec whose timing stands for that of `spec`: a batch may be timed with fewer samples. Specs with the same one
  // have the same kernels, and times in proportion to their batches.
  virtual OpSpec timed_spec(const OpSpec& spec) const { return spec; }
  // Whether a joined operator computes `spec`, one of its parts, with the kernels that are chosen for it.
  virtual bool joins_chosen(const OpSpec& /*spec*/) const { return false; }
  // Whether a joined operator computes what its parts do; asked before it is timed.
  virtual bool is_right(std::span<const OpSpec> /*specs*/, Op& /*joined*/) { return true; }
  // Whether operators are joined where nothing is timed.
  virtual bool expects_gain(std::span<const OpSpec> /*specs*/) const { return true; }
};

class KernelChooser {
 public:
  // Both must outlive the chooser.
  KernelChooser(OpFactory& ops, KernelCandidates& candidates) : ops_(ops), candidates_(candidates) {}

  KernelChoice choose(const OpSpec& spec, Layout x, Layout y, ChoiceMode mode);
  // The time of one forward and backward pass of an operator that OpJoiner::join() makes with the fastest kernels;
  // infinity if there is none that computes these.
  double joined_seconds(std::span<const OpSpec> specs, Layout layout);

  OpSpec timed_spec(const OpSpec& spec) const { return candidates_.timed_spec(spec); }
  bool expects_gain(std::span<const OpSpec> specs) const { return candidates_.expects_gain(specs); }

 private:
  KernelChoice fastest(const OpSpec& spec, Layout x, Layout y, ChoiceMode mode);

  OpFactory& ops_;
  KernelCandidates& candidates_;
  std::map<std::string, KernelChoice> timed_;  // by spec and layouts; joined operators need those of their parts again
};

}  // namespace ddp
