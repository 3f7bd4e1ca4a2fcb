#!/usr/bin/env bash
# tests/gpu/run itself, on a machine without a GPU: run_test.sh BUILD FAKE_GPUS_MODULE FAKE_NVML_LIBRARY. The stage `ranks`
# passes on stand-ins for cards; faults are found and counted; wrong arguments are refused.
set -u
run=$(dirname "$0")/run build=$1
export DDP_CUDA_MODULE=$2 DDP_NVML_LIBRARY=$3 FAKE_GPUS=0000:01:00.0
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
  "$@" >"$folder/said" 2>&1 || got=$?
  [ "$got" -eq "$code" ] || fail "exit code $got in place of $code from $*"
  grep -qE -- "$pattern" "$folder/said" || fail "no '$pattern' from $*"
}

expect 0 '^run ' "$run" --help
expect 2 "unknown argument 'test'" "$run" test
expect 2 'wants a value' "$run" --out
expect 2 'is not a number' "$run" --jobs many build
expect 3 'env.sh' "$run" --kit "$folder" build

# What a machine with a GPU has besides.
mkdir "$folder/bin"
cat >"$folder/bin/nvidia-smi" <<'SMI'
#!/usr/bin/env bash
case $* in
-L) echo "GPU 0: Stand-in (UUID: GPU-0)" ;;
*memory.used*) echo 10 ;;
*memory.total*) echo 8192 ;;
esac
SMI
cat >"$folder/bin/compute-sanitizer" <<'TOOL'
#!/usr/bin/env bash
while [[ $1 == --* ]]; do if [ "$1" = --error-exitcode ] || [ "$1" = --tool ] || [[ $1 == --*-* ]]; then shift; fi; shift; done
exec "$@"
TOOL
chmod +x "$folder/bin/nvidia-smi" "$folder/bin/compute-sanitizer"
export PATH=$folder/bin:$PATH

expect 0 '^16 passed, 0 failed$' "$run" --build "$build" --out "$folder/out" ranks
[ "$(grep -c '^ok' "$folder/out/summary.txt")" -eq 16 ] || fail "the summary lacks checks"
# A fault is found and counted, and the rest goes on. The operators' own tests are not looked at here.
"$run" --build "$build" --out "$folder/out" memcheck >"$folder/said" 2>&1
grep -q '^ok      memcheck: three training steps' "$folder/said" || fail "no training under compute-sanitizer"
FAKE_GPU_FAULT=memory expect 1 '^FAILED  memcheck: three training steps \(code 5,.*do not fit' "$run" --build "$build" \
  --out "$folder/out" memcheck racecheck
grep -q '^FAILED  racecheck: three training steps' "$folder/said" || fail "the rest did not go on"
grep -qE '^[0-9]+ passed, [2-9] failed$' "$folder/said" || fail "the failures are not counted"
if [ "$failures" -ne 0 ]; then exit 1; fi
echo "tests/gpu/run does what it promises"
