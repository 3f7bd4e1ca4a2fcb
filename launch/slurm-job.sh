# Shared by slurm-train.sbatch and slurm-train-srun.sbatch, which source it.
# shellcheck shell=bash

# First, because signals are handled from here on. The first signal and its time:
again='' asked_at=''
source "$(dirname "${BASH_SOURCE[0]}")/job.sh"
source "$(dirname "${BASH_SOURCE[0]}")/run_folder.sh"
trap 'stops=$((stops + 1)); : "${again:=yes}" "${asked_at:=$SECONDS}"; request_stop' USR1
trap 'stops=$((stops + 1)) again=no; : "${asked_at:=$SECONDS}"; request_stop' TERM
choose_temporary_folder slurm

# The program of the repository, or of the prefix that this script was installed into.
program=${DDP_TRAIN:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/release/src/ddp_train}
installed=$(dirname "${BASH_SOURCE[0]}")/../../../bin/ddp_train
if [ ! -e "$program" ] && [ -x "$installed" ]; then program=$(readlink -f "$installed"); fi
[ -x "$program" ] || {
  echo "slurm: program $program not found; run launch/build first, or set DDP_TRAIN" >&2
  exit 3
}
if [ "$(id -u)" -eq 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
# Containers forbid the system call of this single-copy mechanism, and Open MPI warns about it for every rank.
export OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}

# A job that was requeued, by this script or by Slurm after a node failure, resumes from its newest intact checkpoint.
resume=()
# shellcheck disable=SC2034  # used by the scripts that source this
[ "${SLURM_RESTART_COUNT:-0}" -eq 0 ] || resume=(--resume auto)

# choose_mpi_plugin: sets `mpi_plugin` to the srun option for the program's MPI; empty if srun lacks the plugin, in
# which case its default may work, or if SLURM_MPI_TYPE is set.
# shellcheck disable=SC2034  # used by the script that sources this
choose_mpi_plugin() {
  local wanted=pmix
  mpi_plugin=()
  [ -z "${SLURM_MPI_TYPE:-}" ] || return 0
  if "$program" --version 2>/dev/null | grep -qiE 'mpich|mvapich|intel.*mpi'; then wanted=pmi2; fi
  if srun --mpi=list 2>&1 | tr -s '[:space:],' '\n' | grep -qxF "$wanted"; then
    mpi_plugin=("--mpi=$wanted")
  else
    echo "slurm: srun has no plugin $wanted for the program's MPI (srun --mpi=list); using its default" >&2
  fi
}

# The start time of the job and the arguments of the program, for run_and_requeue.
begun=$SECONDS program_arguments=()

# Whether Slurm is preempting this job rather than warning about its time limit.
preempted() {
  local word
  for word in $(scontrol show job "$SLURM_JOB_ID" 2>/dev/null); do
    case $word in PreemptTime=None | PreemptTime=Unknown) return 1 ;; PreemptTime=*) return 0 ;; esac
  done
  return 1
}

# The step of the newest checkpoint of the program with these arguments, or nothing.
checkpoint_of() {
  local options output
  options=$(mktemp) || return 0
  timeout -k 5 60 "$program" "$@" --dump-config >"$options" 2>/dev/null </dev/null || true
  output=$(run_folder)
  newest_step
  rm -f "$options"
}

# Whether a job that has lost a rank or a node is to be started again: not if it may fail forever, that is after several restarts
# if it has saved no checkpoint in this one.
worth_another_start() {
  local now
  now=$(checkpoint_of "$@")
  [ "$now" != "$step_at_start" ] || [ "${SLURM_RESTART_COUNT:-0}" -lt "${DDP_MAX_RESTARTS:-3}" ]
}

# run_and_requeue LAUNCHER...: runs the job; `program_arguments` are those of the program. USR1, which Slurm sends before the time
# limit and before a preemption, goes to the launcher and from there to all ranks; they save and exit with code 75, and the job is
# requeued. TERM (scancel --batch --signal=TERM JOB) makes them save and stop for good. A job that has lost a rank or a node (code
# 7) is requeued too, as Slurm does if it finds out first. Returns the exit code of the job.
#
# A job whose time limit is shorter than the warning time is signalled as soon as it starts and would be requeued
# forever. Therefore a job that is signalled within its first seconds without a preemption is not requeued.
run_and_requeue() {
  local status=0 asked
  # shellcheck disable=SC2034  # read in job.sh
  job_name=slurm
  # shellcheck disable=SC2034
  [ "${SLURM_JOB_NUM_NODES:-2}" -ne 1 ] || one_host=yes
  local step_at_start
  step_at_start=$(checkpoint_of ${program_arguments[@]+"${program_arguments[@]}"})
  run_job "$@" || status=$?
  asked=$((${asked_at:-$SECONDS} - begun))
  if [ "$status" -eq 75 ] && [ "$again" = yes ]; then
    if [ "$asked" -lt "${DDP_REQUEUE_AFTER:-20}" ] && ! preempted; then
      echo "slurm: asked to stop $asked s after the start, so the time limit is hardly longer than the warning time" \
        "(--signal); not requeued; use a longer --time" >&2
    else
      echo "slurm: saved; job $SLURM_JOB_ID is requeued" >&2
      scontrol requeue "$SLURM_JOB_ID"
    fi
  fi
  if [ "$status" -eq 7 ] && [ "$again" != no ]; then
    if worth_another_start ${program_arguments[@]+"${program_arguments[@]}"}; then
      echo "slurm: lost a rank or a node; job $SLURM_JOB_ID is requeued" >&2
      scontrol requeue "$SLURM_JOB_ID"
    else
      echo "slurm: lost a rank or a node again, without a new checkpoint since the start; not requeued" >&2
    fi
  fi
  exit "$status"
}
