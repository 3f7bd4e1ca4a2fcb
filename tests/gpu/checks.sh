# The checks of tests/gpu/run, which sources this. Each is one function: its output is a log, its last line says what is
# wrong where it returns other than 0.
# shellcheck shell=bash
# shellcheck disable=SC2154  # build, jobs, kit, out, program, python, root and scratch are of tests/gpu/run

# A small run: 1,000 images in 8 steps an epoch, the last of them not full.
small=(--dataset glyphs --train-limit 1000 --test-limit 200 --global-batch 128 --lr 0.05 --momentum 0.9 --progress none
  --log-interval 1)

within() { timeout -k 10 "$@"; }

# ddp SECONDS RANKS ARGUMENTS...
ddp() {
  timeout -k 10 "$1" mpirun -q --oversubscribe --bind-to none -np "$2" "$program" "${@:3}"
}

# expect CODE COMMAND...
expect() {
  local code=$1 got=0
  shift
  "$@" || got=$?
  [ "$got" -eq "$code" ] || { echo "exit code $got in place of $code from: $*" && return 1; }
}

# says PATTERN FILE: shows the file, in which such a line must be.
says() {
  cat "$2"
  grep -qE -- "$1" "$2" || { echo "no '$1' in the output" && return 1; }
}

card_count() { nvidia-smi -L | grep -c '^GPU '; }

configure() {
  local capability arguments=()
  # For the card that is here alone, which halves the time to build.
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
  [ -z "$capability" ] || arguments+=("-DDDP_CUDA_ARCHITECTURES=$capability-real")
  # What the kit has as headers alone; and its compiler may know more warnings than ours.
  if [ -n "$kit" ]; then
    arguments+=("-DDDP_KIT=$kit" "-Dfmt_DIR=$root/tests/gpu/packages" "-Dspdlog_DIR=$root/tests/gpu/packages")
  fi
  command -v ninja >/dev/null && arguments+=(-G Ninja)
  cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Release -DDDP_CUDA=ON -DCMAKE_COMPILE_WARNING_AS_ERROR=OFF \
    "${arguments[@]}"
}

describe_gpu() {
  within 60 "$build/tests/gpu/describe_gpu" >"$out/gpu.json" && cat "$out/gpu.json"
}

# ---- tests

gpu_tests() {
  local status=0
  within 1200 ctest --test-dir "$build" -L gpu -j 1 --no-tests=error --output-on-failure >"$scratch/ctest" 2>&1 ||
    status=$?
  cat "$scratch/ctest"
  if grep -q '\*\*\*Skipped' "$scratch/ctest"; then
    echo "$(grep -c '\*\*\*Skipped' "$scratch/ctest") tests were skipped on a machine that has a GPU"
    return 1
  fi
  grep 'tests passed' "$scratch/ctest"
  return "$status"
}

# The programs of the tests labelled gpu that run operators.
test_programs() {
  ctest --test-dir "$build" -L gpu --show-only=json-v1 | "$python" -c '
import json, os, sys
programs = {test["command"][0] for test in json.load(sys.stdin)["tests"] if "command" in test}
print("\n".join(sorted(p for p in programs if "backend" in os.path.basename(p))))'
}

missing() { echo "$*" && return 1; }

sanitize() { # sanitize TOOL PROGRAM ARGUMENTS...
  local tool=$1
  shift
  within 1500 compute-sanitizer --tool "$tool" --target-processes all --error-exitcode 99 --print-limit 20 "$@"
}

# ---- ranks

devices() { expect 0 ddp 60 1 devices; }

check_nccl() {
  expect 0 ddp 120 1 check --device cuda >"$scratch/out" && says '^sums .*NCCL' "$scratch/out" &&
    says '^ready$' "$scratch/out"
}
check_through_host() {
  expect 0 ddp 120 2 check --device cuda --gpus 0 --oversubscribe-gpus >"$scratch/out" &&
    says '^sums +MPI through the host' "$scratch/out" && says '\[\[44, 56\], \[98, 128\]\]' "$scratch/out" &&
    says '^ready$' "$scratch/out"
}
check_all_cards() {
  expect 0 ddp 300 "$(card_count)" check --device cuda >"$scratch/out" && says '^sums .*NCCL' "$scratch/out" &&
    says '^ready$' "$scratch/out"
}
refuses_sharing() {
  expect 3 ddp 60 $(($(card_count) + 1)) check --device cuda 2>"$scratch/out" && says 'would share' "$scratch/out"
}

# train NAME DEVICE RANKS ARGUMENTS...: a small run, its folder $scratch/NAME.
train() {
  rm -rf "${scratch:?}/$1"
  ddp 300 "$3" "${small[@]}" --device "$2" --output "$scratch/$1" "${@:4}"
}
losses() { grep '"loss"' "$1/metrics.jsonl" | sed 's/.*"loss":\([0-9.e+-]*\),.*/\1/'; }

# same_losses TOLERANCE "DEVICE RANKS ARGUMENTS..." "DEVICE RANKS ARGUMENTS...": of 24 steps, relative to the second's.
same_losses() {
  local first second
  read -ra first <<<"$2"
  read -ra second <<<"$3"
  train a "${first[@]}" --max-steps 24 && train b "${second[@]}" --max-steps 24 || return
  paste <(losses "$scratch/a") <(losses "$scratch/b") | awk -v tolerance="$1" '
    { difference = ($1 - $2) / $2; if (difference < 0) difference = -difference
      if (difference > worst) { worst = difference; step = NR }
      if (NF != 2) broken = 1 }
    END { printf "%d steps, the largest difference is %.2g, at step %d\n", NR, worst, step
          exit broken || NR != 24 || !(worst <= tolerance) }'
}

exact=(--deterministic --logical-shards 4 --epochs 2)
same_tensors() {
  cmp "$scratch/$1/latest/model.safetensors" "$scratch/$2/latest/model.safetensors" &&
    cmp "$scratch/$1/latest/optimizer.safetensors" "$scratch/$2/latest/optimizer.safetensors"
}
# same_bits "RANKS ARGUMENTS..." "RANKS ARGUMENTS..."
same_bits() {
  local first second
  read -ra first <<<"$1"
  read -ra second <<<"$2"
  train a cuda "${first[@]}" "${exact[@]}" && train b cuda "${second[@]}" "${exact[@]}" && same_tensors a b
}
same_bits_resumed() {
  train a cuda 1 "${exact[@]}" && train b cuda 1 "${exact[@]}" --max-steps 5 &&
    ddp 300 2 "${small[@]}" --device cuda --oversubscribe-gpus --output "$scratch/b" "${exact[@]}" --resume auto &&
    same_tensors a b
}

# A long run in the background, past its first steps; its process is $job.
start_long_run() {
  rm -rf "$scratch/long"
  # Not through ddp(): signals must reach mpirun.
  mpirun -q --oversubscribe --bind-to none -np 1 "$program" "${small[@]}" --device cuda --epochs 1000000 \
    --output "$scratch/long" "$@" &
  job=$!
  for _ in $(seq 600); do
    [ "$(wc -l <"$scratch/long/metrics.jsonl" 2>/dev/null || echo 0)" -lt 20 ] || return 0
    kill -0 "$job" 2>/dev/null || break
    sleep 0.1
  done
  kill -9 "$job" 2>/dev/null
  echo "the run did not begin"
  return 1
}
ends_with() { # ends_with CODE
  local got=0
  for _ in $(seq 300); do
    kill -0 "$job" 2>/dev/null || break
    sleep 0.1
  done
  if kill -9 "$job" 2>/dev/null; then echo "the run did not end within 30 s" && return 1; fi
  wait "$job" || got=$?
  [ "$got" -eq "$1" ] || { echo "exit code $got in place of $1" && return 1; }
}
stops_on_request() {
  start_long_run --checkpoint-every 100000000 || return
  kill -USR1 "$job"
  ends_with 75 && [ -s "$scratch/long/latest/state.json" ]
}

refuses_small_memory() {
  expect 5 train a cuda 1 --gpu-memory-limit 1MiB 2>"$scratch/out" && says 'error: ' "$scratch/out"
}
# Two jobs share a card: each takes what its plan says and not the whole card.
keeps_memory_cap() {
  local before after total
  used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -1; }
  before=$(used)
  total=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -1)
  start_long_run --gpu-memory-fraction 0.4 || return
  after=$(used)
  ddp 60 1 devices
  kill -USR1 "$job"
  ends_with 75 || return
  echo "nvidia-smi: $before MiB used before the run, $after MiB during it, of $total MiB"
  [ $(((after - before) * 10)) -le $((total * 4)) ]
}

# ---- training

# same_accuracy TOLERANCE CONFIG ARGUMENTS...
same_accuracy() {
  local device
  for device in cuda cpu; do
    rm -rf "${scratch:?}/$device"
    ddp 1200 1 --config "$2" --device "$device" --output "$scratch/$device" --progress none "${@:3}" || return
  done
  paste -d, <(tail -1 "$scratch/cuda/summary.csv") <(tail -1 "$scratch/cpu/summary.csv") | awk -F, -v tolerance="$1" '
    { difference = $5 - $13; if (difference < 0) difference = -difference
      printf "validation accuracy %s on the GPU in %.1f s an epoch, %s on the CPU in %.1f s\n", $5, $7, $13, $15
      exit !(difference <= tolerance && $5 > 0.5) }'
}
