#!/usr/bin/env bash
# One rank and several ranks do the same computation: losses agree within 1e-5, and bit-identically with
# --deterministic, also if a run is resumed with another number of ranks.
set -u
source "$(dirname "$0")/lib.sh"

losses() { grep '"loss"' "$1/metrics.jsonl" | sed 's/.*"loss":\([0-9.e+-]*\),.*/\1/'; }
# agree STEPS RUN OTHER: both have this many losses, equal up to rounding.
agree() {
  paste <(losses "$2") <(losses "$3") |
    awk -v steps="$1" 'NF != 2 || ($1 - $2) / $1 > 1e-5 || ($2 - $1) / $1 > 1e-5 { bad = 1 } END { exit bad || NR != steps }' ||
    fail "the losses of $3 differ from those of $2"
}
for reduction in ring root tree; do
  for ranks in 1 2 3 4; do
    [ "$reduction" != ring ] && [ "$ranks" -eq 4 ] && continue
    run 0 120 "$ranks" "${small[@]}" --max-steps 12 --log-interval 1 --reduction "$reduction" \
      --output "$folder/$reduction-$ranks"
    agree 12 "$folder/ring-1" "$folder/$reduction-$ranks"
  done
done

exact=("${small[@]}" --deterministic --logical-shards 4 --epochs 2)
for ranks in 1 2 3 4; do
  run 0 120 "$ranks" "${exact[@]}" --output "$folder/exact-$ranks"
  same_tensors "$folder/exact-1/latest" "$folder/exact-$ranks/latest"
done
run 0 60 3 "${exact[@]}" --output "$folder/moved" --max-steps 5
run 0 60 1 "${exact[@]}" --output "$folder/moved" --max-steps 11 --resume auto
run 0 60 4 "${exact[@]}" --output "$folder/moved" --resume auto
same_tensors "$folder/exact-1/latest" "$folder/moved/latest"

# Batch statistics per shard, dropout and augmentation do not depend on the number of ranks.
deep=("${small[@]}" --model mnist-slim --random-crop-padding 2 --deterministic
  --logical-shards 4 --epochs 1)
for ranks in 1 2 3 4; do
  run 0 120 "$ranks" "${deep[@]}" --output "$folder/deep-$ranks"
  same_tensors "$folder/deep-1/latest" "$folder/deep-$ranks/latest"
done
run 0 60 2 "${deep[@]}" --output "$folder/deep-moved" --max-steps 3
run 0 60 3 "${deep[@]}" --output "$folder/deep-moved" --resume auto
same_tensors "$folder/deep-1/latest" "$folder/deep-moved/latest"

# More ranks than the checkpoint has logical shards: where no shard has statistics of its own, and without --deterministic, the
# run goes on with more shards and says so.
more=("${small[@]}" --output "$folder/more")
run 0 60 1 "${more[@]}" --max-steps 3
run 0 60 2 "${more[@]}" --max-steps 6 --resume auto
grep -q 'the global batch is divided into 2 logical shards instead of 1; gradients are the same up to rounding' "$folder/err" ||
  fail "the other number of shards is not reported"
run 0 60 3 --config "$folder/more/config.cfg" --max-steps 8 --log-interval 1 --resume auto
grep -q 'into 3 logical shards instead of 2' "$folder/err" || fail "with config.cfg the shards are not those of the ranks"
run 0 60 1 "${more[@]}" --max-steps 10 --resume auto --logical-shards 1 --log-interval 1
grep -q 'into 1 logical shard instead of 3' "$folder/err" || fail "an explicit number of shards is not taken"
run 0 60 3 eval --json --config "$folder/more/config.cfg" --run "$folder/more"
grep -q '"val_accuracy"' "$folder/out" || fail "more ranks than shards do not evaluate"
run 0 60 3 "${small[@]}" --max-steps 10 --log-interval 1 --output "$folder/straight"
losses "$folder/more" | tail -n 3 >"$folder/a"
losses "$folder/straight" | tail -n 3 >"$folder/b"
[ "$(paste "$folder/a" "$folder/b" | awk '($1 - $2) / $1 < 1e-4 && ($2 - $1) / $1 < 1e-4' | wc -l)" -eq 3 ] ||
  fail "the losses of a run on 1, 2, 3 and 1 ranks differ from one on 3"
# With statistics the mean of the shards goes on.
run 0 60 2 "${small[@]}" --model mnist-slim --max-steps 3 --output "$folder/statistics"
run 0 60 3 "${small[@]}" --model mnist-slim --max-steps 6 --output "$folder/statistics" --resume auto
grep -q 'statistics from 43 instead of 64 samples' "$folder/err" || fail "what changes for batch normalisation is not said"
# With --deterministic their bits are promised.
run 0 60 1 "${small[@]}" --model mnist-slim --deterministic --max-steps 3 --output "$folder/promised"
run 8 60 2 "${small[@]}" --model mnist-slim --deterministic --max-steps 6 --output "$folder/promised" --resume auto
one_line 'the checkpoint has 1 logical shard, each with its own statistics .* use at most 1 rank'
# An option that nobody gave is not blamed.
run 0 60 1 --dataset glyphs --train-limit 500 --test-limit 100 --threads 1 --progress none --batch-per-rank 64 --max-steps 2 --output "$folder/each"
run 8 60 2 --dataset glyphs --train-limit 500 --test-limit 100 --threads 1 --progress none --batch-per-rank 64 --max-steps 4 --output "$folder/each" --resume auto
one_line '--batch-per-rank 64 on 2 ranks is one of 128; replace it by --global-batch 64'

# More ranks than 16 send rank 0 the results of several steps together, and hear some of the others only.
many=(--dataset glyphs --train-limit 500 --test-limit 100 --global-batch 50 --model mnist-slim --threads 1 --progress none
  --deterministic --logical-shards 18 --log-interval 3 --checkpoint-every 7 --max-steps 14)
for ranks in 1 18; do
  run 0 120 "$ranks" "${many[@]}" --output "$folder/many-$ranks"
done
same_tensors "$folder/many-1/latest" "$folder/many-18/latest"
same_files "$folder/many-1/steps.csv" "$folder/many-18/steps.csv"
same_files <(grep -v '"config"' "$folder/many-1/latest/state.json") <(grep -v '"config"' "$folder/many-18/latest/state.json")
same_files <(cut -d, -f1-6 "$folder/many-1/summary.csv") <(cut -d, -f1-6 "$folder/many-18/summary.csv")
same_files <(losses "$folder/many-1") <(losses "$folder/many-18")

# Without --deterministic, too, a run that is resumed on as many ranks has the bits of one that was not stopped: the size of
# buckets, which is measured at the start, belongs to the checkpoint; but where bits do not depend on it, it is not in there.
kept=("${small[@]}" --model mnist-slim --max-steps 6)
run 0 60 3 "${kept[@]}" --checkpoint-every 3 --output "$folder/kept"
for again in 1 2 3; do
  run 0 60 3 "${kept[@]}" --resume "$folder/kept/checkpoints/step-00000003" --output "$folder/kept-$again"
  same_tensors "$folder/kept/latest" "$folder/kept-$again/latest"
done
grep -q '"bucket_ranks": 3' "$folder/more/checkpoints/step-00000008/state.json" || fail "the checkpoint has no size of buckets"
grep -q '"bucket_' "$folder/many-18/latest/state.json" && fail "--deterministic stores a measurement"

# Synchronized batch normalisation: as many shards as ranks, and the losses of one rank. Without it they differ.
synchronized=("${small[@]}" --model mnist-slim --max-steps 8 --log-interval 1)
for ranks in 1 2 3; do
  run 0 120 "$ranks" "${synchronized[@]}" --sync-batch-norm --output "$folder/sync-$ranks"
  agree 8 "$folder/sync-1" "$folder/sync-$ranks"
done
run 0 120 2 "${synchronized[@]}" --output "$folder/apart-2"
cmp -s <(losses "$folder/sync-1") <(losses "$folder/apart-2") && fail "batch normalisation is always synchronized"
run 2 60 2 "${synchronized[@]}" --sync-batch-norm --logical-shards 4 --output "$folder/refused"
one_line '--sync-batch-norm requires one logical shard per rank, here there are 4 shards on 2 ranks'
run 0 60 3 "${synchronized[@]}" --sync-batch-norm --max-steps 10 --resume auto --output "$folder/sync-2"
run 2 60 1 "${small[@]}" --model lenet --sync-batch-norm --output "$folder/refused"
one_line 'no batch normalisation'

# Batch normalisation of maps of 1x1 over one sample is refused before the first step, on every command that would compute it.
points=(--dataset glyphs --model mnist-slim --test-limit 20 --threads 1 --progress none --epochs 2 --log-interval 1 --deterministic)
run 2 60 1 "${points[@]}" --train-limit 640 --global-batch 1 --output "$folder/refused"
one_line "batch normalization 'bn3' of --model mnist-slim reads maps of 1x1 and a logical shard has 1 sample, .* use --global-batch 2 or more$"
[ ! -e "$folder/refused/steps.csv" ] || fail "a step was computed"
run 2 60 2 "${points[@]}" --train-limit 640 --global-batch 3 --output "$folder/refused"
one_line 'in a global batch of 3 in 2 logical shards: .* use --global-batch 4 or more, fewer ranks, or --sync-batch-norm$'
run 2 60 1 "${points[@]}" --train-limit 640 --global-batch 5 --logical-shards 4 --output "$folder/refused"
one_line 'use --global-batch 8 or more, or --logical-shards 2$'
run 2 60 1 plan "${points[@]}" --global-batch 1
grep -q "batch normalization 'bn3' of --model mnist-slim" "$words/err" || fail "plan does not refuse it"
run 0 60 1 "${points[@]}" --train-limit 8 --global-batch 1 --freeze 'bn3.*' --output "$folder/kept"
run 0 60 2 "${points[@]}" --train-limit 8 --global-batch 2 --sync-batch-norm --output "$folder/synchronized"
# A last batch of 5 is in two of the four shards, one of a single sample is dropped; on any number of ranks.
for ranks in 1 3; do
  run 0 60 "$ranks" "${points[@]}" --train-limit 21 --global-batch 16 --logical-shards 4 --output "$folder/merged-$ranks"
  grep -qE "last batch +5 samples in 2 logical shards, as batch normalization 'bn3' needs two values" "$folder/out" ||
    fail "the header does not tell what the last batch is"
  run 0 60 "$ranks" "${points[@]}" --train-limit 17 --global-batch 16 --logical-shards 4 --output "$folder/dropped-$ranks"
  grep -qE 'last batch +1 sample dropped in each epoch' "$folder/out" || fail "the header does not tell what is dropped"
  [ "$(wc -l <"$folder/dropped-$ranks/steps.csv")" -eq 3 ] || fail "the last batch is not dropped on $ranks ranks"
done
same_tensors "$folder/merged-1/latest" "$folder/merged-3/latest"
same_tensors "$folder/dropped-1/latest" "$folder/dropped-3/latest"
run 0 60 2 "${points[@]}" --train-limit 21 --global-batch 16 --logical-shards 4 --max-steps 1 --output "$folder/merged-2"
run 0 60 1 "${points[@]}" --train-limit 21 --global-batch 16 --logical-shards 4 --resume auto --output "$folder/merged-2"
same_tensors "$folder/merged-1/latest" "$folder/merged-2/latest"
run 2 60 1 "${points[@]}" --train-limit 1 --output "$folder/refused"
one_line 'a training set of 1 image leaves no steps'

# RMSprop with a global batch of 256: 8 ranks with 32 samples each have the same losses as one rank.
rms=(--dataset glyphs --train-limit 768 --test-limit 64 --global-batch 256 --optimizer rmsprop --lr 0.001 --threads 1
  --progress none --epochs 2 --max-steps 4 --log-interval 1)
for ranks in 1 8; do
  run 0 120 "$ranks" "${rms[@]}" --output "$folder/rms-$ranks"
  samples=$((256 / ranks))
  grep -qE "batch +256 global = $ranks ranks? x $samples," "$folder/out" || fail "the header does not say $samples samples"
  run 0 120 "$ranks" "${rms[@]}" --deterministic --logical-shards 8 --output "$folder/rms-exact-$ranks"
done
# OpenMP's threads spin only shortly, with a launcher or without, unless the user says otherwise; the last display is that of the program
# that runs.
spins() { OMP_DISPLAY_ENV=verbose "$@" --version 2>&1 | grep GOMP_SPINCOUNT | tail -n 1 | tr -dc 0-9; }
one=("$mpirun" -q --bind-to none -np 1)
[ "$(spins "${one[@]}" "$program")" = 5000 ] || fail "OpenMP spins for $(spins "${one[@]}" "$program") rounds"
[ "$(spins "$program")" = 5000 ] || fail "without a launcher OpenMP spins for $(spins "$program") rounds"
[ "$(GOMP_SPINCOUNT=77 spins "${one[@]}" "$program")" = 77 ] || fail "the user's GOMP_SPINCOUNT is overwritten"
cp "$program" "$folder/a program"
[ "$(spins "${one[@]}" "$folder/a program")" = 5000 ] || fail "a program in a path with a space is not limited"
"${one[@]}" /lib64/ld-linux-x86-64.so.2 "$program" --version >"$folder/out" 2>&1 || fail "the dynamic linker does not start the program"
agree 4 "$folder/rms-1" "$folder/rms-8"
same_files <(losses "$folder/rms-exact-1") <(losses "$folder/rms-exact-8")
same_tensors "$folder/rms-exact-1/latest" "$folder/rms-exact-8/latest"
finish
