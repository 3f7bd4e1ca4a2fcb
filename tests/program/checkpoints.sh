#!/usr/bin/env bash
# Checkpoints are written while training continues. If one cannot be written, the job warns and retries once the disk has space
# again; at the end of training, or with --on-checkpoint-failure stop, it fails. A full disk is simulated by a file size limit
# that prlimit sets while the job runs.
set -u
source "$(dirname "$0")/lib.sh"
command -v prlimit >/dev/null || { echo "SKIPPED: prlimit is not installed" && exit 77; }
long=("${small[@]}" --deterministic --logical-shards 2 --checkpoint-every 4 --epochs 1000 --eval-every 0 --keep-checkpoints 2)

# start NAME ARGUMENTS...: in the background on 2 ranks; returns once there is a checkpoint. Sets `job` and `rank0`.
start() {
  local name=$1 rank
  shift
  last="2 ranks: $*"
  "$mpirun" -q --oversubscribe --bind-to none -np 2 "$program" "${long[@]}" --output "$folder/$name" "$@" \
    >"$folder/out" 2>"$folder/err" &
  job=$!
  await test -L "$folder/$name/latest" || fail "no checkpoint from $last"
  for rank in $(pgrep -P "$job"); do
    if tr '\0' '\n' <"/proc/$rank/environ" | grep -qx OMPI_COMM_WORLD_RANK=0; then rank0=$rank; fi
  done
}
full() { prlimit --pid "$rank0" --fsize=300000:unlimited; }
warned() { [ "$(grep -c 'warning: .*the checkpoint of step [0-9]* was not written: .*File too large' "$folder/err")" -ge "$1" ]; }
newest() { readlink "$folder/$1/latest"; }
moved() { [ "$(newest run)" != "$before" ]; }
ends() {
  local got=0
  wait "$job" || got=$?
  [ "$got" -eq "$1" ] || fail "exit code $got instead of $1 from $last"
}

# The disk is full temporarily: nothing is lost, and training continues.
start run
full
await warned 2 || fail "no warnings of a full disk from $last"
before=$(newest run)
[ -e "$folder/run/$before/MANIFEST.json" ] || fail "the last good checkpoint is gone"
# The next attempt may just be writing some.
clean() { ! compgen -G "$folder/run/checkpoints/.tmp*" >/dev/null; }
await clean || fail "a failed checkpoint left temporary files"
prlimit --pid "$rank0" --fsize=unlimited
await moved || fail "no checkpoint after the disk had space again, from $last"
kill -USR1 "$job"
ends 75
step=$(basename "$(newest run)")
run 0 120 1 "${long[@]}" --max-steps $((10#${step#step-})) --output "$folder/whole"
same_tensors "$folder/whole/latest" "$folder/run/latest"

# Until the end of training: the exit code of a checkpoint that cannot be written.
start last
full
await warned 1 || fail "no warning of a full disk from $last"
kill -USR1 "$job"
ends 8
[ "$(grep -c 'error:' "$folder/err")" -eq 1 ] || fail "other than one error from $last"

# Or immediately.
start strict --on-checkpoint-failure stop
full
ends 8
one_line 'File too large'
finish
