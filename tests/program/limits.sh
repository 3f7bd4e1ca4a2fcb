#!/usr/bin/env bash
# What the system does not permit: threads, open files, room in /dev/shm. One line and code 3, or the run does without.
#   limits.sh PROGRAM MPIRUN, with NO_THREADS=.../libno_threads.so LAUNCH=.../launch
# What needs root is named and skipped without it; the exit code is then 77.
set -u
source "$(dirname "$0")/lib.sh"
small=(--model lenet --dataset glyphs --train-limit 512 --test-limit 128 --epochs 1 --workers 2 --threads 2 --progress none)
skipped=()

# says PATTERN: standard error has one error of ours (of one rank or several), which matches.
says() {
  grep -qE "^ddp_train: error: (rank [0-9]+: )?$1" "$words/err" || fail "no '$1' from $last"
  [ "$(grep '^ddp_train: error:' "$words/err" | sed 's/rank [0-9]*: //' | sort -u | wc -l)" -eq 1 ] || fail "several errors from $last"
}

# limited MOST ARGUMENTS...: a rank with this many threads beside its first one; sets `got`.
limited() {
  last="with $1 threads: ${*:2}" got=0
  DDP_MOST_THREADS=$1 LD_PRELOAD=$NO_THREADS timeout -s KILL 60 "$program" "${small[@]}" "${@:2}" >"$words/out" 2>"$words/err" ||
    got=$?
}

# Threads that the run needs: of signals, the watchdog, MPI, OpenMP, the lock, the loaders.
for most in 0 1 2 3 4 5 6 7; do
  limited $most --output "$folder/few"
  [ "$got" -eq 3 ] || fail "exit code $got $last"
  says 'cannot start a thread for .*; raise the limit \(ulimit -u, --pids-limit of Docker'
  [ ! -e "$folder/few/run.lock" ] || fail "the lock is left $last"
done
limited 20 --output "$folder/enough"
[ "$got" -eq 0 ] || fail "exit code $got $last"
for most in 4 8; do
  DDP_MOST_THREADS=$most LD_PRELOAD=$NO_THREADS run 3 30 2 "${small[@]}" --output "$folder/few"
  says 'cannot start a thread for '
done

# Under mpirun a process with few descriptors hangs before the ranks.
last="ulimit -n 32" got=0
(
  ulimit -n 32
  DDP_TRAIN=$program exec timeout -s KILL 20 "$LAUNCH/run" -np 2 -- "${small[@]}" --output "$folder/files"
) >"$words/out" 2>"$words/err" || got=$?
[ "$got" -eq 3 ] || fail "exit code $got with $last"
one_line '^run: the limit of 32 open files .* is too low for 2 ranks.*raise it to 1024'

# As in a container with --pids-limit 20.
group=/sys/fs/cgroup/pids
[ -d $group ] || group=/sys/fs/cgroup
group=$group/ddp-test-$$
if mkdir $group 2>/dev/null && echo 20 >$group/pids.max; then
  last="20 processes and threads" got=0
  (
    echo $BASHPID >$group/cgroup.procs
    DDP_TRAIN=$program exec timeout -s KILL 60 "$LAUNCH/run" -np 2 -- "${small[@]}" --output "$folder/pids"
  ) >"$words/out" 2>"$words/err" || got=$?
  [ "$got" -eq 3 ] || fail "exit code $got with $last"
  grep -qE 'there may be 20 processes and threads here|this container or job may have 20 processes and threads' "$words/err" ||
    fail "the limit is not named"
  await rmdir $group 2>/dev/null
else
  skipped+=("a limit of processes, which needs a writable control group")
fi

# in_small_shm MIB COMMAND: with a /dev/shm of its own.
in_small_shm() {
  PROGRAM=$program MPIRUN=$mpirun FOLDER=$folder unshare -m bash -c "mount -t tmpfs -o size=$1m tmpfs /dev/shm && ${*:2}" \
    >"$words/out" 2>"$words/err" </dev/null
}
# shellcheck disable=SC2016  # expanded in the namespace
job='timeout -s KILL 60 $MPIRUN -q --oversubscribe --bind-to none -np 8 $PROGRAM --model lenet --dataset glyphs --train-limit 512
  --test-limit 128 --epochs 1 --workers 0 --global-batch 256 --progress none --output "$FOLDER/shm"'
job=${job//$'\n'/}
if in_small_shm 1 true 2>/dev/null; then
  last="8 MB of /dev/shm" got=0
  in_small_shm 8 "$job" || got=$?
  [ "$got" -eq 3 ] || fail "exit code $got with $last"
  says '/dev/shm has .* free, and 8 ranks on this host need about .*--shm-size 1g'
  # It becomes full later.
  got=0
  OMPI_MCA_btl_vader_backing_directory=/dev/shm in_small_shm 8 "$job" || got=$?
  [ "$got" -eq 3 ] || fail "exit code $got with a full /dev/shm"
  says '/dev/shm is full, .*--shm-size 1g'
  # What an mpirun that is killed leaves there is removed by the next start.
  # shellcheck disable=SC2016
  in_small_shm 64 "{ ${job/-np 8/-np 2} --epochs 5000"' & for i in $(seq 300); do [ -e "$FOLDER/shm/latest" ] && break; sleep 0.1; done
    pkill -KILL -P $!; sleep 4; $PROGRAM --version && ls -A /dev/shm && $PROGRAM check && ls -A /dev/shm >"$FOLDER/left"; }' || fail "the next start"
  grep -q 'ddp_train: removed 2 segments of killed MPI jobs from /dev/shm' "$words/err" || fail "the removal is not said"
  [ ! -s "$folder/left" ] || fail "segments of a killed mpirun are left in /dev/shm"
else
  skipped+=("a small /dev/shm, which needs the right to mount")
fi
finish
[ ${#skipped[@]} -eq 0 ] || { printf 'SKIPPED: %s\n' "${skipped[@]}" && exit 77; }
