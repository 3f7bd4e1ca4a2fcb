#!/usr/bin/env bash
# The assignment of GPUs to ranks, and the reduction of gradients, with stand-ins for GPUs
# (tests/stand_ins/gpu_module.cpp).
set -u
source "$(dirname "$0")/lib.sh"
: "${STAND_IN_GPU_MODULE:?}" "${STAND_IN_NVML_LIBRARY:?}"
export DDP_CUDA_MODULE=$STAND_IN_GPU_MODULE DDP_NVML_LIBRARY=$STAND_IN_NVML_LIBRARY
a=0000:01:00.0 b=0000:02:00.0

# takes RANK GPU ADDRESS: the table assigns this GPU to the rank.
takes() {
  grep -qE "^ +$1  [^ ]+ +$2 Stand-in  $3 +0  580.95.05  8.0 GiB$" "$folder/out" || fail "rank $1 does not have GPU $2 at $3 in $last"
}
prints() {
  grep -qE -- "$1" "$folder/out" || fail "no '$1' in the output of $last"
}

export STAND_IN_GPUS="$a $b"
run 0 60 2 check --device cuda
takes 0 0 $a
takes 1 1 $b
prints '^sums +a stand-in for NCCL$'
prints 'sum of 2 products: \[\[44, 56\], \[98, 128\]\]'
prints '^ready$'
run 0 60 2 check --gpus 1,0
takes 0 1 $b
takes 1 0 $a
run 2 30 2 check --gpus 1,7
one_line '--gpus 1,7: there is no GPU 7'
run 2 30 2 check --gpus 1,1
one_line '--gpus 1,1 lists GPU 1 twice'
STAND_IN_GPUS=$a run 3 30 2 check
one_line "2 ranks on host .* see 1 GPU: ranks 0 and 1 would share the GPU at $a.*--oversubscribe-gpus"
run 0 60 3 check --oversubscribe-gpus
takes 0 0 $a
takes 1 1 $b
takes 2 0 $a
prints '^sums +MPI through the host$'

# One visible GPU per task, as under Slurm.
one_each() { # one_each ADDRESS-OF-RANK-0 ADDRESS-OF-RANK-1
  # shellcheck disable=SC2016
  printf '#!/usr/bin/env bash\ngpus=(%s)\nSTAND_IN_GPUS=${gpus[OMPI_COMM_WORLD_RANK]/none/} exec "%s" "$@"\n' "$*" "$whole" \
    >"$folder/one_each"
  chmod +x "$folder/one_each"
  program=$folder/one_each
}
whole=$program
one_each $b $a
run 0 60 2 check
takes 0 0 $b
takes 1 0 $a
one_each $a $a
run 3 30 2 check
one_line "ranks 0 and 1 would share the GPU at $a.*--oversubscribe-gpus"
one_each "'$a $b'" $a
run 3 30 2 check
one_line "ranks 0 and 1 on host .* would both use the GPU at $a.*--oversubscribe-gpus"
one_each $a none
run 0 60 2 check
prints '^ +0 .* CPU'
grep -q 'although some have a GPU: rank 1 on host .*: there is no NVIDIA driver' "$folder/err" || fail "no warning from $last"
run 3 30 2 check --device cuda
one_line '--device cuda: rank 1 on host .*: there is no NVIDIA driver'
program=$whole

# Allocated GPUs: idle ones are reported, and without a usable driver the CPU is not used unless requested.
CUDA_VISIBLE_DEVICES=0,1 run 0 60 1 check
grep -q "allocated GPUs are idle on host .*: 1 of 2 GPUs (1 Stand-in at $b)" "$folder/err" || fail "no idle GPU from $last"
for variable in CUDA_VISIBLE_DEVICES SLURM_JOB_GPUS; do
  export STAND_IN_GPUS='' "$variable=0,1"
  run 3 30 2 check
  one_line "--device auto: GPUs were allocated \\($variable=0,1\\), but there is no NVIDIA driver"
  run 0 60 2 check --device cpu
  unset "$variable"
done
export STAND_IN_GPUS="$a $b"

# Errors are reported, and "ready" is not printed.
STAND_IN_GPU_FAULT=product run 3 30 2 check
one_line 'the device computed \[\[23, 28\], \[49, 64\]\], expected \[\[22, 28\], \[49, 64\]\]'
STAND_IN_GPU_FAULT=sum run 3 30 2 check
one_line 'add up to \[\[44, 56\], \[99, 128\]\] by a stand-in for NCCL, expected \[\[44, 56\], \[98, 128\]\]'
STAND_IN_GPU_FAULT=memory run 5 30 2 check
one_line 'the matrices of a check do not fit'
if grep -q ready "$folder/out"; then fail "reports ready although the memory is full"; fi

# A GPU whose clock is reduced: the run names it at its end.
export STAND_IN_GPUS="0000:3b:00.0 0000:d8:00.0"
few=(--train-limit 320 --test-limit 10 --global-batch 16 --epochs 2 --eval-every 0 --progress none --output "$folder/hot")
STAND_IN_NVML=throttled run 0 60 2 --device cuda "${few[@]}"
run 0 30 1 explain "$folder/hot"
prints 'throttled GPU: the GPU of rank 0 on .* runs at 50% of its highest clock because of heat$'

# Resident images are edited where they are read, with the bytes of the loader's threads; and so with steps in flight, and
# a step that is not finite is replayed from such images.
edits=(--dataset glyphs --train-limit 160 --test-limit 10 --global-batch 32 --epochs 2 --deterministic --logical-shards 2
  --threads 1 --progress none --random-crop-padding 3 --random-flip on --cutout 5 --random-erasing 0.5 --normalize standard)
run 0 60 1 "${edits[@]}" --device cpu --output "$folder/by-threads"
run 0 60 1 "${edits[@]}" --device cuda --output "$folder/by-device"
same_files "$folder/by-threads/latest/model.safetensors" "$folder/by-device/latest/model.safetensors"
run 0 60 1 "${edits[@]}" --device cuda --random-crop-fill reflect --steps-in-flight 1 --output "$folder/reflected"
run 0 60 2 "${edits[@]}" --device cpu --random-crop-fill reflect --output "$folder/reflected-by-threads"
same_files "$folder/reflected/latest/model.safetensors" "$folder/reflected-by-threads/latest/model.safetensors"
for device in cpu cuda; do
  run 6 60 1 "${edits[@]}" --device $device --lr 1e6 --output "$folder/broken-$device"
done
same_files "$folder"/broken-cpu/nonfinite-*/pixels.bin "$folder"/broken-cuda/nonfinite-*/pixels.bin
same_files "$folder"/broken-cpu/nonfinite-*/weights.safetensors "$folder"/broken-cuda/nonfinite-*/weights.safetensors
# A gradient that overflows in fp16 stops the steps in flight, and the device repeats its step with a lower loss scale.
scaled=("${edits[@]}" --precision fp16 --loss-scale 16777216 --loss-scale-interval 3)
run 0 60 1 "${scaled[@]}" --device cpu --output "$folder/scaled-by-cpu"
for ahead in 1 4; do
  run 0 60 1 "${scaled[@]}" --device cuda --steps-in-flight $ahead --output "$folder/scaled-$ahead"
  [ "$(grep -c 'the gradient overflows in fp16' "$folder/err")" -gt 1 ] || fail "no step was repeated"
  same_tensors "$folder/scaled-by-cpu/latest" "$folder/scaled-$ahead/latest"
  same_files "$folder/scaled-by-cpu/latest/evaluation.json" "$folder/scaled-$ahead/latest/evaluation.json"
done
# So are their order, labels and learning rates, which the device has for an epoch: with a smaller last batch, stopped and
# resumed within an epoch on other ranks.
edits+=(--train-limit 150 --schedule cosine --lr 0.05 --momentum 0.9 --checkpoint-every 2)
run 0 60 1 "${edits[@]}" --device cpu --output "$folder/whole"
for ranks in 1 2; do
  run 0 60 "$ranks" "${edits[@]}" --device cuda --steps-in-flight 4 --max-steps 3 --output "$folder/resumed-$ranks"
  run 0 60 $((3 - ranks)) "${edits[@]}" --device cuda --steps-in-flight 3 --output "$folder/resumed-$ranks"
  same_tensors "$folder/whole/latest" "$folder/resumed-$ranks/latest"
done

# A trace shows the kernels, or says why it does not, and is written all the same.
few[-1]=$folder/traced
run 0 60 2 --device cuda "${few[@]}" --trace
grep -q '"stand_in_kernel"' "$folder/traced/trace.json" || fail "no kernels in the trace of $last"
few[-1]=$folder/blind
STAND_IN_GPU_FAULT=trace run 0 60 2 --device cuda "${few[@]}" --trace
[ "$(grep -c 'the trace will not show single kernels: CUPTI cannot be loaded' "$folder/err")" -eq 1 ] || fail "no reason from $last"
grep -q '"step 2"' "$folder/blind/trace.json" || fail "no steps in the trace of $last"
finish
