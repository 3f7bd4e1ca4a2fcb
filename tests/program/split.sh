#!/usr/bin/env bash
# --split-linear: the losses of data parallelism on 2 and 4 ranks, whole weights in checkpoints, evaluations of these, and
# one line for what cannot be divided.
set -u
source "$(dirname "$0")/lib.sh"

losses() { grep '"loss"' "$1/metrics.jsonl" | sed 's/.*"loss":\([0-9.e+-]*\),.*/\1/'; }
# agree STEPS RUN OTHER: both have this many losses, equal up to rounding.
agree() {
  paste <(losses "$2") <(losses "$3") |
    awk -v steps="$1" 'NF != 2 || ($1 - $2) / $1 > 1e-5 || ($2 - $1) / $1 > 1e-5 { bad = 1 } END { exit bad || NR != steps }' ||
    fail "the losses of $3 differ from those of $2"
}
said() { grep -qE -- "$1" "$folder/$2" || fail "no '$1' in the output of $last"; }

# Forty steps, so small that rounding decides about no ReLU. The last batch of each epoch is smaller than the others.
steps=(--lr 0.005 --max-steps 40 --epochs 13 --eval-every 0 --log-interval 1)
run 0 120 1 "${small[@]}" "${steps[@]}" --output "$folder/whole"
run 0 120 2 "${small[@]}" "${steps[@]}" --split-linear 'fc*' --output "$folder/split-2"
said 'divided layers +fc1, fc2; a rank sends .* of activations per step instead of .* of gradients' out
said 'split-linear: rank 0 sent [0-9,]+ bytes of activations per step, instead of [0-9,]+ of gradients' err
agree 40 "$folder/whole" "$folder/split-2"
run 0 120 4 "${small[@]}" "${steps[@]}" --split-linear fc1 --output "$folder/split-4"
agree 40 "$folder/whole" "$folder/split-4"
# One rank has everything.
run 0 120 1 "${small[@]}" "${steps[@]}" --split-linear 'fc*' --output "$folder/split-1"
same_tensors "$folder/whole/latest" "$folder/split-1/latest"

# A checkpoint has whole weights: the run's evaluation, that of data parallelism and that of the checkpoint agree.
told() { sed 's/.*"val_loss":\([0-9.e-]*\).*/\1/'; }
logged() { grep '"val_loss"' "$1/metrics.jsonl" | tail -n 1 | told; }
run 0 60 1 eval --json "${small[@]}" --output "$folder/split-4"
for found in "$(logged "$folder/split-4")" "$(told <"$folder/out")"; do
  awk -v a="$(logged "$folder/whole")" -v b="$found" \
    'BEGIN { exit !(a > 0 && b > 0 && (a - b) / a < 1e-5 && (b - a) / a < 1e-5) }' ||
    fail "the evaluation with divided layers gives the loss $found"
done

# A run that goes on with other numbers of ranks, with and without divided layers, is the run without interruption. Adam's
# two moments and the average of the weights are divided like the weights.
moved=("${small[@]}" --epochs 3 --log-interval 1 --logical-shards 4 --optimizer adam --momentum 0 --lr 0.005
  --epsilon 0.001 --clip-norm 1
  --ema-decay 0.9)
run 0 120 1 "${moved[@]}" --output "$folder/one"
run 0 120 4 "${moved[@]}" --output "$folder/moved" --max-steps 5 --split-linear fc1
run 0 120 2 "${moved[@]}" --output "$folder/moved" --max-steps 11 --split-linear 'fc*' --resume auto
run 0 120 3 "${moved[@]}" --output "$folder/moved" --max-steps 14 --resume auto
run 0 120 2 "${moved[@]}" --output "$folder/moved" --max-steps 19 --split-linear fc2 --resume auto
run 0 120 1 "${moved[@]}" --output "$folder/moved" --resume auto
agree 24 "$folder/one" "$folder/moved"

# From the plan of a run without divided layers, which has another layout for them.
planned=("${small[@]}" --lr 0.01 --logical-shards 2 --log-interval 1)
run 0 60 1 "${planned[@]}" --output "$folder/planned" --max-steps 10
run 0 60 1 "${planned[@]}" --output "$folder/replanned" --max-steps 5 --deterministic
run 0 60 2 "${planned[@]}" --output "$folder/replanned" --max-steps 10 --split-linear 'fc*' --resume auto
said 'this run has --split-linear fc. instead of none of the checkpoint, and its steps need other kernels' err
agree 10 "$folder/planned" "$folder/replanned"

# bf16 activations, which are exchanged in fp32, and gradients; Lookahead's slow weights are divided, too.
half=("${small[@]}" --max-steps 6 --log-interval 1 --precision bf16 --lookahead 2)
run 0 60 2 "${half[@]}" --output "$folder/half"
run 0 60 2 "${half[@]}" --gradient-precision bf16 --split-linear 'fc*' --output "$folder/half-split"
paste <(losses "$folder/half") <(losses "$folder/half-split") |
  awk 'NF != 2 || ($1 - $2) / $1 > 1e-2 || ($2 - $1) / $1 > 1e-2 { bad = 1 } END { exit bad || NR != 6 }' ||
  fail "the losses in bf16 differ by more than its rounding"

# A value that is not finite is found in the whole layer.
run 6 60 2 "${small[@]}" --lr 1e6 --split-linear 'fc*' --output "$folder/broken"
one_line "the (loss|gradient) is not finite, first in .* on ranks? .*; the weights were not updated"

# What cannot be divided.
refused=("${small[@]}" --output "$folder/refused")
run 2 60 4 "${refused[@]}" --split-linear 'fc*' --log-level error
one_line "--split-linear: 4 ranks cannot have equal parts of the 10 outputs of layer 'fc2'; choose other layers"
run 2 60 2 "${refused[@]}" --split-linear conv1
one_line "--split-linear: no linear layer of the model matches 'conv1'; there are fc1, fc2"
run 2 60 2 "${refused[@]}" --split-linear fc1 --logical-shards 3
one_line '--split-linear requires as many logical shards on each rank, here there are 3 shards on 2 ranks'
run 2 60 2 "${refused[@]}" --split-linear fc1 --deterministic
one_line '--split-linear cannot be combined with --deterministic'
run 2 60 2 "${refused[@]}" --split-linear fc1 --optimizer muon
one_line '--split-linear cannot be combined with --optimizer muon'
run 2 60 2 "${refused[@]}" --split-linear fc1 --logical-shards 4 --balance on
one_line '--split-linear requires as many logical shards on each rank, but --balance moves them'
[ -e "$folder/refused" ] && fail "a refused run has left a folder"

# plan says what is cheaper: for LeNet with few samples the first linear layer, with many none.
run 0 60 1 plan --dataset glyphs --train-limit 1000 --global-batch 16
said 'linear layers, 4 ranks, global batch 16: --split-linear fc1 is cheaper; a rank sends .* instead of .* of gradients' out
run 0 60 2 plan --dataset glyphs --train-limit 1000 --global-batch 1000
said 'linear layers, 2 ranks, global batch 1000: data parallel is cheaper for all linear layers' out
finish
