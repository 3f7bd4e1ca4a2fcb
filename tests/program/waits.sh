#!/usr/bin/env bash
# Endless waits: a file that never responds, an output that nobody reads, too few file descriptors; and signals during
# them.
set -u
source "$(dirname "$0")/lib.sh"
: "${HANGING_READ:?}"

# A data set of blank images; LD_PRELOAD makes reading them hang.
data=$folder/never-answers/mnist
mkdir -p "$data"
# shellcheck disable=SC2059  # the format holds bytes
idx() { # idx FILE COUNT: images of 28x28, or labels
  local count
  printf -v count '\\x%02x\\x%02x' $(($2 / 256)) $(($2 % 256))
  case $1 in
  *images*) printf "\\0\\0\\x08\\x03\\0\\0$count\\0\\0\\0\\x1c\\0\\0\\0\\x1c" && head -c $(($2 * 784)) /dev/zero ;;
  *) printf "\\0\\0\\x08\\x01\\0\\0$count" && head -c "$2" /dev/zero ;;
  esac >"$data/$1"
}
idx train-images-idx3-ubyte 512
idx train-labels-idx1-ubyte 512
idx t10k-images-idx3-ubyte 128
idx t10k-labels-idx1-ubyte 128
mnist=(--dataset mnist --data-dir "$folder/never-answers" --threads 1 --progress none --output "$folder/run")
run 0 60 2 "${mnist[@]}" --max-steps 1 --global-batch 64

begin=$SECONDS
LD_PRELOAD=$HANGING_READ run 7 40 2 "${mnist[@]}" --timeout 4
[ $((SECONDS - begin)) -le 15 ] || fail "$((SECONDS - begin)) s for a file that never responds"
grep -qE 'no progress on any rank for 4 s: rank [01] on .* is in a file system call, (opening|reading) .*/never-answers/mnist/' "$folder/err" ||
  fail "the file that never responds is not named in $last"
[ "$(grep -c 'ddp_train: error' "$folder/err")" -eq 1 ] || fail "other than one rank reports the error in $last"

# The lock is removed.
LD_PRELOAD=$HANGING_READ run 7 40 1 "${mnist[@]}" --timeout 2
[ -d "$folder/run" ] || fail "the run folder is gone"
[ ! -e "$folder/run/run.lock" ] || fail "the lock of a run that hung is left behind"

# A request to stop is honoured long before --timeout.
LD_PRELOAD=$HANGING_READ "$mpirun" -q --oversubscribe --bind-to none -np 2 "$program" "${mnist[@]}" \
  >"$folder/out" 2>"$folder/err" &
job=$!
sleep 3
kill -USR1 "$job"
begin=$SECONDS got=0
wait "$job" || got=$?
[ "$got" -eq 75 ] || fail "exit code $got instead of 75 after USR1 before the first step"
[ $((SECONDS - begin)) -le 10 ] || fail "$((SECONDS - begin)) s for a stop before the first step"
grep -q 'stopped by SIGUSR1; there was nothing to save' "$folder/err" || fail "the stop is not reported"

# If nobody reads the output, training continues, and a request to stop is honoured.
mkfifo "$folder/full"
# shellcheck disable=SC2217  # the pipe is held open and never read
sleep 1000 <"$folder/full" &
reader=$!
"$program" "${small[@]}" --global-batch 8 --progress lines --log-interval 1 --epochs 1000000 --eval-every 0 --checkpoint-every 100000 \
  --output "$folder/full-run" >"$folder/full" 2>"$folder/err" &
job=$!
# Far more lines than the pipe buffers, and longer than the 10 s limit.
begin=$SECONDS
for _ in $(seq 400); do
  [ "$(wc -l <"$folder/full-run/metrics.jsonl" 2>/dev/null || echo 0)" -lt 3000 ] || [ $((SECONDS - begin)) -lt 13 ] || break
  sleep 0.2
done
kill -TERM "$job"
begin=$SECONDS got=0
wait "$job" || got=$?
[ "$got" -eq 75 ] || fail "exit code $got instead of 75 with an output that nobody reads"
[ $((SECONDS - begin)) -le 15 ] || fail "$((SECONDS - begin)) s for a stop with an output that nobody reads"
kill "$reader"

# Too few file descriptors are an error, not a hang.
(
  ulimit -n 20
  exec "$program" "${small[@]}" --output "$folder/few" >"$folder/out" 2>"$folder/err"
)
[ $? -eq 3 ] || fail "no exit code 3 with 20 file descriptors"
last="20 file descriptors"
one_line 'limit of 20 open files \(ulimit -n\)'
finish
