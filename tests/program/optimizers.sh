#!/usr/bin/env bash
# Runs with each optimizer resume from a checkpoint bit-identically, also on another number of ranks; a checkpoint of
# another optimizer is rejected; evaluations use the moving average; Muon, which has memory of its own on a device, trains the
# same weights on a stand-in for a GPU as on the CPU.
set -u
source "$(dirname "$0")/lib.sh"
: "${STAND_IN_GPU_MODULE:?}"

exact=("${small[@]}" --momentum 0 --deterministic --logical-shards 2 --max-steps 10 --epochs 2)
check() {
  local name=$1
  shift
  run 0 60 1 "${exact[@]}" "$@" --output "$folder/$name"
  run 0 60 2 "${exact[@]}" "$@" --output "$folder/$name-again" --max-steps 3 --steps-in-flight 2
  run 0 60 1 "${exact[@]}" "$@" --output "$folder/$name-again" --resume auto --steps-in-flight 3
  same_tensors "$folder/$name/latest" "$folder/$name-again/latest"
}
check sgd --momentum 0.9 --decay decoupled --weight-decay 0.01 --clip-norm 1 --schedule multi-step --lr-milestones 1
check adam --optimizer adam --lr 0.001 --weight-decay 0.01 --schedule one-cycle --lr-scale sqrt
check adamw --optimizer adamw --lr 0.001 --weight-decay 0.1 --no-decay-on norm-and-bias --clip-norm 1 --ema-decay 0.9
check rmsprop --trivial-augment --optimizer rmsprop --lr 0.001 --momentum 0.5 --rmsprop-form keras --schedule polynomial
check lars --optimizer lars --lr 1 --momentum 0.9 --weight-decay 0.001 --lars-trust 0.02 --warmup-epochs 1
check lookahead --momentum 0.9 --nesterov --lookahead 2 --lookahead-decay 0.8 --lookahead-power 3 --model mnist-slim \
  --freeze 'conv1.weight,bn2.bias@0.4' --lr-for 'bn?.bias=4,fc2.*=0.5' --decay-for 'bn?.bias=0' --weight-decay 0.01 \
  --random-flip alternate --cutmix 1 --mixup 0.4 --mixup-per batch --random-erasing 0.5 --epochs 0.9 --max-steps 0 \
  --schedule one-cycle --one-cycle-anneal linear
# The part of an epoch with which it ends is evaluated and listed.
evaluated=$(tail -1 "$folder/lookahead/summary.csv" | cut -d, -f1,5)
[[ $evaluated =~ ^1,[01] ]] || fail "the last part of an epoch was not evaluated: $evaluated"
check muon --optimizer muon --lr 0.02 --momentum 0.9 --nesterov --weight-decay 0.01 --decay-for '*.weight=0.5' --clip-norm 1 \
  --muon-normalize --muon-momentum 0.6 --ema-decay 0.9 --rand-augment 2,9 --lr-fade-for '*.bias@1'
muon=("${exact[@]}" --optimizer muon --lr 0.02 --momentum 0.9 --max-steps 12 --model lenet)
run 0 60 1 "${muon[@]}" --device cpu --output "$folder/muon-cpu"
DDP_CUDA_MODULE=$STAND_IN_GPU_MODULE STAND_IN_GPUS='0000:01:00.0' run 0 60 1 "${muon[@]}" --device cuda --output "$folder/muon-cuda"
same_tensors "$folder/muon-cpu/latest" "$folder/muon-cuda/latest"
check lamb --optimizer lamb --lr 0.01 --weight-decay 0.01 --schedule exponential --lr-decay-steps 5

run 8 60 2 "${exact[@]}" --optimizer adam --output "$folder/adamw" --resume auto
one_line 'the checkpoint was made with --optimizer adamw, this run has adam; use the same value'
run 8 60 1 "${exact[@]}" --optimizer adamw --output "$folder/adamw" --resume auto
one_line "tensor 'ema\..* of the checkpoint is not in this run; use the .* options of"

# Evaluation of the weights or of their average, as requested.
told() { sed 's/.*"val_loss":\([0-9.]*\).*/\1/'; }
logged=$(grep '"val_loss"' "$folder/adamw/metrics.jsonl" | tail -1 | told)
run 0 60 2 eval --json "${exact[@]}" --optimizer adamw --ema-decay 0.9 --output "$folder/adamw"
[ "$(told <"$folder/out")" = "$logged" ] || fail "eval of the average does not say $logged"
run 0 60 1 eval --json "${exact[@]}" --optimizer adamw --ema-decay 0 --output "$folder/adamw"
[ "$(told <"$folder/out")" != "$logged" ] || fail "eval of the weights and of the average give the same result"
run 8 60 1 eval "${exact[@]}" --device cpu --ema-decay 0.9 --output "$folder/sgd"
one_line "contains no moving average of the weights, since the run had no --ema-decay; remove --average .export. or --ema-decay .eval."
finish
