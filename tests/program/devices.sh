#!/usr/bin/env bash
# The commands about devices, and the choice of device, on a machine without a GPU. STAND_IN_NVML_LIBRARY is the path of
# the tests' stand-in for NVIDIA's management library.
set -u
source "$(dirname "$0")/lib.sh"
: "${STAND_IN_NVML_LIBRARY:?}"
# Hide any GPU of this machine.
export CUDA_VISIBLE_DEVICES="" DDP_NVML_LIBRARY=/nonexistent/libnvidia-ml.so.1

# prints PATTERN: the output contains a matching line.
prints() {
  grep -qE -- "$1" "$folder/out" || fail "no '$1' in the output of $last"
}

# devices
for ranks in 1 2; do
  run 3 30 "$ranks" devices
  one_line 'no NVIDIA driver: .*libnvidia-ml.so.1.*; available: CPU, [0-9]+ cores?, .*(avx|baseline|sse)'
done
export DDP_NVML_LIBRARY=$STAND_IN_NVML_LIBRARY
run 0 30 2 devices
[ "$(grep -c '580.95.05' "$folder/out")" -eq 1 ] || fail "other than one rank prints"
prints '^NVIDIA driver 580.95.05; [0-9]+ cores?, CPU'
prints '^ +0  NVIDIA H200  0000:3b:00.0 +100.0 GiB +40.0 GiB +97 % +83 °C +power cap, heat +2$'
prints '^ +1  NVIDIA H200  0000:d8:00.0 +1.0 GiB +139.0 GiB +0 % +31 °C +no +0$'
prints '^ +2  –'
prints '^ +0 +[0-9]+ +3.0 GiB  ddp_train$'
STAND_IN_NVML=silent run 0 30 1 devices
prints '^NVIDIA driver of unknown version'
prints '^ +0  –( +–)+$'
STAND_IN_NVML=no-driver run 3 30 1 devices
one_line 'Driver Not Loaded'

# check
sums=("" "[[22, 28], [49, 64]]" "[[44, 56], [98, 128]]" "[[66, 84], [147, 192]]" "[[88, 112], [196, 256]]")
for ranks in 1 2 3 4; do
  run 0 120 "$ranks" check --device cpu
  grep -qF "sum of $ranks product" "$folder/out" || fail "no sum of products from $last"
  grep -qF ": ${sums[ranks]}" "$folder/out" || fail "no ${sums[ranks]} from $last"
  for size in "1.0 KiB" "64.0 KiB" "1.0 MiB"; do prints "^ *$size +[0-9.]+ [mu]?s"; done
  # Where other programs have the cores, sizes that would take too long are left out.
  prints '^ *64.0 MiB +[0-9.]+ [mu]?s|^ *larger sizes are skipped: a sum of (4|16|64).0 MiB would take '
  [ "$(grep -cE '^ +[0-9]+  [^ ]+ +CPU' "$folder/out")" -eq "$ranks" ] || fail "not every rank has a line from $last"
  [ "$(tail -1 "$folder/out")" = ready ] || fail "$last does not end with ready"
done
prints 'algorithm GB/s +bus GB/s'

# The choice of device: the CPU with one line that gives the reason, or an error.
run 0 60 2 "${small[@]}" --max-steps 2 --output "$folder/run" --log-placement
prints '^ *device +CPU .*; no GPU: .'
prints '^rank +host +GPU'
run 0 60 1 "${small[@]}" --max-steps 2 --output "$folder/run" --device cpu
prints '^ *device +CPU'
if grep -q 'no GPU' "$folder/out"; then fail "--device cpu searched for a GPU"; fi
for ranks in 1 2; do
  run 3 30 "$ranks" --device cuda
  one_line 'error:.* --device cuda: .'
  run 0 60 "$ranks" check --precision bf16
  prints '^device  CPU .* bf16 .*emulated'
done
finish
