#!/usr/bin/env bash
# runtime.sh CHECK MPIRUN PROBE: runs the probe under mpirun and checks its exit code and output.
set -u
check=$1 mpirun=$2 probe=$3
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OMPI_MCA_orte_tmpdir_base=$folder
failures=0
limit=120

fail() {
  echo "FAILED: $1"
  sed 's/^/    /' "$folder/out" "$folder/err"
  failures=$((failures + 1))
}

# run CODE COMMAND...: the command ends within the time limit with this exit code; its output is in $folder/{out,err}.
run() {
  local code=$1
  shift
  timeout -s KILL "$limit" "$@" >"$folder/out" 2>"$folder/err"
  local got=$?
  last="$*"
  if [ "$got" -ne "$code" ]; then fail "exit code $got instead of $code from: $last"; fi
}
ranks() {
  local count=$1
  shift
  run "$1" "$mpirun" --oversubscribe -np "$count" "$probe" "$count" "${@:2}"
}
# says TIMES PATTERN: this many lines of standard error match.
says() {
  local count
  count=$(grep -cE -- "$2" "$folder/err")
  if [ "$count" -ne "$1" ]; then fail "$count lines with '$2' instead of $1 from: $last"; fi
}
prints() {
  local count
  count=$(grep -cE -- "$2" "$folder/out")
  if [ "$count" -ne "$1" ]; then fail "$count lines with '$2' instead of $1 from: $last"; fi
}

# A failing job takes at most 10 s longer than a successful one.
limit_failing_jobs() {
  local begin=$SECONDS
  ranks 3 0
  limit=$((SECONDS - begin + 11))
}

case $check in
start)
  run 0 "$probe" 1
  prints 1 "rank 0 of 1, local 0 of 1, hosts 1"
  # One rank without mpirun uses no shared session directory. It ends in less than the second for which Open MPI sleeps
  # after probing for fast networks; on a loaded machine one of five attempts suffices.
  run 0 env TMPDIR=/proc/nowhere "$probe" 1
  quick=no
  for _ in 1 2 3 4 5; do
    begin=$(date +%s%N)
    run 0 "$probe" 1
    [ $(($(date +%s%N) - begin)) -gt 900000000 ] || quick=yes
  done
  [ "$quick" = yes ] || fail "a session of one rank takes a second or more"
  for count in 1 2 3; do
    ranks "$count" 0
    for ((rank = 0; rank < count; rank++)); do
      prints 1 "rank $rank of $count, local $rank of $count, hosts 1"
    done
    says 1 "^ddp_train: $count ranks? on 1 host, "
    says 0 "error"
  done
  # Fewer ranks than requested is a failure.
  run 3 "$mpirun" --oversubscribe -np 2 "$probe" 3
  says 1 "3 ranks wanted, 2 there"
  ;;
setup_failures)
  limit_failing_jobs
  for count in 1 3; do
    ranks "$count" 4 setup error $((count - 1))
    says 1 "the probe was told to fail; so it does"
    says 0 "MPI_ABORT"
  done
  ranks 2 4 setup error -1
  says 1 "the probe was told to fail; so it does"
  says 0 "other rank"
  ranks 3 8 setup own -1
  says 1 "error: rank 0: the probe fails on rank 0 in its way \(and 2 other ranks\)$"
  says 0 "fails on rank [12]"
  ranks 3 8 setup own 1
  says 1 "error: rank 1: the probe fails on rank 1 in its way$"
  ranks 2 5 setup memory 1
  says 1 "error: rank 1: out of memory"
  ranks 2 1 setup logic 1
  says 1 "error: rank 1: internal error: the probe's own mistake"
  ranks 2 1 setup number 0
  says 1 "error: rank 0: internal error: .*unknown type"
  ranks 3 7 setup hang 2
  says 1 "error: rank 0: waited 1 s for rank 2 in the agreement of all ranks"
  ranks 2 2 --lrr 3
  says 1 "unknown option --lrr .*did you mean --lr"
  ;;
run_failures)
  limit_failing_jobs
  for count in 2 3; do
    for rank in 0 $((count - 1)); do
      ranks "$count" 4 run error "$rank"
      says 1 "ddp_train: error: rank $rank: the probe was told to fail; so it does"
      says 1 "ddp_train: error"
    done
  done
  ranks 3 5 run memory 1
  says 1 "error: rank 1: out of memory"
  ranks 2 1 run logic 0
  says 1 "error: rank 0: internal error: the probe's own mistake"
  ranks 2 1 run number 1
  says 1 "error: rank 1: internal error: .*unknown type"
  ranks 3 137 run kill 1
  ;;
launchers)
  # Copies of a one-rank job, as started by the launcher of another MPI or by torchrun.
  run 3 env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$probe" 1
  says 1 "OMPI_COMM_WORLD_SIZE is 2, but MPI \(Open MPI .*use the mpirun of that"
  run 3 env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 "$probe" 1
  says 0 "."
  run 3 env PMI_SIZE=4 PMI_RANK=0 "$probe" 1
  says 1 "PMI_SIZE is 4, "
  run 3 env WORLD_SIZE=4 RANK=0 LOCAL_RANK=0 "$probe" 1
  says 1 "WORLD_SIZE is 4, "
  run 3 env SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 "$probe" 1
  says 1 "srun --mpi=pmix"
  # mpirun within a Slurm job: every rank has the batch script's variables.
  run 0 env SLURM_PROCID=0 SLURM_NTASKS=8 "$mpirun" --oversubscribe -np 2 "$probe" 2
  run 0 env WORLD_SIZE=8 "$mpirun" --oversubscribe -np 2 "$probe" 2
  run 0 env WORLD_SIZE=8 "$probe" 1
  says 1 "warning: WORLD_SIZE is 8, but this run has a single rank"
  ;;
binding)
  cores=$(nproc)
  first=$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')
  # expand: converts "0-2,5" on standard input to "0 1 2 5".
  expand() {
    tr ',' '\n' | while IFS=- read -r low high; do seq "$low" "${high:-$low}"; done | xargs
  }
  # By default, Open MPI binds one rank to one core; the probe uses all cores of mpirun.
  run 0 "$mpirun" -np 1 "$probe" 1
  mine=$(taskset -cp $$ | sed 's/.*: //' | expand)
  if [ "$(sed 's/.*cpus //' "$folder/out" | expand)" != "$mine" ]; then fail "cpus other than $mine from: $last"; fi
  # Requested binding is kept.
  run 0 "$mpirun" --bind-to core -np 1 "$probe" 1
  says 1 "1 rank on 1 host, 1 thread, bound to cores? "
  run 0 taskset -c "$first" "$probe" 1
  prints 1 "threads 1, omp 1, cpus $first$"
  says 1 "1 rank on 1 host, 1 thread, bound to core $first$"
  run 0 taskset -c "$first" "$probe" 1 --threads 2
  prints 1 "threads 2, omp 2, cpus $first$"
  says 1 "warning: --threads 2 exceeds the 1 core"
  run 0 "$probe" 1 --bind none --threads 1
  prints 1 "threads 1, omp 1,"
  says 1 "1 rank on 1 host, 1 thread, not bound"
  # All ranks share one core, with a single warning.
  run 0 taskset -c "$first" "$mpirun" --oversubscribe -np 3 "$probe" 3
  prints 3 "threads 1, omp 1, cpus $first$"
  says 1 "warning: .*3 ranks share 1 core on host"
  says 1 "3 ranks on 1 host, 1 thread each, sharing core $first$"
  if [ "$cores" -ge 2 ]; then
    run 0 "$mpirun" --oversubscribe --bind-to none -np 2 "$probe" 2
    says 1 "2 ranks on 1 host, .* each, bound to cores .* \| "
    if [ "$(sed 's/.*cpus //' "$folder/out" | sort -u | wc -l)" -ne 2 ]; then fail "ranks on the same cores: $last"; fi
  fi
  ;;
signals)
  # await PATTERN: waits up to 30 s for a matching line on standard output.
  await() {
    for _ in $(seq 600); do
      if grep -qE -- "$1" "$folder/out"; then return; fi
      sleep 0.05
    done
    fail "never printed: $1"
  }
  # send SIGNAL[:PATTERN]...: sends these signals to a waiting probe, each after the output expected from the previous
  # one, and sets $code to its exit code.
  send() {
    last="signals $*"
    : >"$folder/out"
    "$probe" 1 signals >"$folder/out" 2>"$folder/err" &
    local process=$!
    await "^ready"
    local step
    for step in "$@"; do
      kill -"${step%%:*}" "$process"
      if [ "$step" != "${step#*:}" ]; then await "^${step#*:}"; fi
    done
    wait "$process"
    code=$?
  }
  for signal in USR1 TERM INT; do
    send $signal
    if [ "$code" -ne 75 ]; then fail "exit code $code instead of 75 after $signal"; fi
    prints 1 "stopped by SIG$signal"
  done
  send "HUP:checkpoint 1" "HUP:checkpoint 2" USR1
  if [ "$code" -ne 75 ]; then fail "exit code $code instead of 75 after HUP, HUP, USR1"; fi
  prints 1 "checkpoint 2"
  send "INT:stopped" INT
  if [ "$code" -ne 130 ]; then fail "exit code $code instead of 130 after two INT"; fi
  # Through mpirun, USR1 reaches the ranks.
  "$mpirun" --oversubscribe -np 2 "$probe" 2 signals >"$folder/out" 2>"$folder/err" &
  process=$!
  for _ in $(seq 600); do
    if [ "$(grep -c "^ready" "$folder/out")" -eq 2 ]; then break; fi
    sleep 0.05
  done
  kill -USR1 "$process"
  wait "$process"
  code=$?
  last="mpirun and USR1"
  if [ "$code" -ne 75 ]; then fail "exit code $code instead of 75 from mpirun after USR1"; fi
  prints 2 "stopped by SIGUSR1"
  ;;
*)
  echo "unknown check: $check"
  exit 2
  ;;
esac
[ "$failures" -eq 0 ]
