// Options of the update, the schedule and the loop around them.
#include <vector>

#include "options/table/topic_table.h"
#include "options/table/topics.h"

namespace ddp {
namespace {

constexpr std::int64_t kMuonSteps = 20;
constexpr RealRange kLearningRates{0, 1e6};

using OptimizerTable = TopicTable<OptimizerOptions>;

void add_updates(OptimizerTable& optimizer) {
  using O = OptimizerOptions;
  optimizer.choice("optimizer", &O::optimizer, "optimization algorithm");
  optimizer.real("lr", &O::lr, kLearningRates, "learning rate");
  optimizer.real("weight-decay", &O::weight_decay, {0, 1000}, "weight decay");
  optimizer.choice(
      "decay", &O::decay,
      "l2: added to the gradient; decoupled: subtracted from the weights; auto: decoupled for adamw, else l2");
  optimizer.real("clip-norm", &O::clip_norm, {0, 1e9}, "clip the gradient to this global L2 norm; 0: off");
  optimizer.real("clip-value", &O::clip_value, {0, 1e9}, "clip each component of the gradient to [-X, X]; 0: off");
  optimizer.real("ema-decay", &O::ema_decay, {0, 1, true},
                 "decay rate of an exponential moving average of the weights, which is used for evaluation; 0: off");
  optimizer.integer("lookahead", &O::lookahead, 0, kNoLimit,
                    "every N steps, interpolate the weights with a slow copy, which they become at the end; 0: off");
}

// What single choices read.
void add_update_groups(OptimizerTable& optimizer) {
  using O = OptimizerOptions;
  optimizer.begin_group("--optimizer sgd, muon, rmsprop, lars");
  optimizer.real("momentum", &O::momentum, {0, 1, true}, "momentum; with muon of what it updates like sgd");
  optimizer.begin_group("--optimizer sgd, muon");
  optimizer.on_off("nesterov", &O::nesterov, "Nesterov momentum; with muon of what it updates like sgd");
  optimizer.begin_group("--optimizer adam, adamw, lamb");
  optimizer.real("beta1", &O::beta1, {0, 1, true}, "decay rate of the first-moment estimate");
  optimizer.real("beta2", &O::beta2, {0, 1, true}, "decay rate of the second-moment estimate");
  optimizer.begin_group("--optimizer adam, adamw, lamb, rmsprop");
  optimizer.real("epsilon", &O::epsilon, {0, 1}, "constant added to the denominator");
  optimizer.begin_group("--optimizer rmsprop");
  optimizer.real("rho", &O::rho, {0, 1, true}, "decay rate of the average of squared gradients");
  optimizer.choice(
      "rmsprop-form", &O::rmsprop_form,
      "pytorch: epsilon outside the square root; keras: epsilon inside it, momentum applied to updates scaled by --lr");
  optimizer.begin_group("--optimizer lars");
  optimizer.real("lars-trust", &O::lars_trust, {0, 1000, false, true}, "trust coefficient");
  optimizer.begin_group("--optimizer muon");
  optimizer.real("muon-momentum", &O::muon_momentum, {0, 1, true}, "Nesterov momentum of matrices");
  optimizer.integer("muon-steps", &O::muon_steps, 1, kMuonSteps, "steps of the Newton-Schulz iteration");
  optimizer.choice("muon-scale", &O::muon_scale,
                   "factor of the learning rate for a matrix of R rows and C columns; shape: sqrt(max(1, R / C)); "
                   "rms: 0.2 sqrt(max(R, C)), for learning rates of adamw");
  optimizer.on_off("muon-normalize", &O::muon_normalize,
                   "before each step, scale each matrix of R rows to the norm sqrt(R)");
  optimizer.begin_group("--ema-decay");
  optimizer.on_off("ema-warmup", &O::ema_warmup, "limit the decay rate to (1 + n) / (10 + n) after n updates");
  optimizer.begin_group("--lookahead");
  optimizer.real("lookahead-decay", &O::lookahead_decay, {0, 1, true},
                 "fraction of the slow copy that is kept; the rest are the trained weights");
  optimizer.real("lookahead-power", &O::lookahead_power, {0, 100},
                 "--lookahead-decay is reached at the end only, and multiplied by (step / steps)^X before");
}

void add_parameters(std::vector<OptionSpec>& table) {
  using O = OptimizerOptions;
  OptimizerTable parameters(table, "parameters", &Options::optimizer);
  parameters.pattern_factors(
      "lr-for", &O::lr_for,
      "multiply the learning rate of the parameters whose names match PATTERN (with * and ?) by X");
  parameters.pattern_factors("decay-for", &O::decay_for,
                             "multiply the weight decay of the parameters whose names match PATTERN by X");
  parameters.choice("no-decay-on", &O::no_decay_on,
                    "norm-and-bias: exempt one-dimensional tensors from weight decay and from the layer-wise rates of "
                    "lars and lamb");
  parameters.pattern_fades("lr-fade-for", &O::lr_fade_for,
                           "train the parameters whose names match PATTERN in the first N epochs only, with a learning "
                           "rate that falls linearly to 0, in place of --schedule");
  parameters.pattern_freezes(
      "freeze", &O::freeze,
      "do not train the parameters whose names match PATTERN; with @N train them in the first N epochs only");
  parameters.begin_group("--freeze");
  parameters
      .choice("frozen-statistics", &O::frozen_statistics,
              "batch normalization all of whose parameters are frozen from the start; keep: it uses its running "
              "statistics, which do not change; update: it uses those of the batch and updates them")
      .unset = "keep";
}

void add_schedules(std::vector<OptionSpec>& table) {
  using O = OptimizerOptions;
  OptimizerTable schedule(table, "schedule", &Options::optimizer);
  schedule.choice("schedule", &O::schedule, "learning rate schedule");
  schedule.choice("schedule-by", &O::schedule_by,
                  "whether the learning rate changes per step or per epoch, and the unit of --lr-milestones; auto: "
                  "epoch for multi-step, else step");
  schedule.real("warmup-epochs", &O::warmup_epochs, {0, 1e6}, "epochs of linear warmup of the learning rate");
  schedule.choice("lr-scale", &O::lr_scale,
                  "scale --lr by the global batch divided by --lr-base-batch, or by its square root");
  schedule.begin_group("--lr-scale linear, sqrt");
  schedule.integer("lr-base-batch", &O::lr_base_batch, 1, kMaxBatch, "global batch for which --lr was chosen");
  schedule.begin_group("--schedule step, exponential");
  schedule.integer("lr-step-epochs", &O::lr_step_epochs, 0, kNoLimit, "epochs between decays");
  schedule.integer("lr-decay-steps", &O::lr_decay_steps, 0, kNoLimit,
                   "steps between decays, as an alternative to --lr-step-epochs");
  schedule.begin_group("--schedule exponential");
  schedule.on_off("lr-staircase", &O::lr_staircase, "decay in discrete steps");
  schedule.begin_group("--schedule multi-step");
  schedule.milestones("lr-milestones", &O::lr_milestones, "epochs at which the learning rate decays");
  schedule.begin_group("--schedule step, multi-step, exponential");
  schedule.real("lr-gamma", &O::lr_gamma, {0, 1}, "factor applied at each decay");
  schedule.begin_group("--schedule cosine, polynomial");
  schedule.real("lr-min", &O::lr_min, kLearningRates, "final learning rate");
  schedule.begin_group("--schedule polynomial");
  schedule.real("lr-power", &O::lr_power, {0, 100}, "exponent");
  schedule.begin_group("--schedule one-cycle");
  schedule.choice("one-cycle-anneal", &O::one_cycle_anneal, "change the learning rate along cosines or straight lines");
  schedule.real("one-cycle-rise", &O::one_cycle_rise, {0, 1, true, true},
                "fraction of training during which the learning rate increases");
  schedule.real("one-cycle-div", &O::one_cycle_div, {1, 1e9}, "peak --lr divided by the initial rate");
  schedule.real("one-cycle-final-div", &O::one_cycle_final_div, {1, 1e12}, "initial rate divided by the final rate");
  schedule.on_off("one-cycle-momentum", &O::one_cycle_momentum,
                  "cycle momentum (or beta1) inversely to the learning rate");
  schedule.begin_group("--one-cycle-momentum");
  schedule.real("one-cycle-low-momentum", &O::one_cycle_low_momentum, {0, 1, true}, "value at the peak learning rate");
  schedule.real("one-cycle-high-momentum", &O::one_cycle_high_momentum, {0, 1, true}, "initial and final value");
}

// The loss, and what is not a matter of a single update.
void add_training(std::vector<OptionSpec>& table) {
  using O = OptimizerOptions;
  OptimizerTable training(table, "training", &Options::optimizer);
  training.real("label-smoothing", &O::label_smoothing, {0, 1, true},
                "fraction of the target probability spread uniformly over all classes");
  training.real("epochs", &O::epochs, {0, 1e9, false, true}, "passes over the training set; may be fractional");
  training.integer("max-steps", &O::max_steps, 0, kNoLimit, "stop after this many steps; 0: no limit");
  training.bits("seed", &O::seed, "seed for weights, sample order and augmentation");
  training.on_off("deterministic", &O::deterministic,
                  "bit-identical results in every run with the same --logical-shards, on any number of ranks");
  training.choice("on-nonfinite", &O::on_nonfinite,
                  "what follows a step whose loss or gradient is not finite; stop: end with code 6; skip: go on "
                  "without an update; rollback: go on with the weights of the newest checkpoint");
  training.begin_group("--on-nonfinite skip, rollback");
  training.integer("nonfinite-limit", &O::nonfinite_limit, 1, kNoLimit,
                   "end with code 6 after more than this many such steps");
  training.begin_group("--precision fp16");
  training.real("loss-scale", &O::loss_scale, {1, kMostLossScale},
                "factor of the loss in the first step, which keeps small gradients from becoming zero; a power of two, "
                "which is halved whenever the gradient overflows");
  training.integer("loss-scale-interval", &O::loss_scale_interval, 0, kNoLimit,
                   "steps without overflow after which the factor is doubled; 0: never");
}

}  // namespace

void add_training_options(std::vector<OptionSpec>& table) {
  OptimizerTable optimizer(table, "optimizer", &Options::optimizer);
  add_updates(optimizer);
  add_update_groups(optimizer);
  add_parameters(table);
  add_schedules(table);
  add_training(table);
}

}  // namespace ddp
