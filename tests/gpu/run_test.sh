#!/usr/bin/env bash
# tests/gpu/run itself, on a machine without a GPU: run_test.sh BUILD STAND_IN_GPU_MODULE STAND_IN_NVML_LIBRARY. Checks pass on
# stand-ins for GPUs; failures and hangs are found, counted and end in time; wrong arguments and unsuitable machines are rejected.
set -u
tests=$(cd "$(dirname "$0")" && pwd) build=$1
run=$tests/run
export DDP_CUDA_MODULE=$2 DDP_NVML_LIBRARY=$3 STAND_IN_GPUS=0000:01:00.0
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
fail() {
  echo "FAILED: $1"
  sed 's/^/    /' "$folder/said" | tail -40
  failures=$((failures + 1))
}
expect() { # expect CODE PATTERN COMMAND...
  local code=$1 pattern=$2 got=0
  shift 2
  "$@" >"$folder/said" 2>&1 </dev/null || got=$?
  [ "$got" -eq "$code" ] || fail "exit code $got in place of $code from $*"
  grep -qE -- "$pattern" "$folder/said" || fail "no '$pattern' from $*"
}
machine() { # machine NAME CAPABILITY CUDA: what nvidia-smi says of the stand-in
  cat >"$folder/bin/nvidia-smi" <<SMI
#!/usr/bin/env bash
case \$* in
*compute_cap*) echo "$1, $2, 580.00" ;;
*memory.used*) echo "10, 8192" ;;
*) echo "CUDA Version: $3" ;;
esac
SMI
  chmod +x "$folder/bin/nvidia-smi"
}
mkdir "$folder/bin"
export PATH=$folder/bin:$PATH
# The mpirun that the stages use.
launcher=$folder/bin/mpirun
replace_launcher() {
  cat >"$launcher"
  chmod +x "$launcher"
}
restore_launcher() { rm -f "$launcher"; }
results=(--build "$build" "--out" "$folder/results of a run")

expect 0 'tests/gpu/run --bundle' "$run" --help
expect 2 "unknown argument 'test'" "$run" test
expect 2 'needs a value' "$run" --out
expect 2 'not a number' "$run" --build "$build" --limit many
expect 2 'not a regular expression' "$run" --build "$build" --only '('
expect 2 'either --bundle or --build' "$run"
expect 3 'there is no folder' "$run" --build "$folder/nowhere"
expect 3 'is no bundle' "$run" --bundle "$folder"
printf '#!/bin/sh\nexit 9\n' >"$folder/bin/nvidia-smi" && chmod +x "$folder/bin/nvidia-smi"
expect 3 'finds no GPU' "$run" "${results[@]}"
machine Stand-in 9.0 13.0
expect 3 'there is no .*ddp_train' "$run" --build "$folder"
expect 2 'matches no check' "$run" "${results[@]}" --only nothing first

expect 0 '^9 passed, 0 failed$' "$run" "${results[@]}" --only '^check: |deterministic|too little memory' first faults
[ "$(grep -c '^ok' "$folder/results of a run/summary.txt")" -eq 9 ] || fail "the summary lacks checks"
[ "$(grep -c '"ok": true' "$folder/results of a run/results.jsonl")" -eq 9 ] || fail "results.jsonl lacks checks"
expect 0 '^ok .*ended with 75 by SIGUSR1 to mpirun' "$run" "${results[@]}" --only 'USR1' faults
# If mpirun does not forward the signal, it is sent to the rank, after some waiting.
replace_launcher <<'LAUNCHER'
#!/usr/bin/env bash
trap : USR1
while [[ $1 != /* ]]; do shift; done
"$@" &
until wait $!; code=$?; ((code < 128)) || ! kill -0 $! 2>/dev/null; do :; done
exit "$code"
LAUNCHER
expect 0 '^ok .*ended with 75 by SIGUSR1 to the rank' "$run" "${results[@]}" --only 'USR1' faults
restore_launcher

expect 0 '^2 passed, 0 failed$' "$run" "${results[@]}" --only 'kernels in the trace' first
STAND_IN_GPU_FAULT=trace expect 1 'no kernels in the trace' "$run" "${results[@]}" --only 'kernels in the trace' first

# The verdicts of compute-sanitizer, from a stand-in that prints SANITIZER; racecheck runs without a CUDA graph, in which it
# fails.
cat >"$folder/bin/compute-sanitizer" <<'SANITIZER'
#!/usr/bin/env bash
if [[ $* == *src/ddp_train* && $* != *"--cuda-graph off"* ]]; then echo "Sanitizer failed to handle a hardware exception"; fi
echo "$SANITIZER"
exit "${SANITIZER_CODE:-0}"
SANITIZER
chmod +x "$folder/bin/compute-sanitizer"
race='========= RACECHECK SUMMARY:'
SANITIZER="$race 0 hazards displayed (0 errors, 0 warnings)" expect 0 '^2 passed' "$run" "${results[@]}" --only racecheck faults
SANITIZER="$race 3 hazards displayed (3 errors, 0 warnings)" expect 1 'racecheck: training steps .*: 3 errors' \
  "$run" "${results[@]}" --only racecheck faults
SANITIZER_CODE=99 SANITIZER='========= ERROR SUMMARY: 0 errors' expect 1 '^0 passed, 3 failed' \
  "$run" "${results[@]}" --only memcheck faults
SANITIZER='Error: Sanitizer failed to handle a hardware exception' expect 1 'compute-sanitizer itself failed' \
  "$run" "${results[@]}" --only 'racecheck: training' faults

# If torch.compile exceeds its share of the stage's time, what it has measured so far is kept.
cat >"$folder/bin/compiling" <<'PYTHON'
#!/bin/sh
if [ "$1" = - ]; then exec python3 -; fi
echo '{"version": "2", "samples_per_second": 1234.5, "compiled": "default", "complete": false}'
sleep 1000
PYTHON
chmod +x "$folder/bin/compiling"
PYTHON=$folder/bin/compiling expect 0 "1,23[45] images/s, the best within [0-9]+ s, in the compiler's mode 'default'" \
  "$run" "${results[@]}" --limit 10 --only 'PyTorch lenet, compile' compile
grep -q '"images_per_second": 1234.5' "$folder/results of a run/results.jsonl" || fail "the figure is not kept"
# A failure is counted, and the remaining checks run.
STAND_IN_GPU_FAULT=product expect 1 '^FAILED  first: check: one rank' "$run" "${results[@]}" --only '^check: ' first
grep -qE '^0 passed, 2 failed$' "$folder/said" || fail "the failures are not counted"

# A GPU that never answers: the stage ends at its time limit and names the checks that it did not start.
printf '#!/bin/sh\nsleep 1000\n' | replace_launcher
begin=$SECONDS
expect 1 'devices.*did not end in time' "$run" "${results[@]}" --limit 6 --only '^check: |devices|bench' first
grep -q "not started: the stage's time is over" "$folder/said" || fail "what was not started is not named"
[ $((SECONDS - begin)) -lt 30 ] || fail "the stage went on for $((SECONDS - begin)) s"
for process in /proc/[0-9]*/cmdline; do
  [[ $({ tr '\0' ' ' <"$process"; } 2>/dev/null) != *"$launcher"* ]] || fail "a process is left"
done
restore_launcher

# The report of such a run, written twice into a folder.
mkdir "$folder/kept"
report=("$tests/report" "$folder/results of a run")
"$run" "${results[@]}" --only '^check: ' first >/dev/null 2>&1
expect 0 'Stand-in, 2 results' "${report[@]}" --into "$folder/kept"
expect 0 'no page shows Stand-in' "${report[@]}" --into "$folder/kept"
[ "$(ls "$folder/kept")" = gpu-stand-in.json ] || fail "the file of the GPU is not replaced"
grep -q '"checks": 2' "$folder/kept/gpu-stand-in.json" || fail "the checks are not counted"
# A second folder of the same machine, and one of another machine.
cp -r "$folder/results of a run" "$folder/second"
expect 0 'Stand-in, 4 results' "${report[@]}" "$folder/second" --into "$folder/kept"
sed -i 's/Stand-in/Other/' "$folder/second/machine.json"
expect 3 'second is of another GPU' "${report[@]}" "$folder/second" --into "$folder/kept"
expect 3 'tests/gpu/run wrote' "$tests/report" "$folder" --into "$folder/kept"

if [ "$failures" -ne 0 ]; then exit 1; fi
echo "tests/gpu/run does what it promises"
