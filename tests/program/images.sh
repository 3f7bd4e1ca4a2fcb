#!/usr/bin/env bash
# Training on image folders: the same augmentation and mixing on any number of ranks, and files that are not images.
set -u
source "$(dirname "$0")/lib.sh"

golden=$(dirname "$0")/../golden/images
data="$folder/my images"
fresh() {
  local class split copy
  rm -rf "$data"
  for split in train val; do
    for class in 'grün' 'red one'; do
      mkdir -p "$data/$split/$class"
      for copy in 1 2 3 4; do
        cp "$golden/photo.jpg" "$data/$split/$class/a$copy.jpg"
        cp "$golden/rgb.png" "$data/$split/$class/b$copy.png"
        cp "$golden/grey.jpg" "$data/$split/$class/c$copy.JPEG"
      done
    done
  done
}
# shellcheck disable=SC2054
images=(--dataset folder --data-dir "$data" --image-size 28 --global-batch 8 --logical-shards 2 --epochs 2 --deterministic
  --normalize standard --random-resized-crop --random-crop-padding 2 --random-flip --color-jitter 0.4,0.4,0.4 --cutout 5
  --mixup 0.4 --threads 1 --progress none)

# The same bytes on one and two ranks, with one, two or no loader threads; different bytes with another seed.
fresh
echo 'not an image' >"$data/train/grün/notes.txt"
run 0 60 1 "${images[@]}" --workers 2 --output "$folder/one"
grep -q "my images/train: skipped 1 file" "$folder/err" || fail "notes.txt is not reported"
run 0 60 2 "${images[@]}" --workers 0 --output "$folder/two"
same_tensors "$folder/one/latest" "$folder/two/latest"
run 0 60 1 "${images[@]}" --workers 1 --output "$folder/again" --max-steps 4
run 0 60 2 "${images[@]}" --workers 1 --output "$folder/again" --resume auto
same_tensors "$folder/one/latest" "$folder/again/latest"
run 0 60 1 "${images[@]}" --seed 2 --output "$folder/other"
! cmp -s "$folder/one/latest/model.safetensors" "$folder/other/latest/model.safetensors" || fail "the seed has no effect"
grep -q '"grün"' "$folder/one/latest/state.json" || fail "the checkpoint does not name the classes"

rm "$data/train/grün/notes.txt"

# A checkpoint with other classes cannot be resumed.
mv "$data/train/grün" "$data/train/blau" && mv "$data/val/grün" "$data/val/blau"
run 8 30 1 "${images[@]}" --output "$folder/one" --epochs 3 --resume auto
one_line 'classes grün, red one'
run 8 30 1 eval "${images[@]}" --resume "$folder/one/latest"
grep -q 'error: .*classes grün, red one' "$folder/err" || fail "eval accepts a checkpoint with other classes"

# Bad files.
fresh
head -c 900 "$golden/photo.jpg" >"$data/train/grün/a2.jpg"
for ranks in 1 2; do
  run 4 30 "$ranks" "${images[@]}" --output "$folder/bad"
  one_line 'train/grün/a2.jpg: is a truncated JPEG file.*max-bad-samples'
done
run 0 60 1 "${images[@]}" --output "$folder/bad1" --max-bad-samples 1
grep -q 'warning: .*a2.jpg.*stands in' "$folder/err" || fail "the replacement of the sample is not reported"
run 0 60 2 "${images[@]}" --output "$folder/bad2" --max-bad-samples 1
same_tensors "$folder/bad1/latest" "$folder/bad2/latest"

# The other class does not stand in for one of which nothing can be read.
for file in "$data/train/grün"/*; do printf 'no image' >"$file"; done
run 4 30 2 "${images[@]}" --output "$folder/gone" --max-bad-samples 20
one_line 'error: .*train/grün: no image of the class can be read .*a1.jpg: is neither'

# Names of any bytes, and accents in another Unicode form in val: trained, resumed and evaluated.
fresh
latin=$'caf\xe9' other=$'caf\xe8' composed=$'\xc3\xa9' decomposed=$'e\xcc\x81'
for split in train val; do
  mv "$data/$split/grün" "$data/$split/$latin" && cp -r "$data/$split/red one" "$data/$split/$other"
done
mv "$data/train/red one" "$data/train/$composed" && mv "$data/val/red one" "$data/val/$decomposed"
plain=(--dataset folder --data-dir "$data" --image-size 28 --global-batch 8 --deterministic --threads 1 --progress none)
run 0 60 1 "${plain[@]}" --epochs 1 --output "$folder/bytes"
grep -qF 'classes          3: caf\xE8 12, caf\xE9 12, é 12 images' "$folder/out" || fail "the header does not show the classes"
run 0 60 1 "${plain[@]}" --epochs 2 --output "$folder/bytes" --resume auto
run 0 60 1 eval "${plain[@]}" --output "$folder/bytes"
grep -qF '"caf\\xE8"' "$folder/bytes/latest/state.json" || fail "the name is not stored as it is"
run 0 60 1 export --run "$folder/bytes" --to "$folder/bytes.onnx"
run 0 60 1 export --run "$folder/bytes" --format safetensors --to "$folder/bytes.safetensors"

# val lacks a class, and an export of train, valid and test.
fresh
rm -r "$data/val/grün" && mv "$data/val" "$data/valid" && cp -r "$data/train" "$data/test"
run 0 60 2 "${plain[@]}" --epochs 1 --output "$folder/valid"
grep -q "warning: .*valid has no image of 1 of the 2 classes ('grün'): evaluation leaves it out" "$folder/err" ||
  fail "the class that valid lacks is not reported"
[ "$(grep -c 'leaves it out' "$folder/err")" -eq 1 ] || fail "the class that valid lacks is reported by each rank"
grep -q '12 test images, evaluated on valid (test is not read)' "$folder/out" ||
  fail "the header does not say what evaluates"
grep -q '"class_accuracy":\[null,' "$folder/valid/latest/evaluation.json" || fail "the class without images is counted"
mkfifo "$data/train/red one/pipe.jpg"
run 4 10 2 "${plain[@]}" --output "$folder/pipe"
one_line 'red one/pipe.jpg: is not a regular file but a named pipe'

# Invalid folder structures and options.
fresh
run 4 30 2 --dataset folder --data-dir "$folder/nowhere"
one_line 'nowhere is not a folder'
rm -r "$data/train/grün"
run 4 30 2 "${images[@]}"
one_line "train: has no class 'grün'"
run 2 30 1 --normalize imagenet
one_line 'color images'
run 2 30 1 --color-jitter 0.4,0.4
one_line 'three numbers'
finish
