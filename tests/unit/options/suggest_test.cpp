// What is said of options that only other programs have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "options/foreign_names.h"
#include "options/table/table.h"
#include "support.h"

namespace ddp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The options of other programs as their help or documentation lists them: NAME=KEY is our --KEY, NAME=- has no counterpart,
// and NAME alone is ours as well.
struct Published {
  const char* source;
  const char* names;
};
constexpr Published kPublished[] = {
    {"torchvision: references/classification/train.py",
     "data-path=data-dir model device batch-size epochs workers opt=optimizer lr momentum weight-decay "
     "wd=weight-decay norm-weight-decay=no-decay-on bias-weight-decay=no-decay-on transformer-embedding-decay=- "
     "label-smoothing mixup-alpha=mixup cutmix-alpha=cutmix lr-scheduler=schedule lr-warmup-epochs=warmup-epochs "
     "lr-warmup-method=warmup-epochs lr-warmup-decay=warmup-epochs lr-step-size=lr-step-epochs lr-gamma lr-min "
     "print-freq=log-interval output-dir=output resume start-epoch=resume cache-dataset=image-cache "
     "sync-bn=sync-batch-norm test-only=model auto-augment=rand-augment ra-magnitude=rand-augment "
     "augmix-severity=- random-erase=random-erasing amp=precision world-size=- dist-url=- model-ema=ema-decay "
     "model-ema-steps=- model-ema-decay=ema-decay use-deterministic-algorithms=deterministic interpolation "
     "val-resize-size=- val-crop-size=eval-size train-crop-size=image-size clip-grad-norm=clip-norm "
     "ra-sampler=repeat-augment "
     "ra-reps=repeat-augment weights=init-from backend=- use-v2=-"},
    {"PyTorch: examples/imagenet/main.py",
     "arch=model workers epochs start-epoch=resume batch-size lr momentum weight-decay print-freq=log-interval "
     "resume evaluate=model pretrained=init-from world-size=- rank=- dist-url=- dist-backend=- seed gpu=gpus "
     "multiprocessing-distributed=- dummy=-"},
    {"PyTorch: torch.optim, its schedulers, DataLoader, DistributedDataParallel, GradScaler, torchrun",
     "lr betas=beta1 eps=epsilon weight_decay amsgrad=- maximize=- foreach=- fused=- capturable=- differentiable=- "
     "momentum dampening=- nesterov alpha=rho centered=- rho momentum_decay=- ns_steps=muon-steps "
     "step_size=lr-step-epochs gamma=lr-gamma milestones=lr-milestones T_max=schedule eta_min=lr-min "
     "last_epoch=resume T_0=- T_mult=- max_lr=lr total_steps=max-steps epochs steps_per_epoch=max-steps "
     "pct_start=one-cycle-rise anneal_strategy=one-cycle-anneal cycle_momentum=one-cycle-momentum "
     "base_momentum=one-cycle-low-momentum max_momentum=one-cycle-high-momentum div_factor=one-cycle-div "
     "final_div_factor=one-cycle-final-div three_phase=- factor=- patience=- threshold=- cooldown=- min_lr=lr-min "
     "start_factor=warmup-epochs end_factor=- total_iters=- power=lr-power batch_size shuffle=- sampler=- "
     "batch_sampler=- num_workers=workers collate_fn=- pin_memory=- drop_last worker_init_fn=- generator=- "
     "prefetch_factor=prefetch persistent_workers=- weight=- ignore_index=- label_smoothing reduction "
     "bucket_cap_mb=bucket-mib find_unused_parameters=- gradient_as_bucket_view=- static_graph=- "
     "broadcast_buffers=- init_scale=loss-scale growth_factor=- backoff_factor=- "
     "growth_interval=loss-scale-interval max_norm=clip-norm nproc_per_node=- nnodes=- node_rank=- master_addr=- "
     "master_port=- rdzv_endpoint=- rdzv_backend=-"},
    {"timm: train.py",
     "data=data-dir data-dir dataset train-split=val-split val-split train-num-samples=train-limit "
     "val-num-samples=test-limit dataset-download=- class-map=- input-img-mode=- input-key=- target-key=- "
     "dataset-trust-remote-code=- model pretrained=init-from pretrained-path=init-from "
     "initial-checkpoint=init-from resume no-resume-opt=resume num-classes=new-classifier gp=- img-size=image-size "
     "in-chans=image-channels input-size=image-size crop-pct=eval-crop mean=normalize std=normalize interpolation "
     "batch-size validation-batch-size=batch-per-rank channels-last=- fuser=- grad-accum-steps=logical-shards "
     "grad-checkpointing=- fast-norm=- model-kwargs=- head-init-scale=- head-init-bias=- torchcompile-mode=- "
     "torchscript=- torchcompile=- device amp=precision amp-dtype=precision amp-impl=- model-dtype=precision "
     "no-ddp-bb=- synchronize-step=- local-rank=- device-modules=- opt=optimizer opt-eps=epsilon opt-betas=beta1 "
     "momentum weight-decay clip-grad=clip-norm clip-mode=- layer-decay=- layer-decay-min-scale=- "
     "layer-decay-no-opt-scale=- opt-kwargs=- sched=schedule sched-on-updates=schedule-by lr lr-base=lr-scale "
     "lr-base-size=lr-base-batch lr-base-scale=lr-scale lr-noise=- lr-noise-pct=- lr-noise-std=- lr-cycle-mul=- "
     "lr-cycle-decay=- lr-cycle-limit=- lr-k-decay=- warmup-lr=warmup-epochs min-lr=lr-min epochs epoch-repeats=- "
     "start-epoch=resume decay-milestones=lr-milestones decay-epochs=lr-step-epochs warmup-epochs "
     "warmup-prefix=warmup-epochs cooldown-epochs=- patience-epochs=- decay-rate=lr-gamma no-aug=- "
     "train-crop-mode=- scale=- ratio=- hflip=random-flip vflip=- color-jitter color-jitter-prob=- "
     "grayscale-prob=- gaussian-blur-prob=- aa=rand-augment aug-repeats=repeat-augment aug-splits=- jsd-loss=- "
     "bce-loss=- "
     "bce-sum=- bce-target-thresh=- bce-pos-weight=- reprob=random-erasing remode=- recount=- resplit=- mixup "
     "cutmix cutmix-minmax=- mixup-prob=- mixup-switch-prob=- mixup-mode=mixup-per mixup-off-epoch=- "
     "smoothing=label-smoothing train-interpolation=interpolation drop=- drop-connect=- drop-path=- drop-block=- "
     "bn-momentum=- "
     "bn-eps=- sync-bn=sync-batch-norm dist-bn=- split-bn=- model-ema=ema-decay model-ema-force-cpu=- "
     "model-ema-decay=ema-decay model-ema-warmup=ema-warmup seed worker-seeding=- log-interval "
     "recovery-interval=checkpoint-every checkpoint-hist=keep-checkpoints workers save-images=- pin-mem=- "
     "no-prefetcher=- output experiment=output eval-metric=- tta=eval-views use-multi-epochs-loader=- log-wandb=- "
     "wandb-project=- wandb-tags=- wandb-resume-id=- kd-model-name=- kd-distill-loss=- kd-task-loss=- "
     "kd-temperature=-"},
    {"Keras: fit, compile, optimizers, callbacks, image_dataset_from_directory",
     "batch_size epochs verbose=progress callbacks=- validation_split=val-split validation_data=- shuffle=- "
     "class_weight=- "
     "sample_weight=- initial_epoch=resume steps_per_epoch=max-steps validation_steps=test-limit "
     "validation_batch_size=batch-per-rank validation_freq=eval-every optimizer loss=- loss_weights=- metrics=- "
     "weighted_metrics=- run_eagerly=- steps_per_execution=- jit_compile=- auto_scale_loss=- learning_rate=lr "
     "weight_decay clipnorm=clip-norm clipvalue=clip-value global_clipnorm=clip-norm use_ema=ema-decay "
     "ema_momentum=ema-decay ema_overwrite_frequency=- loss_scale_factor=loss-scale "
     "gradient_accumulation_steps=logical-shards beta_1=beta1 beta_2=beta2 epsilon amsgrad=- nesterov rho "
     "centered=- decay_steps=lr-decay-steps decay_rate=lr-gamma staircase=lr-staircase end_learning_rate=lr-min "
     "boundaries=lr-milestones monitor=- min_delta=- patience=- restore_best_weights=- save_best_only=- factor=- "
     "cooldown=- min_lr=lr-min directory=data-dir label_mode=- class_names=- color_mode=image-channels "
     "image_size subset=- interpolation crop_to_aspect_ratio=resize pad_to_aspect_ratio=resize seed rotation_range=- "
     "width_shift_range=- height_shift_range=- brightness_range=color-jitter shear_range=- zoom_range=- "
     "channel_shift_range=- fill_mode=- horizontal_flip=random-flip vertical_flip=- rescale=normalize "
     "featurewise_center=normalize samplewise_center=normalize mixed_precision=precision"},
    {"Lightning: Trainer, EarlyStopping, ModelCheckpoint",
     "accelerator=device strategy=- devices=gpus num_nodes=- precision logger=output callbacks=- "
     "fast_dev_run=max-steps max_epochs=epochs min_epochs=epochs max_steps min_steps=epochs max_time=epochs "
     "limit_train_batches=train-limit limit_val_batches=test-limit limit_test_batches=test-limit "
     "limit_predict_batches=- overfit_batches=train-limit val_check_interval=- check_val_every_n_epoch=eval-every "
     "num_sanity_val_steps=- log_every_n_steps=log-interval enable_checkpointing=- enable_progress_bar=progress "
     "enable_model_summary=- accumulate_grad_batches=logical-shards gradient_clip_val=clip-norm "
     "gradient_clip_algorithm=- deterministic benchmark=- inference_mode=- use_distributed_sampler=- "
     "profiler=trace detect_anomaly=- barebones=- plugins=- sync_batchnorm=sync-batch-norm "
     "reload_dataloaders_every_n_epochs=- default_root_dir=output model_registry=- ckpt_path=resume monitor=- "
     "min_delta=- patience=- mode=- save_top_k=keep-checkpoints save_last=- every_n_epochs=- "
     "every_n_train_steps=checkpoint-every"},
    {"words that people try",
     "early-stopping=- grad-accum=logical-shards warmup=warmup-epochs class-weights=- max-epochs=epochs "
     "mixed-precision=precision num-classes=new-classifier val-split val-dir aug=rand-augment "
     "lr-decay=lr-gamma dropout=- freeze-backbone=freeze imgsz=image-size n-epochs=epochs wd=weight-decay "
     "bs=global-batch optim=optimizer scheduler=schedule fp16=precision bf16=precision gpus wandb=- "
     "horizontal-flip=random-flip cosine=schedule adamw=optimizer AMP=precision Learning_Rate=lr"},
};

// The keys of the options that an advice names.
std::vector<std::string> named_options(const std::string& text) {
  std::vector<std::string> keys;
  for (std::size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 2)) {
    const std::size_t end = std::min(text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-", at), text.size());
    if (end > at + 2) keys.push_back(text.substr(at + 2, end - at - 2));
  }
  return keys;
}

TEST(Suggest, PublishedOptionsOfOtherProgramsHaveAnAnswer) {
  const std::vector<OptionSpec> table = option_table();
  for (const Published& program : kPublished) {
    SCOPED_TRACE(program.source);
    for (const std::string& word : words_of(program.names)) {
      const std::size_t equals = word.find('=');
      const std::string name = word.substr(0, equals);
      SCOPED_TRACE(name);
      if (equals == std::string::npos) {
        EXPECT_NE(find_option(table, suggest_key(table, name)), nullptr);
        continue;
      }
      const std::string expected = word.substr(equals + 1);
      const std::string advice = key_advice(table, "--" + name);
      EXPECT_THAT(advice, Not(HasSubstr("--help all")));
      EXPECT_EQ(suggest_key(table, name), expected == "-" ? "" : expected);
      EXPECT_EQ(advice.starts_with("did you mean"), advice == "did you mean --" + expected + "?") << advice;
      for (const std::string& key : named_options(advice)) {
        EXPECT_TRUE(key == "help" || find_option(table, key) != nullptr) << advice << " names --" << key;
      }
    }
  }
}

TEST(Suggest, ForeignNamesAreConsistent) {
  const std::vector<OptionSpec> table = option_table();
  std::set<std::string> seen;
  for (const ForeignNames& each : foreign_names()) {
    EXPECT_TRUE(each.key.empty() || find_option(table, each.key) != nullptr) << each.key;
    EXPECT_FALSE(each.key.empty() && each.advice.empty()) << each.names;
    EXPECT_EQ(each.advice.find('\n'), std::string_view::npos);
    for (const std::string& name : words_of(each.names)) {
      EXPECT_TRUE(seen.insert(name).second) << name << " is listed twice";
      EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-"), std::string::npos) << name;
    }
  }
}

TEST(Suggest, OnTheCommandLineAndInFiles) {
  EXPECT_THAT(usage_message({"--sched", "cosine"}),
              HasSubstr("unknown option --sched on the command line; did you mean "
                        "--schedule?"));
  EXPECT_THAT(usage_message({"--opt", "sgd"}), HasSubstr("did you mean --optimizer?"));
  EXPECT_THAT(usage_message({"--grad-accum=4"}), AllOf(HasSubstr("--logical-shards"), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(usage_message({"--drop-path", "0.1"}), HasSubstr("there is no drop path"));
  EXPECT_THAT(usage_message({"--Max_Epochs", "3"}), HasSubstr("did you mean --epochs?"));
  EXPECT_THAT(usage_message({"-j", "3"}), HasSubstr("did you mean --workers?"));
  const ConfigFile file("lr = 1\nmax_epochs = 9\n");
  EXPECT_THAT(usage_message({"--config", file.path()}), HasSubstr("did you mean 'epochs'?"));
  const ConfigFile absent("early_stopping = 9\n");
  EXPECT_THAT(usage_message({"--config", absent.path()}), HasSubstr("there is no early stopping"));
}

TEST(Suggest, NothingWhereNothingIsMeant) {
  const std::vector<OptionSpec> table = option_table();
  for (const char* word : {"--xylophone-quality", "-q", "--zz", "--", "---", "--foo", "--a b"}) {
    EXPECT_EQ(suggest_key(table, word), "") << word;
    EXPECT_EQ(key_advice(table, word), "--help all lists all options") << word;
  }
}

TEST(Suggest, ValuesInAnyCaseAndByOtherNames) {
  EXPECT_EQ(parse({"--optimizer", "AdamW"}).optimizer.optimizer, UpdateRule::adamw);
  EXPECT_EQ(parse({"--optimizer=SGD", "--nesterov", "True", "--momentum", "0.9"}).optimizer.nesterov, true);
  EXPECT_EQ(parse({"--precision", "BF16"}).model.precision, Precision::bf16);
  EXPECT_EQ(parse({"--overlap", "OFF"}).distributed.overlap, false);
  const ConfigFile file("schedule = Cosine\noptimizer = ADAM\n");
  EXPECT_EQ(parse({"--config", file.path()}).optimizer.schedule, ScheduleKind::cosine);
  EXPECT_THAT(usage_message({"--schedule", "CosineAnnealingLR"}), HasSubstr("unknown, did you mean cosine?"));
  EXPECT_THAT(usage_message({"--schedule", "one_cycle"}), HasSubstr("did you mean one-cycle?"));
  EXPECT_THAT(usage_message({"--precision", "bf16-mixed"}), HasSubstr("did you mean bf16?"));
  EXPECT_THAT(usage_message({"--device", "gpu"}), HasSubstr("did you mean cuda?"));
  EXPECT_THAT(usage_message({"--optimizer", "adamv"}), HasSubstr("did you mean adam?"));
  EXPECT_THAT(usage_message({"--optimizer", "lion"}), AllOf(HasSubstr("unknown; expected one of"), HasSubstr("muon")));
}

}  // namespace
}  // namespace ddp
