#!/usr/bin/env bash
# bf16, fp16 and tf32 on the CPU: the header says how they are computed, and they give the same bits on any number of ranks.
set -u
source "$(dirname "$0")/lib.sh"

first_loss() { grep '"loss"' "$1/metrics.jsonl" | head -1 | sed 's/.*"loss":\([0-9.e+-]*\),.*/\1/'; }
last_loss() { grep '"loss"' "$1/metrics.jsonl" | tail -1 | sed 's/.*"loss":\([0-9.e+-]*\),.*/\1/'; }
mixed=("${small[@]}" --device cpu --model mnist-slim --random-crop-padding 2 --deterministic --logical-shards 4 --epochs 1)

for ranks in 1 2 3; do
  run 0 120 "$ranks" "${mixed[@]}" --precision bf16 --output "$folder/bf16-$ranks"
  grep -q 'emulated by rounding' "$folder/out" || fail "the header does not say how bf16 is computed"
  same_tensors "$folder/bf16-1/latest" "$folder/bf16-$ranks/latest"
done
run 0 60 2 "${mixed[@]}" --precision bf16 --output "$folder/moved" --max-steps 3
run 0 60 1 "${mixed[@]}" --precision bf16 --output "$folder/moved" --resume auto
same_tensors "$folder/bf16-1/latest" "$folder/moved/latest"

# It is not fp32, but near it.
run 0 120 1 "${mixed[@]}" --output "$folder/fp32"
grep -q 'emulated' "$folder/out" && fail "fp32 is emulated"
cmp -s "$folder/fp32/latest/model.safetensors" "$folder/bf16-1/latest/model.safetensors" && fail "bf16 has the bits of fp32"
awk -v a="$(first_loss "$folder/fp32")" -v b="$(first_loss "$folder/bf16-1")" \
  'BEGIN { exit !(a > 0 && (a - b) ^ 2 < (0.02 * a) ^ 2) }' || fail "the first loss in bf16 is far from that in fp32"

# fp16 likewise. A loss scale that is too large overflows in the first steps, which are repeated with less of it: not one is left
# out, and a run that is interrupted goes on with the scale that it had.
scaled=("${mixed[@]}" --precision fp16 --loss-scale 16777216 --loss-scale-interval 5)
for ranks in 1 2 3; do
  run 0 120 "$ranks" "${scaled[@]}" --output "$folder/fp16-$ranks"
  grep -q 'step 1: the gradient overflows in fp16 with a loss scale of 16777216; repeated with 8388608' "$folder/err" ||
    fail "no step was repeated"
  grep -q 'fp16 emulated by rounding' "$folder/out" || fail "the header does not say how fp16 is computed"
  same_tensors "$folder/fp16-1/latest" "$folder/fp16-$ranks/latest"
done
[ "$(cut -d, -f1 "$folder/fp16-1/steps.csv" | sort | uniq -d | wc -l)" -eq 0 ] || fail "a step was recorded twice"
run 0 60 2 "${scaled[@]}" --output "$folder/moved-fp16" --max-steps 8
run 0 60 1 "${scaled[@]}" --output "$folder/moved-fp16" --resume auto
same_tensors "$folder/fp16-1/latest" "$folder/moved-fp16/latest"
# The scale changes results only by what fp16 cannot hold.
run 0 120 1 "${mixed[@]}" --precision fp16 --loss-scale 1 --loss-scale-interval 0 --output "$folder/unscaled"
grep -q 'overflows' "$folder/err" && fail "a loss scale of 1 overflows"
cmp -s "$folder/unscaled/latest/model.safetensors" "$folder/fp16-1/latest/model.safetensors" && fail "the loss scale has no effect"
for other in fp32 unscaled; do
  awk -v a="$(last_loss "$folder/$other")" -v b="$(last_loss "$folder/fp16-1")" \
    'BEGIN { exit !(a > 0 && (a - b) ^ 2 < (0.02 * a) ^ 2) }' || fail "the last loss in fp16 is far from that of $other"
done
run 2 30 1 "${mixed[@]}" --loss-scale 8
one_line '--loss-scale and --loss-scale-interval have no effect with --precision fp32, only with fp16; remove them'
run 2 30 1 "${mixed[@]}" --precision fp16 --loss-scale 1000
one_line '--loss-scale 1000 is not a power of two, which changes no digit of a gradient; use 512'

# Gradients in bfloat16 between the ranks of a CPU: other bits, near those of fp32, and not with --deterministic.
for ranks in 2 3; do
  for gradients in fp32 bf16; do
    run 0 120 "$ranks" "${small[@]}" --device cpu --epochs 1 --gradient-precision $gradients --output "$folder/$gradients-$ranks"
  done
  cmp -s "$folder/fp32-$ranks/latest/model.safetensors" "$folder/bf16-$ranks/latest/model.safetensors" &&
    fail "gradients in bf16 give the bits of fp32"
  awk -v a="$(last_loss "$folder/fp32-$ranks")" -v b="$(last_loss "$folder/bf16-$ranks")" \
    'BEGIN { exit !(a > 0 && (a - b) ^ 2 < (0.05 * a) ^ 2) }' || fail "the loss with gradients in bf16 is far from that with fp32"
done
run 2 30 2 "${mixed[@]}" --gradient-precision bf16
one_line '--gradient-precision bf16 requires --reduction ring and cannot be combined with --deterministic'

# Without AMX.
for precision in fp32 tf32; do
  DDP_INSTRUCTION_SET=baseline run 0 120 1 "${mixed[@]}" --precision $precision --output "$folder/baseline-$precision"
done
grep -q 'tf32 as fp32' "$folder/out" || fail "the header does not say how tf32 is computed"
same_tensors "$folder/baseline-fp32/latest" "$folder/baseline-tf32/latest"

# Where kernels for floats are faster in bf16 as well, a plan joins no convolutions.
DDP_INSTRUCTION_SET=baseline+bf16 run 0 120 1 plan --device cpu --model resnet18-d2l --dataset synthetic --image-size 12 \
  --global-batch 2 --precision bf16 --threads 1 --plan-cache off
finish
