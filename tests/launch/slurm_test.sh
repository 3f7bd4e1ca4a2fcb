#!/usr/bin/env bash
# slurm_test.sh ROOT: tests launch/slurm-train*.sbatch without a cluster: the effects of signals, and the launcher's
# arguments. The commands of Slurm and MPI are stand-ins.
# shellcheck disable=SC2016  # scripts in single quotes
set -u
root=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# shellcheck source=tests/launch/failures.sh
source "$(dirname "$0")/failures.sh" said

mkdir "$folder/bin"
# A launcher that prints its arguments and then behaves like ddp_train: it runs until USR1 or exits at once.
cat >"$folder/bin/srun" <<'LAUNCHER'
#!/usr/bin/env bash
case $* in --version) echo "${MPIRUN-mpirun (Open MPI) 4.1.4}" && exit ;; esac
case $* in --mpi=list) echo "MPI plugin types are..." && printf '\t%s\n' none ${PLUGINS-cray_shasta pmi2 pmix} >&2 && exit ;; esac
echo "$(basename "$0") $* in $PWD"
case $* in
*--epochs*)
  trap 'exit 75' USR1
  echo running
  while :; do sleep 0.05; done
  ;;
*--early*) echo running; sleep 20 ;;
*--full*) exit 75 ;;
# A rank notices that a node is lost. srun then ends the other ranks, and waits for those of the lost node.
*--loses*)
  echo 'srun: error: n1: task 0: Exited with exit code 7' >&2
  [ -z "${SAVES:-}" ] || ln -sfn checkpoints/step-00000009 "$SAVES/latest"
  case $* in *--waits*) exec sleep 30 ;; esac
  echo 'srun: error: n1: task 1: Killed' >&2
  exit 137
  ;;
*--down*) echo 'srun: error: Node failure on n2' >&2; exit 143 ;;
*--daemon*) echo 'srun: error: n2: task 1: Killed' >&2; exit 205 ;;
*) exit 4 ;;
esac
LAUNCHER
cp "$folder/bin/srun" "$folder/bin/mpirun"
cat >"$folder/bin/scontrol" <<'SCONTROL'
#!/usr/bin/env bash
case $1 in
show) printf 'JobId=17 JobName=x\n   Command=%s --config a.sbatch\n   WorkDir=/\n   PreemptTime=%s\n' "${SCRIPT:-/nowhere/launch/x.sbatch}" "${PREEMPT_TIME:-None}" ;;
*) echo "scontrol $*" ;;
esac
SCONTROL
printf '#!/usr/bin/env bash\necho "  ${MPI:-Open MPI} 4.1"\necho "output = ${SAVES:-}  # command line"\n' >"$folder/program"
chmod +x "$folder"/bin/* "$folder/program"
# The stand-ins are stopped within a second.
export DDP_REQUEUE_AFTER=0
export PATH=$folder/bin:$PATH SLURM_SUBMIT_DIR=$root SLURM_JOB_ID=17 DDP_TRAIN=$folder/program

# start SCRIPT ARGUMENTS...: starts the batch script in the background, as $job.
start() {
  last="$*"
  : >"$folder/said"
  "$root/launch/$1" "${@:2}" >"$folder/said" 2>&1 &
  job=$!
}
ends() { # ends CODE
  local got=0
  wait "$job" || got=$?
  [ "$got" -eq "$1" ] || fail "exit code $got instead of $1 from $last"
}
signal() {
  for _ in $(seq 200); do
    if grep -q '^running' "$folder/said"; then break; fi
    sleep 0.05
  done
  kill -"$1" "$job"
}
says() { grep -qF -- "$1" "$folder/said" || fail "no '$1' from $last"; }
silent() { if grep -qF -- "$1" "$folder/said"; then fail "'$1' from $last"; fi; }

for script in slurm-train.sbatch slurm-train-srun.sbatch; do
  start $script --epochs 3
  signal USR1
  ends 75
  says "$folder/program --epochs 3"
  silent --resume
  says 'scontrol requeue 17'
  # A signal right after the start would recur after every start, and the job would be requeued forever.
  DDP_REQUEUE_AFTER='' start $script --epochs 3
  signal USR1
  ends 75
  silent 'scontrol requeue'
  says 'use a longer --time'
  PREEMPT_TIME=2026-01-01T00:00:00 DDP_REQUEUE_AFTER='' start $script --epochs 3
  signal USR1
  ends 75
  says 'scontrol requeue 17'
  # Before the launcher handles signals: the stand-in is killed by the signal.
  start $script --early
  signal USR1
  ends 75
  says 'scontrol requeue 17'
  start $script --epochs 3
  signal TERM
  ends 75
  silent 'scontrol requeue'
  # Saved and stopped by a request to another rank: the job is not requeued.
  start $script --full
  ends 75
  silent 'scontrol requeue'
  start $script --lr 0
  ends 4
  silent 'scontrol requeue'
  SLURM_RESTART_COUNT=1 start $script --lr 0
  ends 4
  says '--lr 0 --resume auto'
  DDP_TRAIN=$folder/none start $script --lr 0
  ends 3
  says 'launch/build'
done
# A lost node: the job is requeued whoever finds out first, and nothing is said of memory. Not for ever without a checkpoint.
start slurm-train-srun.sbatch --loses
ends 7
says 'lost a rank or a node; job 17 is requeued'
says 'scontrol requeue 17'
silent memory
SLURM_RESTART_COUNT=3 start slurm-train-srun.sbatch --loses
ends 7
says 'without a new checkpoint'
silent 'scontrol requeue'
mkdir "$folder/run"
SAVES=$folder/run SLURM_RESTART_COUNT=3 start slurm-train-srun.sbatch --loses
ends 7
says 'scontrol requeue 17'
DDP_SRUN_PATIENCE=1 start slurm-train-srun.sbatch --loses --waits
ends 7
says 'ended srun'
says 'scontrol requeue 17'
start slurm-train-srun.sbatch --down
ends 7
says 'lost host n2'
says 'scontrol requeue 17'
start slurm-train.sbatch --daemon
ends 7
says 'lost host n2'
says 'scontrol requeue 17'
silent memory
# The loss of a host is detected, because mpirun's connections to its daemons use keepalive.
start slurm-train.sbatch --lr 0
ends 4
says 'mpirun --bind-to none --mca oob_tcp_keepalive_time 4 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3 '
MPIRUN='HYDRA build details:' start slurm-train.sbatch --lr 0
ends 4
says "mpirun --bind-to none $folder/program --lr 0 in"
start slurm-train-srun.sbatch --lr 0
ends 4
says 'srun --mpi=pmix --kill-on-bad-exit=1 '
# The MPI plugin matches the program's MPI if srun has it; SLURM_MPI_TYPE takes precedence.
MPI=MPICH start slurm-train-srun.sbatch --lr 0
ends 4
says 'srun --mpi=pmi2 --kill-on-bad-exit=1 '
PLUGINS='pmi2 pmix_v4' start slurm-train-srun.sbatch --lr 0
ends 4
says 'srun --kill-on-bad-exit=1 '
says 'srun has no plugin pmix'
SLURM_MPI_TYPE=openmpi start slurm-train-srun.sbatch --lr 0
ends 4
says 'srun --kill-on-bad-exit=1 '

# Slurm runs a copy of the script, and sbatch may be called from any folder: the job runs there, with the program of the
# repository of the original script.
mkdir -p "$folder/repository/build/release/src" "$folder/spool" "$folder/my data"
cp -r "$root/launch" "$folder/repository/"
cp "$folder/program" "$folder/repository/build/release/src/ddp_train"
unset DDP_TRAIN
export SLURM_SUBMIT_DIR="$folder/my data"
for script in slurm-train.sbatch slurm-train-srun.sbatch; do
  cp "$root/launch/$script" "$folder/spool/slurm_script"
  last="a copy of $script, from another folder"
  (cd "$SLURM_SUBMIT_DIR" && SCRIPT=$folder/repository/launch/$script exec "$folder/spool/slurm_script" --lr 0) >"$folder/said" 2>&1 &
  job=$!
  ends 4
  says "$folder/repository/build/release/src/ddp_train --lr 0 in $folder/my data"
done
if [ "$failures" -ne 0 ]; then exit 1; fi
echo "the batch scripts work as documented"
