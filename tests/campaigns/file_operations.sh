#!/usr/bin/env bash
# file_operations.sh PROGRAM MPIRUN LIBKILL_AT [EVERY]: kills a run before each of its file operations (or every EVERYth
# one) and resumes it. It must end like an undisturbed run and lose no checkpoint.
set -u
source "$(dirname "$0")/lib.sh"
library=$3 every=${4:-1}
run=$folder/run

# killed_at N ARGUMENTS...: N=0 counts the operations into $folder/count.
killed_at() {
  local n=$1
  shift
  timeout -s KILL 20 env LD_PRELOAD="$library" DDP_KILL_UNDER="$run" DDP_KILL_AT="$n" DDP_KILL_COUNT="$folder/count" \
    "$program" "$@" >"$folder/out" 2>"$folder/err"
}
kept_checkpoints() { find "$run" -name 'step-*' -path '*checkpoints/step-*' -printf '%f\n' | sort -u; }

# trials NAME CHECKPOINTS RESUME ARGUMENTS...: kills the command in a copy of $folder/before at each operation; with
# --resume RESUME it must reach the same result as without a kill, and CHECKPOINTS must exist throughout.
trials() {
  local name=$1 checkpoints=$2 resume=$3 operations n got kept trial=0
  shift 3
  rm -rf "$run" && cp -a "$folder/before" "$run"
  killed_at 0 "${tiny[@]}" --output "$run" "$@" || fail "$name: the command that is to be killed fails"
  operations=$(cat "$folder/count")
  rm -rf "$folder/expected" && mv "$run" "$folder/expected"
  [ "$operations" -gt 20 ] || fail "$name: only $operations operations were counted"
  for ((n = 1 + RANDOM % every; n <= operations; n += every)); do
    last="$name, killed at operation $n of $operations"
    rm -rf "$run" && cp -a "$folder/before" "$run"
    got=0
    killed_at "$n" "${tiny[@]}" --output "$run" "$@" 2>/dev/null || got=$?
    [ "$got" -eq 137 ] || fail "$last: exit code $got instead of 137"
    trial=$((trial + 1))
    kept=$(kept_checkpoints)
    for step in $checkpoints; do
      [[ $kept == *$step* ]] || fail "$last: $step is lost"
    done
    got=0
    alone "${tiny[@]}" --output "$run" "$@" --resume "$resume" || got=$?
    [ "$got" -eq 0 ] || fail "$last: resuming ends with $got"
    same_run "$folder/expected" "$run" "$last"
    kept=$(kept_checkpoints)
    for step in $checkpoints; do
      [[ $kept == *$step* ]] || fail "$last: $step is lost by resuming"
    done
    also_true "$last"
  done 2>/dev/null
  echo "$name: $trial of $operations operations"
}

also_true() { :; }
# A new run, and a resumed one that eventually removes its old checkpoint.
mkdir "$folder/before"
trials "a new run" "" auto --epochs 4
rm -rf "$folder/before"
alone "${tiny[@]}" --epochs 4 --max-steps 4 --output "$folder/before" || fail "the first half"
trials "a resumed run" "" auto --epochs 4 --resume auto
# Resuming from an older step: the later checkpoints are moved.
rm -rf "$folder/before"
alone "${tiny[@]}" --epochs 4 --output "$folder/before" || fail "the run with later steps"
trials "a fork" "step-00000009 step-00000012" "$run/checkpoints/step-00000009" --epochs 4 \
  --resume "$run/checkpoints/step-00000009"
# A new run in the folder of another one, which must be kept completely.
rm -rf "$folder/before"
alone "${tiny[@]}" --epochs 4 --seed 2 --output "$folder/before" || fail "the earlier run"
also_true() {
  local earlier
  for earlier in "$run"/earlier-*; do
    diff -r --no-dereference "$folder/before" "$earlier" >/dev/null && return
  done
  fail "$1: the earlier run is incomplete"
}
trials "a run over an earlier one" "" none --epochs 4
finish
