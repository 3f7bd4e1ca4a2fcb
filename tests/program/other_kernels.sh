#!/usr/bin/env bash
# Ranks and resumed runs on different kinds of processors: missing kernels, and the guarantees of --deterministic.
set -u
source "$(dirname "$0")/lib.sh"
kinds=(--model lenet --train-limit 64 --test-limit 16 --global-batch 32 --dataset glyphs --threads 1 --progress none)
if ! grep -qw avx2 /proc/cpuinfo; then
  echo "skipped: the processor supports only one kind of kernels"
  exit 77
fi

for switch in on off; do
  run=$folder/$switch
  run 0 120 1 "${kinds[@]}" --deterministic on --max-steps 1 --output "$run"
  DDP_INSTRUCTION_SET=baseline run 0 120 1 "${kinds[@]}" --deterministic "$switch" --max-steps 2 --output "$run" --resume auto
  # AVX-512 kernels have names that the portable ones lack; those of AVX2 have the same names, but different rounding.
  if grep -qw avx512f /proc/cpuinfo; then
    one_line 'warning: kernels of the checkpoint are not available here .*baseline'
  elif [ "$switch" = on ]; then
    one_line 'warning: the checkpoint was computed by avx2 .*, this run is by baseline'
  fi
  bits=$(grep -cE 'bits (are|may) no longer' "$words/err")
  [ "$bits" -eq "$([ "$switch" = on ] && echo 1 || echo 0)" ] || fail "bit-identity is mentioned $bits times in $last"
  [ "$(grep -c '"loss"' "$run/metrics.jsonl")" -eq 2 ] || fail "the run did not continue in $last"
done

# mixed CODE ARGUMENTS...: rank 1 of two uses other kernels.
mixed() {
  local code=$1 got=0
  shift
  last="ranks of two kinds: $*"
  local each=("$program" "${kinds[@]}" --max-steps 1 --output "$folder/mixed" --timeout 60 "$@")
  timeout -s KILL 120 "$mpirun" -q --oversubscribe --bind-to none -np 1 "${each[@]}" \
    : -np 1 -x DDP_INSTRUCTION_SET=baseline "${each[@]}" >"$words/out" 2>"$words/err" || got=$?
  [ "$got" -eq "$code" ] || fail "exit code $got instead of $code from $last"
}
mixed 3 --deterministic on
one_line "rank 1 on host [^ ]+ has kernels baseline .* instead of .*rank 0's"
finish
