# What the batch scripts slurm-train.sbatch and slurm-train-srun.sbatch share; they source it.
# shellcheck shell=bash

program=${DDP_TRAIN:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/release/src/ddp_train}
[ -x "$program" ] || {
  echo "slurm: there is no program $program; run launch/build first, or name it in DDP_TRAIN" >&2
  exit 3
}
if [ "$(id -u)" -eq 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
# Containers forbid the system call behind this way of copying, and Open MPI complains about it for every rank.
export OMPI_MCA_btl_vader_single_copy_mechanism=${OMPI_MCA_btl_vader_single_copy_mechanism:-none}

# A job that was requeued, by this script or by Slurm after a node failed, goes on from its newest good checkpoint.
resume=()
# shellcheck disable=SC2034  # used by the scripts that source this
[ "${SLURM_RESTART_COUNT:-0}" -eq 0 ] || resume=(--resume auto)

# choose_mpi_plugin: what srun must be told to start ranks of the program's MPI, as `mpi_plugin`; nothing where it lacks the
# plugin, whose default may serve, or where SLURM_MPI_TYPE names one already.
# shellcheck disable=SC2034  # used by the script that sources this
choose_mpi_plugin() {
  local wanted=pmix
  mpi_plugin=()
  [ -z "${SLURM_MPI_TYPE:-}" ] || return 0
  if "$program" --version 2>/dev/null | grep -qiE 'mpich|mvapich|intel.*mpi'; then wanted=pmi2; fi
  if srun --mpi=list 2>&1 | tr -s '[:space:],' '\n' | grep -qxF "$wanted"; then
    mpi_plugin=("--mpi=$wanted")
  else
    echo "slurm: srun has no plugin $wanted for the program's MPI (srun --mpi=list), and takes its default" >&2
  fi
}

# run_and_requeue LAUNCHER...: runs the job. USR1, which Slurm sends before the time limit and before a preemption, goes
# to the launcher and from there to all ranks; they save and end with exit code 75, and the job is queued again. TERM
# (scancel --batch --signal=TERM JOB) has them save and stop for good. Ends with the job's exit code.
run_and_requeue() {
  local job status interrupted again=no
  "$@" &
  job=$!
  # shellcheck disable=SC2317  # called by the traps
  stop() {
    interrupted=yes again=$1
    echo "slurm: asked all ranks to save and stop" >&2
    kill -USR1 "$job" 2>/dev/null || true
  }
  trap 'stop yes' USR1
  trap 'stop no' TERM
  # A signal interrupts `wait`, whose result is then not the job's.
  while :; do
    interrupted=no status=0
    wait "$job" || status=$?
    [ "$interrupted" = yes ] || break
  done
  if [ "$status" -eq 75 ] && [ "$again" = yes ]; then
    echo "slurm: saved; job $SLURM_JOB_ID goes back into the queue" >&2
    scontrol requeue "$SLURM_JOB_ID"
  fi
  exit "$status"
}
