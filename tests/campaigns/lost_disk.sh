#!/usr/bin/env bash
# lost_disk.sh PROGRAM MPIRUN [TRIALS]: the file system of a run folder is unmounted in mid-run. If it comes back, the run must end
# with the bytes and logs of an undisturbed one; if not, with code 8 at its end, and with --on-checkpoint-failure stop at once;
# the newest checkpoint must then be intact, and a resumed run must end as an undisturbed one. The same with a disk that
# fills up. Ends with 77 and the reason where mounting is not allowed.
set -u
if [ "${LOST_DISK_NAMESPACE:-}" != yes ]; then
  if [ "$(id -u)" -ne 0 ] || ! unshare -m true 2>/dev/null; then
    echo "SKIPPED: no mount namespaces"
    exit 77
  fi
  LOST_DISK_NAMESPACE=yes exec unshare -m "$0" "$@"
fi
source "$(dirname "$0")/lib.sh"
trials=${3:-2}
disk=$folder/disk spare=$folder/spare run=$folder/disk/run whole=$folder/whole
length=(--epochs 240 --timeout 30 --hang-timeout 20)
mkdir "$disk" "$spare"
mount -t tmpfs -o size=16m tmpfs "$spare" 2>"$folder/err" || { echo "SKIPPED: $(cat "$folder/err")" && exit 77; }
# shellcheck disable=SC2317  # called by the trap
clean_up() {
  umount -l "$disk" "$spare" 2>/dev/null
  rm -rf "$folder"
}
trap clean_up EXIT
mount --bind "$spare" "$disk"

# start ARGUMENTS...: in the background; returns when a first checkpoint is there.
start() {
  rm -rf "${spare:?}"/*
  "$mpirun" -q --oversubscribe --bind-to none -np 2 "$program" "${tiny[@]}" "${length[@]}" --output "$run" "$@" \
    >"$folder/out" 2>"$folder/err" &
  job=$!
  last="a run ${way} with ${*:-no other options}"
  await test -L "$spare/run/latest"
  sleep "0.$((RANDOM % 5))"
}
ends() {
  local code=$1 got=0 i
  for ((i = 0; i < 2400; i++)); do
    kill -0 "$job" 2>/dev/null || break
    sleep 0.1
  done
  ! kill -0 "$job" 2>/dev/null || { fail "$last does not end" && kill -KILL "$job"; }
  wait "$job" || got=$?
  [ "$got" -eq "$code" ] || fail "exit code $got in place of $code from $last"
}
said() { grep -qE -- "$1" "$folder/err" || fail "no line with '$1' from $last"; }
# What does not depend on which checkpoints could be written.
same_end() {
  same_tensors "$whole/latest" "$run/latest"
  cmp -s <(losses "$whole") <(losses "$run") || fail "the losses differ: $last"
  cmp -s <(evaluations "$whole") <(evaluations "$run") || fail "the evaluations differ: $last"
  cmp -s <(cut -d, -f1-6 "$whole/summary.csv") <(cut -d, -f1-6 "$run/summary.csv") || fail "summary.csv differs: $last"
}
# From the newest intact checkpoint to the end.
resumes() {
  mountpoint -q "$disk" || mount --bind "$spare" "$disk"
  run 0 240 2 "${tiny[@]}" "${length[@]}" --output "$run" --resume auto
  same_run "$whole" "$run" "$last, resumed"
}
# Whether a checkpoint could not be written. The disk comes back soon after that, long before the run ends.
missed() { grep -q 'was not written' "$folder/err"; }
gone() { grep -q 'is not there any more' "$folder/err"; }
lose() { umount -l "$disk"; }
fill() { dd if=/dev/zero of="$spare/full" bs=64k 2>/dev/null; }

run 0 240 2 "${tiny[@]}" "${length[@]}" --output "$whole"
for ((trial = 0; trial < trials; trial++)); do
  way="whose disk is away for a while"
  start
  lose
  await missed
  await gone
  sleep "0.$((RANDOM % 5))"
  mount --bind "$spare" "$disk"
  ends 0
  said 'the file system of .*/run is not there any more; training continues'
  said 'the checkpoint of step [0-9]+ was not written: .*; training continues, the next attempt is in 1 s'
  same_end

  way="whose disk is full for a while"
  start
  fill
  await missed
  sleep "0.$((RANDOM % 5))"
  rm "$spare/full"
  ends 0
  said 'No space left on device'
  same_end

  # One trial, as a test, tries one of them: each takes six runs.
  loss_kinds=(lose fill)
  [ "$trials" -gt 1 ] || loss_kinds=(lose)
  for loss in "${loss_kinds[@]}"; do
    way="whose disk is lost ($loss)"
    start
    $loss
    ends 8
    said 'training continues'
    said '^ddp_train: error: .*(No such file or directory|No space left on device)'
    rm -f "$spare/full"
    resumes

    start --on-checkpoint-failure stop
    $loss
    begin=$SECONDS
    ends 8
    [ $((SECONDS - begin)) -le 5 ] || fail "$((SECONDS - begin)) s until the end of $last"
    rm -f "$spare/full"
    resumes
  done
done
finish
