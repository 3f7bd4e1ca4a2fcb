#include "options/foreign_names.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "base/text/text.h"

namespace ddp {
namespace {

constexpr auto kForeignNames = std::to_array<ForeignNames>({
    {"lr", "", "learning-rate base-lr initial-lr lr0 max-lr init-lr"},
    {"weight-decay", "", "wd l2 l2-reg l2-regularization"},
    {"workers", "", "num-workers j dataloader-num-workers n-workers"},
    {"prefetch", "", "prefetch-factor max-queue-size"},
    {"epochs", "", "num-epochs max-epochs n-epochs nb-epochs num-train-epochs epoch total-epochs"},
    {"max-steps", "", "total-steps num-steps max-iters max-iter iterations num-iterations max-train-steps"},
    {"global-batch", "", "batch bs train-batch-size total-batch-size"},
    {"batch-per-rank", "",
     "per-device-train-batch-size batch-size-per-gpu batch-per-gpu per-gpu-batch-size micro-batch-size"},
    {"data-dir", "", "data root data-path dataset-dir datadir directory data-root train-dir traindir"},
    {"model", "", "arch architecture net network backbone model-name a"},
    {"optimizer", "", "optim opt optimiser optimizer-name"},
    {"schedule", "", "scheduler lr-scheduler sched lr-schedule lr-policy lr-sched lr-scheduler-type lr-decay-style"},
    {"schedule-by", "", "sched-on-updates"},
    {"output", "",
     "save-dir output-dir out-dir outdir default-root-dir log-dir logdir checkpoint-dir ckpt-dir save-path "
     "work-dir experiment run-name workdir model-dir out o"},
    {"init-from", "", "pretrained weights initial-checkpoint pretrained-path finetune load-weights init-checkpoint"},
    {"resume", "", "ckpt-path resume-from-checkpoint resume-from ckpt load-checkpoint restore"},
    {"seed", "", "random-seed manual-seed random-state rng-seed"},
    {"gpus", "", "gpu gpu-ids device-ids gpu-id devices"},
    {"device", "", "accelerator use-cuda"},
    {"loss-scale", "", "init-scale loss-scale-factor initial-scale"},
    {"loss-scale-interval", "", "growth-interval dynamic-growth-steps"},
    {"rho", "", "alpha"},
    {"epsilon", "", "eps opt-eps adam-epsilon"},
    {"beta1", "", "beta-1 adam-beta1 b1"},
    {"beta2", "", "beta-2 adam-beta2 b2"},
    {"ema-decay", "", "ema model-ema model-ema-decay ema-momentum use-ema averaging-decay"},
    {"ema-warmup", "", "model-ema-warmup"},
    {"clip-norm", "",
     "clip-grad clipnorm max-grad-norm clip-grad-norm gradient-clip-val global-clipnorm grad-clip max-norm "
     "gradient-clip clip"},
    {"clip-value", "", "clipvalue clip-grad-value"},
    {"one-cycle-rise", "", "pct-start"},
    {"one-cycle-momentum", "", "cycle-momentum"},
    {"one-cycle-low-momentum", "", "base-momentum"},
    {"one-cycle-high-momentum", "", "max-momentum"},
    {"one-cycle-div", "", "div-factor"},
    {"one-cycle-final-div", "", "final-div-factor"},
    {"one-cycle-anneal", "", "anneal-strategy"},
    {"lr-milestones", "", "milestones decay-milestones multisteplr-milestones lr-steps lr-step boundaries"},
    {"lr-step-epochs", "", "step-size lr-step-size decay-epochs decay-epoch lr-drop"},
    {"lr-decay-steps", "", "decay-steps"},
    {"lr-gamma", "", "gamma decay-rate lr-decay lr-decay-rate lr-factor"},
    {"lr-staircase", "", "staircase"},
    {"lr-power", "", "power poly-power"},
    {"lr-min", "", "min-lr eta-min end-learning-rate final-lr lr-end"},
    {"warmup-epochs", "", "warmup lr-warmup-epochs warmup-epoch num-warmup-epochs lr-warmup"},
    {"lr-base-batch", "", "lr-base-size"},
    {"lr-scale", "", "lr-base-scale auto-scale-lr scale-lr"},
    {"label-smoothing", "", "smoothing label-smooth ls label-smoothing-factor"},
    {"image-size", "",
     "img-size imgsz train-crop-size crop-size input-size image-shape img resolution input-shape "
     "target-size train-res img-dim im-size"},
    {"eval-size", "", "val-crop-size eval-res test-input-size"},
    {"eval-crop", "", "crop-pct crop-ratio"},
    {"interpolation", "", "train-interpolation val-interpolation"},
    {"resize", "", "resize-mode crop-to-aspect-ratio pad-to-aspect-ratio"},
    {"image-channels", "", "in-chans in-channels color-mode input-channels"},
    {"random-flip", "", "hflip horizontal-flip random-horizontal-flip fliplr flip"},
    {"random-crop-padding", "", "crop-padding padding random-crop"},
    {"random-resized-crop", "", "rrc"},
    {"color-jitter", "", "colorjitter"},
    {"trivial-augment", "", "ta-wide trivialaugment trivial-augment-wide"},
    {"repeat-augment", "", "aug-repeats ra-sampler ra-reps repeated-aug repeated-augmentation"},
    {"mixup", "", "mixup-alpha"},
    {"cutmix", "", "cutmix-alpha"},
    {"mixup-per", "", "mixup-mode"},
    {"random-erasing", "", "random-erase reprob erasing re-prob"},
    {"cutout", "", "cutout-length"},
    {"deterministic", "", "use-deterministic-algorithms use-deterministic cudnn-deterministic enable-op-determinism"},
    {"sync-batch-norm", "", "sync-bn sync-batchnorm syncbn use-sync-bn"},
    {"log-interval", "", "print-freq log-every-n-steps log-freq logging-steps log-every print-every p"},
    {"checkpoint-every", "",
     "save-every recovery-interval save-freq save-steps every-n-train-steps save-interval "
     "checkpoint-interval checkpoint-freq"},
    {"keep-checkpoints", "", "checkpoint-hist save-top-k save-total-limit max-to-keep"},
    {"eval-every", "",
     "check-val-every-n-epoch validation-freq eval-freq eval-interval val-interval val-freq eval-epochs "
     "val-every"},
    {"eval-views", "", "tta test-time-augmentation"},
    {"train-limit", "", "train-num-samples limit-train-batches max-train-samples num-train-samples overfit-batches"},
    {"test-limit", "",
     "val-num-samples limit-val-batches limit-test-batches max-eval-samples validation-steps "
     "max-test-samples"},
    {"freeze", "", "freeze-layers frozen freeze-backbone frozen-stages freeze-encoder"},
    {"bucket-mib", "", "bucket-cap-mb"},
    {"split-linear", "", "tensor-parallel tensor-model-parallel-size tp-size"},
    {"pipeline", "", "pipeline-parallel pp-size num-stages pipeline-model-parallel-size"},
    {"threads", "", "num-threads intra-op-num-threads omp-num-threads nthreads"},
    {"progress", "", "verbose enable-progress-bar silent quiet progress-bar"},
    {"cuda-graph", "", "cuda-graphs cudagraph cudagraphs"},
    {"no-decay-on", "", "norm-weight-decay bias-weight-decay no-weight-decay-on-bias"},
    {"lr-for", "", "lr-mult"},
    {"gpu-memory-fraction", "", "per-process-gpu-memory-fraction memory-fraction"},
    {"rmsprop-form", "", "tf-rmsprop"},
    {"lars-trust", "", "trust-coefficient trust-coeff eeta"},
    {"muon-steps", "", "ns-steps"},
    {"progressive-size", "", "progressive-resizing min-res"},
    {"image-cache", "", "cache-dataset cache-images cache cache-dir"},
    {"log-level", "", "loglevel logging-level"},
    {"nesterov", "", "use-nesterov"},
    {"timeout", "", "max-hang-time"},
    {"max-bad-samples", "", "skip-corrupt ignore-errors"},
    {"sweep", "", "hparams grid"},
    {"trace", "", "profiler profile"},
    {"tensorboard", "", "tb use-tensorboard"},
    {"plan-cache", "", "compile-cache"},
    {"init", "", "initialization initializer weight-init kernel-initializer"},
    {"normalize", "", "normalization normalise featurewise-std-normalization"},
    // Options with a value, or a way that differs.
    {"precision", "use --precision bf16, or fp16",
     "amp mixed-precision fp16 bf16 half autocast use-amp amp-dtype model-dtype dtype float16 bfloat16 "
     "16bit"},
    {"precision", "use --precision tf32", "tf32 allow-tf32 float32-matmul-precision"},
    {"normalize", "use --normalize standard or imagenet", "mean std rescale featurewise-center samplewise-center"},
    {"lr-scale", "use --lr with --lr-scale linear, which scales it from a batch of --lr-base-batch",
     "lr-base linear-scaling auto-lr"},
    {"logical-shards", "gradient accumulation is --logical-shards N: the global batch is computed in N parts",
     "grad-accum grad-accum-steps accumulate-grad-batches gradient-accumulation-steps "
     "gradient-accumulation accumulation-steps accum-iter accum-steps accumulate update-freq iter-size "
     "grad-accumulation"},
    {"rand-augment", "use --rand-augment 2,9, or --trivial-augment",
     "aa aug auto-augment autoaugment augment augmentation randaugment randaug ra augmentations "
     "data-augmentation policy"},
    {"rand-augment", "use --rand-augment N,M with N operations of magnitude M", "ra-magnitude ra-num-ops"},
    {"color-jitter", "use --color-jitter B,C,S such as 0.4,0.4,0.4",
     "brightness contrast saturation brightness-range jitter color-jitter-strength"},
    {"new-classifier",
     "the number of classes is that of the data; for weights of another number use --new-classifier with --init-from",
     "num-classes nb-classes n-classes classes num-labels number-of-classes class-num"},
    {"image-size", "the number of classes and channels is that of the data; use --image-size and --image-channels",
     "in-shape"},
    {"model", "to evaluate a checkpoint use the command eval, as in: ddp_train eval --run RUN",
     "test-only evaluate eval-only e validate only-eval eval test val-only do-eval eval-first"},
    {"beta1", "use --beta1 and --beta2", "betas opt-betas"},
    {"warmup-epochs", "warmup begins at 0 and is linear over --warmup-epochs, which may be a fraction",
     "warmup-lr lr-warmup-method lr-warmup-decay warmup-prefix warmup-steps num-warmup-steps warmup-ratio "
     "warmup-iters warmup-factor warmup-bias-lr start-factor warmup-momentum warmup-method "
     "warmup-proportion"},
    {"schedule", "use --schedule cosine, which ends at --lr-min after --epochs",
     "t-max cosine cosine-lr lr-cosine cos"},
    {"batch-per-rank",
     "each rank evaluates as many samples at once as it trains; use --batch-per-rank or --global-batch",
     "validation-batch-size val-batch-size eval-batch-size test-batch-size per-device-eval-batch-size"},
    {"optimizer", "use --optimizer adamw, sgd or another one that --help optimizer lists",
     "adam adamw sgd lamb lars rmsprop muon use-adam"},
    {"epochs",
     "training ends after --epochs or --max-steps; a time limit is that of Slurm, or timeout(1) with a signal, which "
     "saves first",
     "max-time time-limit min-epochs min-steps"},
    {"resume", "use --resume auto, which continues at the step of the checkpoint",
     "start-epoch initial-epoch last-epoch begin-epoch auto-resume resume-epoch no-resume-opt"},
    {"drop-last", "the last batch of an epoch is dropped with --drop-last", "drop-remainder droplast"},
    {"output", "the folder of the run is --output; TensorBoard reads it as it is", "logger"},
    {"val-split", "",
     "validation-split val-fraction val-ratio val-size test-split train-split split test-size holdout val-pct"},
    {"fold", "", "kfold k-fold folds cv cross-validation n-folds num-folds"},
    {"max-steps", "use --max-steps, or --train-limit for a small data set", "steps-per-epoch fast-dev-run"},
    // What this program does not have.
    {"",
     "there is no early stopping; train for --epochs, and use the best checkpoint, which is kept: export --checkpoint "
     "best",
     "early-stopping early-stop patience patience-epochs early-stopping-patience es-patience monitor "
     "min-delta restore-best-weights eval-metric save-best-only save-last metric-for-best-model "
     "load-best-model-at-end best-metric threshold cooldown cooldown-epochs reduce-lr-on-plateau factor"},
    {"", "put images for validation into DATA-DIR/val/CLASS, beside train, or let --val-split choose some",
     "validation-data subset val-dir valdir val-data validation-dir"},
    {"", "there are no weights of classes or samples; balance the numbers of training images instead",
     "class-weights class-weight weighted-sampler sample-weight balanced pos-weight class-balanced "
     "focal-loss bce-pos-weight loss-weights weighted-loss balance-classes ignore-index oversample "
     "sample-weights"},
    {"", "the loss is the cross-entropy, with --label-smoothing, --mixup and --cutmix; there is no other",
     "loss criterion bce-loss bce-sum bce-target-thresh jsd-loss loss-fn loss-function bce multi-label "
     "multilabel"},
    {"", "there is no drop path (stochastic depth); --label-smoothing, --mixup and --weight-decay regularize, too",
     "drop-path drop-connect stochastic-depth drop-path-rate stochastic-depth-prob drop-block droppath "
     "layerdrop"},
    {"",
     "rates of dropout belong to the network; export one with other rates to ONNX and train it with --model FILE.onnx",
     "drop dropout drop-rate dropout-rate p-dropout hidden-dropout-prob"},
    {"",
     "the settings of a network are part of it; export one with other settings to ONNX and train it with --model "
     "FILE.onnx",
     "bn-momentum bn-eps model-kwargs fast-norm head-init-scale head-init-bias gp split-bn norm-layer "
     "width-mult depth width activation attention-dropout num-layers patch-size embed-dim hidden-size "
     "num-heads batch-norm-momentum bn-tf"},
    {"", "there are no learning rates by layer; use --lr-for PATTERN=X,... for those of parameters",
     "layer-decay layer-decay-min-scale layer-decay-no-opt-scale llrd layer-lr-decay lr-backbone "
     "backbone-lr"},
    {"", "there is no such schedule; --help schedule lists those of --schedule",
     "lr-noise lr-noise-pct lr-noise-std lr-cycle-mul lr-cycle-decay lr-cycle-limit lr-k-decay t-0 t-mult "
     "t-mul cycle-limit restarts num-cycles three-phase end-factor total-iters mode lr-min-rate"},
    {"", "a gradient is not clipped in other ways than by --clip-norm and --clip-value",
     "clip-mode gradient-clip-algorithm agc adaptive-gradient-clipping"},
    {"", "an image is in each epoch once, or in a batch several times with --repeat-augment",
     "epoch-repeats aug-splits resplit"},
    {"", "there is no such augmentation; --help augmentation lists those that there are",
     "vflip vertical-flip grayscale-prob gaussian-blur-prob color-jitter-prob augmix-severity "
     "rotation-range width-shift-range height-shift-range zoom-range shear-range rotation three-augment "
     "scale ratio cutmix-minmax mixup-prob mixup-switch-prob mixup-off-epoch mixup-off no-aug remode "
     "recount augmix degrees flipud blur grayscale train-crop-mode channel-shift-range translate hue "
     "random-rotation gaussian-blur random-affine crop-mode fill-mode cutmix-prob mosaic hsv-h src"},
    {"", "images are resized with antialiasing, and evaluation takes the centre, of which --eval-crop is the share",
     "val-resize-size resize-size center-crop antialias val-resize"},
    {"", "the order of the samples is always random, and a function of --seed and the epoch",
     "shuffle sampler batch-sampler use-distributed-sampler worker-seeding worker-init-fn shuffle-buffer "
     "generator"},
    {"", "the data set is read by its own loader, which needs no such option; see --workers and --prefetch",
     "pin-memory pin-mem persistent-workers no-prefetcher collate-fn use-multi-epochs-loader "
     "dataset-download download backend use-v2 dataset-trust-remote-code input-img-mode input-key "
     "target-key class-map reload-dataloaders-every-n-epochs labels label-mode class-names pad-images "
     "multiprocessing-context use-multiprocessing in-order download-data class-mode streaming"},
    {"", "kernels, layouts and recorded steps are chosen by measurement; there is nothing to switch on",
     "channels-last torchcompile torchscript torchcompile-mode compile jit-compile fuser benchmark "
     "cudnn-benchmark steps-per-execution run-eagerly amp-impl jit torch-compile foreach fused capturable "
     "auto-scale-loss cudnn fused-optimizer xla dynamo inductor"},
    {"", "activations are not recomputed; use a smaller part of the batch at a time: --logical-shards",
     "grad-checkpointing gradient-checkpointing activation-checkpointing checkpoint-activations "
     "use-checkpoint remat"},
    {"", "ranks are started by mpirun, srun or launch/run, as in: launch/run -np 8 -- --global-batch 256",
     "world-size rank local-rank dist-url dist-backend distributed multiprocessing-distributed "
     "nproc-per-node nnodes node-rank master-addr master-port num-nodes strategy num-processes num-gpus "
     "ngpus n-gpus rdzv-endpoint rdzv-backend ddp no-ddp-bb num-machines machine-rank launcher init-method "
     "parallel np n nodes hosts use-ddp sync-dist gpus-per-node"},
    {"", "gradients are always averaged over the global batch, in buckets (--bucket-mib); there is no such option",
     "find-unused-parameters gradient-as-bucket-view static-graph broadcast-buffers synchronize-step "
     "dist-bn compression no-sync"},
    {"", "weights, gradients and optimizer state are not divided among the ranks but for --split-linear and --pipeline",
     "fsdp zero zero-stage deepspeed zero-optimization offload shard-optimizer sharding-strategy"},
    {"", "each optimizer has the options that --help optimizer lists, and no such one",
     "amsgrad dampening maximize centered differentiable momentum-decay opt-kwargs lambd t0 optim-args "
     "ema-overwrite-frequency etas step-sizes initial-accumulator-value lr-decay-rate-adagrad "
     "decoupled-weight-decay rectify ams-bound"},
    {"", "metrics are in RUN/metrics.jsonl, RUN/summary.csv and TensorBoard files; there is no upload",
     "log-wandb wandb wandb-project wandb-name wandb-tags mlflow comet report-to use-wandb wandb-entity "
     "log-to-wandb push-to-hub wandb-run-name wandb-resume-id neptune"},
    {"", "the loss and accuracy are always measured; eval prints them", "metrics weighted-metrics topk top-k"},
    {"", "distillation is not supported; train on the labels",
     "distillation kd-model-name distill teacher teacher-model distillation-type distillation-alpha "
     "distillation-tau kd-distill-loss kd-task-loss kd-temperature kd-loss-type"},
    {"", "there is no plug-in; see docs/options.md for what there is",
     "callbacks plugins detect-anomaly barebones enable-checkpointing enable-model-summary inference-mode "
     "model-registry num-sanity-val-steps val-check-interval limit-predict-batches save-images "
     "device-modules model-ema-force-cpu model-ema-steps growth-factor backoff-factor dummy config-file "
     "transformer-embedding-decay sanity-check reduction weight every-n-epochs opt-betas-schedule "
     "log-model"},
});

// In lower case and without '-', '_' and '.'.
constexpr auto kForeignValues = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"cosineannealinglr", "cosine"},
    {"cosineannealing", "cosine"},
    {"cosinedecay", "cosine"},
    {"cosinelr", "cosine"},
    {"steplr", "step"},
    {"multisteplr", "multi-step"},
    {"multistep", "multi-step"},
    {"onecyclelr", "one-cycle"},
    {"onecycle", "one-cycle"},
    {"exponentiallr", "exponential"},
    {"exponentialdecay", "exponential"},
    {"polynomiallr", "polynomial"},
    {"poly", "polynomial"},
    {"polynomialdecay", "polynomial"},
    {"constantlr", "constant"},
    {"piecewiseconstantdecay", "multi-step"},
    {"none", "constant"},
    {"gpu", "cuda"},
    {"nvidia", "cuda"},
    {"float32", "fp32"},
    {"32", "fp32"},
    {"32true", "fp32"},
    {"full", "fp32"},
    {"float16", "fp16"},
    {"half", "fp16"},
    {"16", "fp16"},
    {"16mixed", "fp16"},
    {"mixedfloat16", "fp16"},
    {"16true", "fp16"},
    {"bfloat16", "bf16"},
    {"bf16mixed", "bf16"},
    {"mixedbfloat16", "bf16"},
    {"bf16true", "bf16"},
    {"momentum", "sgd"},
    {"nesterov", "sgd"},
    {"sgdm", "sgd"},
    {"adamwscheduled", "adamw"},
    {"kaimingnormal", "kaiming"},
    {"kaiminguniform", "kaiming"},
    {"he", "kaiming"},
    {"henormal", "kaiming"},
    {"xavieruniform", "xavier"},
    {"glorot", "xavier"},
    {"glorotuniform", "xavier"},
    {"xaviernormal", "xavier"},
    {"rgb", "3"},
    {"color", "3"},
    {"colour", "3"},
    {"grayscale", "1"},
    {"greyscale", "1"},
    {"grey", "1"},
    {"gray", "1"},
    {"linear", "polynomial"},
});

std::string letters_of(std::string_view text) {
  std::string letters;
  for (const char c : text) {
    if (c != '-' && c != '_' && c != '.') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return letters;
}

}  // namespace

std::span<const ForeignNames> foreign_names() { return kForeignNames; }

const ForeignNames* find_foreign(std::string_view name) {
  if (name.empty() || name.find(' ') != std::string_view::npos) return nullptr;
  const auto* const found = std::find_if(kForeignNames.begin(), kForeignNames.end(),
                                         [name](const ForeignNames& each) { return has_word(each.names, name); });
  return found == kForeignNames.end() ? nullptr : found;
}

std::string suggest_value(std::string_view word, std::span<const std::string> values) {
  const std::string letters = letters_of(word);
  for (const std::string& value : values) {
    if (letters_of(value) == letters) return value;
  }
  for (const auto& [elsewhere, value] : kForeignValues) {
    if (letters == elsewhere && std::find(values.begin(), values.end(), value) != values.end()) {
      return std::string(value);
    }
  }
  const std::string near = nearest(word, values);
  return edit_distance(letters, letters_of(near)) > std::max<std::size_t>(1, letters.size() / 3) ? "" : near;
}

}  // namespace ddp
