#!/usr/bin/env bash
# plan for a GPU that exists only as a description, on a machine without one. STAND_IN_GPU_MODULE is the stand-in for the GPU
# module; REAL_GPU_MODULE is "yes" if the program has the real one. GPU_DESCRIPTION describes an H100.
set -u
source "$(dirname "$0")/lib.sh"
: "${STAND_IN_GPU_MODULE:?}" "${GPU_DESCRIPTION:?}" "${REAL_GPU_MODULE:?}"
export CUDA_VISIBLE_DEVICES=""
has() {
  grep -qE -- "$1" "$folder/out" || fail "no '$1' in the output of $last"
}
described=(plan --device cuda --gpu-description)

# Without a GPU or a description, plan suggests to use a description; training does not.
run 3 30 1 plan --device cuda
one_line '--device cuda: .*; to plan without a GPU, describe one: --gpu-description configs/gpus/h100.json$'
run 3 30 1 --device cuda
one_line '--device cuda: '
if grep -q gpu-description "$folder/err"; then fail "--gpu-description is advised for $last"; fi

# It applies only to plan, and cannot be combined with the CPU.
run 2 30 2 train --device cuda --gpu-description "$GPU_DESCRIPTION"
one_line '--gpu-description applies to the command plan only'
run 2 30 1 plan --device cpu --gpu-description "$GPU_DESCRIPTION"
one_line '--gpu-description has no effect with --device cpu'
# Linear layers are not divided among GPUs.
run 2 60 1 "${described[@]}" "$GPU_DESCRIPTION" --split-linear 'fc*'
one_line "--split-linear works on CPUs only; use --device cpu, or remove it"

# Invalid descriptions are rejected with any module.
head -c 200 "$GPU_DESCRIPTION" >"$folder/cut.json"
echo 'seed = 1' >"$folder/other.cfg"
: >"$folder/empty.json"
sed 's/"deviceVer":900,//' "$GPU_DESCRIPTION" >"$folder/lacks.json"
sed 's/"deviceVer":900/"deviceVer":370/; s/NVIDIA H100/Tesla K80/' "$GPU_DESCRIPTION" >"$folder/old.json"
sed 's/"warpSize":32,//' "$GPU_DESCRIPTION" >"$folder/no-warps.json"
mkfifo "$folder/fifo.json"
export DDP_CUDA_MODULE=$STAND_IN_GPU_MODULE
for file in cut.json other.cfg empty.json; do
  run 2 30 2 "${described[@]}" "$folder/$file"
  one_line "--gpu-description $folder/$file: is not a JSON object.*h100.json"
done
run 2 30 1 "${described[@]}" "$folder/lacks.json"
one_line 'has no value of "deviceVer"'
for file in none.json fifo.json .; do
  run 2 30 1 "${described[@]}" "$folder/$file"
  one_line "$folder/$file"
done

# Nothing is computed: the stand-in for a GPU has no arithmetic here.
for ranks in 1 2; do
  run 0 60 "$ranks" "${described[@]}" "$GPU_DESCRIPTION"
  has '^NVIDIA H100 80GB HBM3 as described in .*h100.json, compute capability 9.0, 79.2 GiB$'
  has 'neither timed nor tried'
  has '^estimated, since the GPU is not here: '
done
unset DDP_CUDA_MODULE

if [ "$REAL_GPU_MODULE" = yes ]; then
  run 0 120 1 "${described[@]}" "$GPU_DESCRIPTION" --model resnet18-d2l --precision bf16
  has ' nhwc +forward=cudnn\..* data=cudnn\..* weights=cudnn\.'
  has '^device memory of a rank: .* MiB; .* activations, .* optimizer state and batches$'
  has '^available on it: 78.2 GiB'
  # LeNet's step in bf16 is 11 kernels.
  run 0 120 1 "${described[@]}" "$GPU_DESCRIPTION" --model lenet --precision bf16 --global-batch 256
  kernels=$(awk '$1 == "sum" && NF == 7 { print $2 + $5 }' "$folder/out")
  [ "$kernels" = 11 ] || fail "$last counts $kernels kernels"
  # Muon needs at least the workspace of its products, whose size only a GPU knows, more than SGD with momentum.
  state_mib() { awk '/activations,/ { sub(/.* activations, /, ""); print $2 == "MiB" ? int($1) : 0 }' "$folder/out"; }
  run 0 120 1 "${described[@]}" "$GPU_DESCRIPTION" --model resnet18-d2l --momentum 0.9
  without=$(state_mib)
  run 0 120 1 "${described[@]}" "$GPU_DESCRIPTION" --model resnet18-d2l --optimizer muon
  { [ "$without" -gt 0 ] && [ "$(state_mib)" -ge $((without + 32)) ]; } || fail "$last needs $(state_mib) MiB, SGD $without"
  # With the real module, --device cuda is not required: auto means the GPU too.
  run 0 120 1 plan --gpu-description "$GPU_DESCRIPTION"
  has 'forward=cudnn\.'
  run 5 120 1 "${described[@]}" "$GPU_DESCRIPTION" --model resnet18-d2l --global-batch 4096 --gpu-memory-limit 4GiB
  one_line '4096 samples per logical shard need .* but 3.0 GiB are available; [0-9]+ would fit'
  run 3 30 1 "${described[@]}" "$folder/old.json"
  one_line 'Tesla K80 80GB HBM3 has compute capability 3.7, and this program was compiled for .*DDP_CUDA_ARCHITECTURES'
  run 2 30 1 "${described[@]}" "$folder/no-warps.json"
  one_line 'does not take the description of NVIDIA H100'
fi
finish
