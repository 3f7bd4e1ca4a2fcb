#!/usr/bin/env bash
# --progressive-size: the sizes of the epochs, the same bytes on any number of ranks and after a resume anywhere, evaluations at
# full size, a step with smaller images that is not finite, and one line for what does not work.
set -u
source "$(dirname "$0")/lib.sh"

# Four steps an epoch; 32 pixels in the first epoch, 40 in the second, 48 in the third.
net=(--dataset synthetic --image-size 48 --train-limit 64 --test-limit 32 --global-batch 16 --model mobilenet-v3-small
  --lr 0.02 --momentum 0.9 --random-flip --threads 1 --progress none --log-interval 1)
grow=(--progressive-size 32 --progressive-end 2 --progressive-stages 3)
fixed=(--deterministic --logical-shards 4)
said() { grep -qE -- "$1" "$words/$2" || fail "no '$1' in $2 of $last"; }

run 0 120 1 "${net[@]}" "${grow[@]}" "${fixed[@]}" --epochs 3 --output "$folder/one"
said 'image sizes +32x32, from epoch 2 on 40x40, from epoch 3 on 48x48' out
for ranks in 2 3; do
  run 0 120 "$ranks" "${net[@]}" "${grow[@]}" "${fixed[@]}" --epochs 3 --output "$folder/ranks-$ranks"
  same_tensors "$folder/one/latest" "$folder/ranks-$ranks/latest"
done

# Within a size, at its end, and at the beginning of the full size; on another number of ranks.
for steps in 2 4 8; do
  part=$folder/part-$steps
  run 0 60 2 "${net[@]}" "${grow[@]}" "${fixed[@]}" --epochs 3 --output "$part" --max-steps "$steps"
  run 0 60 1 "${net[@]}" "${grow[@]}" "${fixed[@]}" --epochs 3 --output "$part" --resume auto
  same_tensors "$folder/one/latest" "$part/latest"
done

# pixels RUN FIRST LAST: the hashes of the pixels of these steps.
column=$(head -n 1 "$folder/one/steps.csv" | tr , '\n' | grep -n '^pixels$' | cut -d: -f1)
pixels() { sed -n "$(($2 + 1)),$(($3 + 1))p" "$folder/$1/steps.csv" | cut -d, -f"$column"; }
# The first epoch has the first size, the second another one, the third the full one.
run 0 60 1 "${net[@]}" "${fixed[@]}" --epochs 3 --output "$folder/full"
run 0 60 1 "${net[@]}" --progressive-size 32 --progressive-end 2 --progressive-stages 2 "${fixed[@]}" --epochs 3 \
  --output "$folder/two"
[ "$(pixels one 9 12)" = "$(pixels full 9 12)" ] || fail "the images of the third epoch have not the full size"
[ "$(pixels one 1 4)" = "$(pixels two 1 4)" ] || fail "the images of the first epoch have not the first size"
for other in full two; do
  [ "$(pixels one 5 8)" != "$(pixels "$other" 5 8)" ] || fail "the images of the second epoch are those of '$other'"
done

# Measured kernels: the plan of each size is in the checkpoint, and a resumed run uses it.
run 0 120 2 "${net[@]}" "${grow[@]}" --epochs 3 --output "$folder/timed"
python3 - "$folder/timed" <<'END' || fail "the checkpoint lacks the plans of smaller images"
import json, sys
state = json.load(open(sys.argv[1] + "/latest/state.json"))
sys.exit(sorted(state["plans"]) != ["32x32", "40x40"] or not all(state["plans"].values()) or state["image"] != [3, 48, 48])
END
run 0 120 2 "${net[@]}" "${grow[@]}" --epochs 3 --output "$folder/timed-part" --max-steps 6
XDG_CACHE_HOME=$folder/no-cache run 0 120 2 "${net[@]}" "${grow[@]}" --epochs 3 --output "$folder/timed-part" --resume auto
same_tensors "$folder/timed/latest" "$folder/timed-part/latest"

# An evaluation of the checkpoint has the full size, and the run's loss; so has a network in a file.
logged=$(grep '"val_loss"' "$folder/one/metrics.jsonl" | tail -n 1 | sed 's/.*"val_loss":\([0-9.e-]*\).*/\1/')
run 0 60 1 eval --json --config "$folder/one/config.cfg" --output "$folder/one"
grep -qF "$logged" "$words/out" || fail "the evaluation does not give the run's loss $logged"

# A step with smaller images that is not finite is kept, and computed again with its size.
run 6 60 2 "${net[@]}" "${grow[@]}" --epochs 3 --lr 1e6 --momentum 0 --output "$folder/broken"
kept=$(find "$folder/broken" -maxdepth 1 -name 'nonfinite-*' | head -n 1)
run 0 60 1 replay "$kept" --threads 1
said '^here: ' out

# What does not work ends before anything is written.
run 2 60 2 --dataset glyphs --model lenet --progressive-size 20 --progressive-end 5 --output "$folder/lenet"
one_line "--progressive-size: --model lenet does not work with images of 20x20: layer 'fc1' has 800 inputs with images of 28x28"
[ -e "$folder/lenet" ] && fail "a rejected run left a folder"
run 2 60 1 "${net[@]}" --progressive-size 48 --progressive-end 5
one_line '--progressive-size 48x48 is not below the size of the images, 48x48'
run 2 60 1 "${net[@]}" --progressive-size 32
one_line '--progressive-size requires --progressive-end'
run 2 60 1 "${net[@]}" --progressive-end 3
one_line 'require --progressive-size'
run 2 60 1 "${net[@]}" --progressive-size 32 --progressive-end 2 --progressive-stages 4
one_line '--progressive-stages 4 requires at least 3 epochs'
# Measurements of steps are for the full size.
run 0 60 1 bench "${net[@]}" "${grow[@]}"
run 0 60 1 plan "${net[@]}" "${grow[@]}"
said 'image sizes: 32x32, from epoch 2 on 40x40, from epoch 3 on 48x48' out
finish
