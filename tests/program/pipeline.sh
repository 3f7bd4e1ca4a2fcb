#!/usr/bin/env bash
# --pipeline: the losses of data parallelism on 2 and 4 ranks, its bytes with --deterministic, whole weights in checkpoints
# that go on with and without it, the bytes that are sent, hung and killed stages, and one line for what is not possible.
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
sent='pipeline: all ranks together sent [0-9,]+ bytes of activations per step and'

# Forty steps; the last batch of each epoch is smaller than the others. Data parallel on 2 ranks, with other sums.
steps=(--lr 0.005 --max-steps 40 --epochs 13 --eval-every 0 --log-interval 1 --logical-shards 4)
run 0 120 2 "${small[@]}" "${steps[@]}" --output "$folder/whole"
run 0 120 2 "${small[@]}" "${steps[@]}" --pipeline 2 --output "$folder/two"
said 'pipeline +2 stages x 1 replica, 4 micro-batches each: conv1.* \| .*fc2; [0-9.]+ \| [0-9.]+ ms per micro-batch' out
said 'estimate +[0-9.]+ ms per step, at best 20% of it waiting, .*(data parallel would be|the pipeline is) faster' out
said "$sent 0 of gradients, instead of [0-9,]+ of gradients; ranks waited" err
agree 40 "$folder/whole" "$folder/two"
run 0 120 4 "${small[@]}" "${steps[@]}" --pipeline 2 --output "$folder/replicas"
said 'batch +128 global = 2 replicas x 64, in 4 logical shards' out
said 'pipeline +2 stages x 2 replicas, 2 micro-batches each' out
said "$sent [1-9][0-9,]+ of gradients" err
agree 40 "$folder/whole" "$folder/replicas"
run 0 120 4 "${small[@]}" "${steps[@]}" --pipeline 4 --output "$folder/four"
said 'pipeline +4 stages x 1 replica, 4 micro-batches each: conv1.* \| conv2.* \| fc1.* \| fc2' out
agree 40 "$folder/whole" "$folder/four"

# Waiting for other stages is not that for a slow rank or link.
grep -q 'slowest rank' "$folder/out" && fail "a stage is called the slowest rank"
run 0 60 1 explain "$folder/two" --probe off
said '^verdict: ' out
grep -qE 'straggler|communication-bound|batch too small|uneven shards' "$folder/out" && fail "explain says: $(cat "$folder/out")"

# Residual blocks with batch normalisation.
residual=(--dataset synthetic --image-size 16 --model resnet18-d2l --train-limit 80 --test-limit 20 --global-batch 16 --momentum 0.9 --threads 1
  --progress none --lr 0.001 --epochs 2 --eval-every 2 --checkpoint-every 10 --log-interval 1 --logical-shards 4)
run 0 120 2 "${residual[@]}" --output "$folder/residual"
run 0 120 4 "${residual[@]}" --pipeline 2 --output "$folder/residual-4"
agree 10 "$folder/residual" "$folder/residual-4"
logged() { grep '"val_loss"' "$1/metrics.jsonl" | tail -n 1 | sed 's/.*"val_loss":\([0-9.e-]*\).*/\1/'; }
awk -v a="$(logged "$folder/residual")" -v b="$(logged "$folder/residual-4")" \
  'BEGIN { exit !(a > 0 && b > 0 && (a - b) / a < 1e-4 && (b - a) / a < 1e-4) }' ||
  fail "the evaluation of a pipeline gives the loss $(logged "$folder/residual-4")"

# With --deterministic the bytes do not depend on the division: sums have the same tree, and the norm of the gradient is added
# in the same order. Running statistics, a moving average, mixed images and dropout included.
exact=(--train-limit 30 --test-limit 10 --global-batch 9 --threads 1 --progress none --epochs 1
  --deterministic --logical-shards 4 --lr 0.002 --clip-norm 0.5 --ema-decay 0.9 --optimizer adamw --momentum 0 --mixup 0.2)
plain=("${exact[@]}" --dataset glyphs --model lenet)
deep=("${exact[@]}" --dataset synthetic --image-size 32 --model mobilenet-v3-small)
run 0 120 1 "${plain[@]}" --output "$folder/exact-1"
run 0 120 2 "${plain[@]}" --pipeline 2 --output "$folder/exact-2"
same_tensors "$folder/exact-1/latest" "$folder/exact-2/latest"
run 0 60 1 compare "$folder/exact-1" "$folder/exact-2"
said 'no difference in the [0-9]+ steps .*, as --pipeline or --split-linear divides the network' out
run 0 120 4 "${plain[@]}" --pipeline 2 --output "$folder/exact-4"
same_tensors "$folder/exact-1/latest" "$folder/exact-4/latest"
run 0 120 4 "${deep[@]}" --pipeline 4 --lookahead 2 --output "$folder/deep-4"
run 0 120 2 "${deep[@]}" --lookahead 2 --output "$folder/deep-2"
same_tensors "$folder/deep-2/latest" "$folder/deep-4/latest"

# Nothing but the classifier is trained: no gradient is sent to stages before it.
frozen=("${deep[@]}" --freeze 'features.*')
run 0 120 1 "${frozen[@]}" --output "$folder/frozen-1"
run 0 120 4 "${frozen[@]}" --pipeline 2 --output "$folder/frozen-4"
same_tensors "$folder/frozen-1/latest" "$folder/frozen-4/latest"

# A run that goes on with and without a pipeline is the run without interruption, to the bit.
moved=("${deep[@]}" --checkpoint-every 1)
run 0 120 1 "${moved[@]}" --output "$folder/one"
run 0 120 2 "${moved[@]}" --output "$folder/moved" --max-steps 1 --pipeline 2
run 0 120 3 "${moved[@]}" --output "$folder/moved" --max-steps 2 --resume auto
run 0 120 4 "${moved[@]}" --output "$folder/moved" --max-steps 3 --pipeline 4 --resume auto
run 0 120 1 "${moved[@]}" --output "$folder/moved" --resume auto
same_tensors "$folder/one/latest" "$folder/moved/latest"

# bf16, with gradients in bf16 between the replicas, and muon, which updates whole matrices.
half=("${small[@]}" --max-steps 6 --log-interval 1 --precision bf16 --optimizer muon --logical-shards 4)
run 0 60 2 "${half[@]}" --output "$folder/half"
run 0 60 2 "${half[@]}" --pipeline 2 --output "$folder/half-2"
agree 6 "$folder/half" "$folder/half-2"
run 0 60 4 "${half[@]}" --pipeline 2 --gradient-precision bf16 --output "$folder/half-4"

# A value that is not finite is found in the whole network, and the step can be computed again.
run 6 60 4 "${small[@]}" --lr 1e6 --pipeline 2 --log-level error --output "$folder/broken"
one_line "the (loss|gradient) is not finite, first in .* on ranks? .*; the weights were not updated"
run 0 60 1 replay "$(echo "$folder"/broken/nonfinite-*)"

# A stage that hangs is named, one that dies ends the job.
endless=("${small[@]}" --epochs 100000 --hang-timeout 3 --eval-every 0 --checkpoint-every 100000 --pipeline 2)
running() { grep -q '"loss"' "$1/metrics.jsonl" 2>/dev/null; }
for signal in STOP KILL; do
  OMPI_MCA_orte_tmpdir_base=$folder "$mpirun" -q --oversubscribe --bind-to none -np 2 "$program" "${endless[@]}" --log-interval 1 \
    --output "$folder/endless-$signal" >"$folder/out" 2>"$folder/err" &
  job=$!
  last="a pipeline with a stage that gets SIG$signal"
  await running "$folder/endless-$signal" || fail "no steps of $last"
  kill "-$signal" "$(pgrep -P "$job" | tail -1)"
  wait "$job"
  code=$?
  if [ "$signal" = STOP ]; then
    [ "$code" -eq 7 ] || fail "exit code $code instead of 7 of $last"
    said 'rank 1 on host .* is stopped by a signal' err
  else
    [ "$code" -eq 137 ] || fail "exit code $code instead of 137 of $last"
  fi
done

# What is not possible.
refused=("${small[@]}" --log-level error --output "$folder/refused")
run 2 60 3 "${refused[@]}" --pipeline 2
one_line '--pipeline 2 requires a number of ranks that it divides, here there are 3 ranks; start 4 ranks'
run 2 60 1 "${refused[@]}" --pipeline 2
one_line '--pipeline 2 requires a number of ranks that it divides, here there is 1 rank; start 2 ranks'
run 2 60 5 "${refused[@]}" --pipeline 5
one_line '--pipeline 5: the network can be cut into 4 stages at most'
run 2 60 4 "${refused[@]}" --pipeline 2 --logical-shards 1
one_line '--logical-shards 1 is less than the number of replicas, 2; every replica needs at least one shard'
run 2 60 2 "${refused[@]}" --pipeline 2 --split-linear fc1
one_line '--pipeline cannot be combined with --split-linear, which divides the same ranks in another way'
run 2 60 2 "${refused[@]}" --pipeline 2 --sync-batch-norm on
one_line '--pipeline cannot be combined with --sync-batch-norm'
run 2 60 2 "${refused[@]}" --pipeline 2 --logical-shards 4 --balance on
one_line '--pipeline cannot be combined with --balance on'
run 2 60 2 "${refused[@]}" --pipeline 2 --progressive-size 24 --progressive-end 2
one_line '--pipeline cannot be combined with --progressive-size, which has a network for each size; remove one of the two'
run 2 60 2 "${refused[@]}" --pipeline 2 --steps-in-flight 2
one_line '--pipeline cannot be combined with --steps-in-flight of more than 1'
run 2 60 2 bench "${small[@]}" --pipeline 2
one_line '--pipeline applies to the commands train, sweep and plan only'
[ -e "$folder/refused" ] && fail "a refused run has left a folder"

# plan says what is faster.
run 0 60 1 plan --dataset glyphs --train-limit 1000 --global-batch 128 --pipeline 2
said 'pipeline, 2 ranks: 2 stages x 1 replica, 2 micro-batches each' out
said 'pipeline, estimate: .*: data parallel would be faster if sending takes no time; start plan on the ranks of the run' out
run 0 60 4 plan --dataset glyphs --train-limit 1000 --global-batch 128 --pipeline 2
said 'pipeline, 4 ranks: 2 stages x 2 replicas, 2 micro-batches each' out
finish
