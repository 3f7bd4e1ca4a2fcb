#!/usr/bin/env bash
# Ranks started with different options or data, runs resumed with different data, and evaluations: differences are named
# in one line, and nothing is trained.
set -u
source "$(dirname "$0")/lib.sh"
cd "$folder" || exit 1

# make_idx DIR COUNT LABEL: creates a data set of noise in MNIST's format; all labels but the first are i mod 10.
make_idx() {
  local split count
  mkdir -p "$1/mnist"
  for split in train t10k; do
    count=$2
    [ "$split" = train ] || count=20
    {
      printf '\0\0\10\3\0\0\0%b\0\0\0\34\0\0\0\34' "\\$(printf %o "$count")"
      head -c $((count * 784)) pixels
    } >"$1/mnist/$split-images-idx3-ubyte"
    {
      printf '\0\0\10\1\0\0\0%b' "\\$(printf %o "$count")"
      printf '%b' "\\$3"
      for ((i = 1; i < count; ++i)); do printf '%b' "\\$((i % 8))"; done
    } >"$1/mnist/$split-labels-idx1-ubyte"
  done
}
head -c $((200 * 784)) /dev/urandom >pixels
make_idx data 200 0
make_idx labels 200 7
make_idx fewer 100 0
head -c $((200 * 784)) /dev/urandom >pixels
make_idx pixels.d 200 0

tiny=(--dataset mnist --data-dir data --global-batch 20 --lr 0.05 --momentum 0.9 --threads 1 --progress none --epochs 1
  --device cpu --timeout 30)

# differ PATTERN CODE ARGUMENTS...: rank 1 of two has these additional arguments.
differ() {
  local pattern=$1 code=$2 got=0
  shift 2
  last="rank 1 with $*"
  timeout -s KILL 60 "$mpirun" -q --oversubscribe --bind-to none \
    -np 1 "$program" "${tiny[@]}" --output odd : -np 1 "$program" "${tiny[@]}" --output odd "$@" >out 2>err || got=$?
  [ "$got" -eq "$code" ] || fail "exit code $got instead of $code from $last"
  one_line "error: rank 0: rank 1 on host [^ ]+ has .*$pattern.*rank 0"
  [ ! -e odd/checkpoints ] || fail "$last started a run"
}
differ '--seed 5 instead of 1' 3 --seed 5
differ '--lr 0.1 instead of 0.05' 3 --lr 0.1
differ '--momentum 0.8 instead of 0.9' 3 --momentum 0.8
differ '--init kaiming instead of' 3 --init kaiming
differ '--normalize standard instead of none' 3 --normalize standard
differ '--global-batch 40 instead of 20' 3 --global-batch 40
differ '--train-limit 60 instead of 0' 3 --train-limit 60
differ 'training labels' 3 --data-dir labels
differ 'training images 100 of 1x28x28' 3 --data-dir fewer
differ 'training pixels' 3 --data-dir pixels.d
# Paths and the number of threads may differ.
cp -r data elsewhere
timeout -s KILL 60 "$mpirun" -q --oversubscribe --bind-to none -np 1 "$program" "${tiny[@]}" --output same \
  : -np 1 "$program" "${tiny[@]}" --output same --data-dir elsewhere --workers 2 >out 2>err || fail "ranks with different data folders"

# refuse PATTERN ARGUMENTS...: the run cannot be resumed with these.
refuse() {
  local pattern=$1
  shift
  run 8 60 2 "${tiny[@]}" --epochs 2 --output same --resume auto "$@"
  one_line "$pattern"
}
refuse 'training images 60 of' --train-limit 60
refuse 'training images 100 of' --data-dir fewer
refuse 'training labels' --data-dir labels
refuse 'normalisation' --normalize standard
run 0 60 2 "${tiny[@]}" --epochs 2 --lr 0.02 --output same --resume auto --data-dir elsewhere
grep -q 'with --lr 0.02 instead of 0.05' out || fail "a different learning rate is not reported"

# A checkpoint is evaluated with its own normalisation.
run 0 60 2 "${tiny[@]}" --normalize standard --output normal
loss() { grep -o '"val_loss":[^,]*' "$1" | tail -1 | cut -d : -f 2; }
run 0 60 1 eval --json "${tiny[@]}" --normalize none --run normal
# Different batches use different kernels, so results differ by rounding.
awk -v a="$(loss out)" -v b="$(loss normal/metrics.jsonl)" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 < (1e-5 * b) ^ 2) }' ||
  fail "eval with another --normalize gives another loss than $(loss normal/metrics.jsonl)"
grep -q 'normalized as in the checkpoint' err || fail "eval does not report which normalisation it uses"

finish
