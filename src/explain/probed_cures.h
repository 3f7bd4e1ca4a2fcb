// Predicts the gains of cures for which the records of a run do not suffice, from a short measurement of its step.
//
//   std::vector<Cure> proposed = cures;
//   for (Cure& cure : proposed) use_probe(view, probe, cure);   // changes those that are lower bounds
#pragma once

#include "explain/findings.h"

namespace ddp {

// A larger batch and fewer threads. Other cures, and those that the probe cannot measure, remain as they are.
void use_probe(const RunView& view, const StepProbe& probe, Cure& cure);

}  // namespace ddp
