// What ddp_train scaling prints and draws of its measurements.
//
//   const ScalingStudy study{"lenet, fp32", strong, weak};   // points by number of ranks, those of one rank first
//   std::cout << scaling_text(study) << scaling_answer(study, cures) << '\n';
//   replace_file("scaling.svg", scaling_svg(study), ExitCode::checkpoint);
#pragma once

#include <span>
#include <string>
#include <vector>

#include "explain/scaling_model.h"
#include "explain/verdict.h"

namespace ddp {

struct ScalingStudy {
  std::string title;
  std::vector<ScalingPoint> strong;  // all with the same global batch
  std::vector<ScalingPoint> weak;    // all with the same batch per rank; the last one may be that of `strong`
  // Two ranks, with fewer cores than they have in the others, if the ranks of the job share cores; in no series.
  std::vector<ScalingPoint> crowded = {};
  bool root = false;           // --reduction root
  bool shares_gpus = false;    // ranks of the job share GPUs
  bool one_predicted = false;  // strong[0] is predicted, because it does not fit into the memory of a rank
};

// "4 ranks take 3.1 ms", as predicted from fewer ranks and as measured.
struct ScalingCheck {
  ScalingLayout layout;
  double predicted = 0;  // seconds of a step
  double measured = 0;
  double error() const { return predicted / measured - 1; }
};
// Each point of the strong series of more than two ranks, predicted from all points of at most half as many ranks.
std::vector<ScalingCheck> check_predictions(const ScalingStudy& study);

// Tables with the lost time by cause, the model, its predictions, and the curve.
std::string scaling_text(const ScalingStudy& study);
std::string scaling_svg(const ScalingStudy& study);
// The sentence for people. `cures` are those of the run on most ranks, the best first.
std::string scaling_answer(const ScalingStudy& study, std::span<const Cure> cures);

}  // namespace ddp
