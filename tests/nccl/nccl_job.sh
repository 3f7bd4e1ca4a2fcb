#!/usr/bin/env bash
# nccl_job.sh MPIRUN PROGRAM RANKS: tests that a job ends if rank 1 hangs or has an NCCL error in step 7.
set -u
mpirun=$1 program=$2 ranks=$3
failures=0

# job CODE HOW PATTERN: the job must end by itself with this exit code and matching output.
job() {
  local output code
  output=$(timeout -s KILL 60 "$mpirun" --oversubscribe --bind-to none -np "$ranks" "$program" "$2" 2>&1)
  code=$?
  if [ "$code" -ne "$1" ] || ! grep -qE -- "$3" <<<"$output"; then
    echo "FAILED: '$2' exits with $code instead of $1, or no line matches '$3':"
    echo "${output//$'\n'/$'\n'    }"
    failures=$((failures + 1))
  fi
}

job 0 fine '^10 steps reduced$'
job 7 hang "rank [02-9]: step 7, gradient bucket 2 of [0-9]+: waited 1 s for NCCL's sum over $ranks ranks: a rank hung or died"
# NCCL reports the error when the rank waits or when it enqueues a later sum.
job 7 broken 'rank 1: step 7, gradient bucket [2-9] of [0-9]+: .*NCCL: .*remote error.*'
exit $((failures > 0))
