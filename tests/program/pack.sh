#!/usr/bin/env bash
# ddp_train pack: shards that train like what they were made of, on any number of ranks and after a stop; resized pictures; one line
# for what does not fit.
set -u
source "$(dirname "$0")/lib.sh"
python3 "$(dirname "$0")/make_shards.py" "$folder" || fail "no pictures"
cd "$folder" || exit 1
net=(--model lenet --image-size 28 --image-channels 1 --epochs 1 --global-batch 8 --deterministic --logical-shards 2 --threads 1 --progress none)
everything() { (cd "$1" && find . -type f -exec md5sum {} + | sort); }

# Undivided, so that the division is in the shards.
mkdir photos && cp -r folder/train/* photos/
run 0 60 1 "${net[@]}" --dataset folder --data-dir photos --val-split 0.3 --output in-files
for ranks in 1 3; do
  run 0 60 "$ranks" pack --dataset folder --data-dir photos --val-split 0.3 --shard-mib 1 --to "packed-$ranks"
done
grep -q "train with --dataset webdataset --data-dir 'packed-3/train-0000.tar' --val-dir 'packed-3/val-0000.tar'" out ||
  fail "pack does not say how to train"
[ "$(everything packed-1)" = "$(everything packed-3)" ] || fail "the shards of 1 and 3 ranks differ"
run 0 60 2 "${net[@]}" --dataset webdataset --data-dir packed-1/train-0000.tar --val-dir packed-1/val-0000.tar --output in-shards
same_tensors in-files/latest in-shards/latest
tr -d ' \n' <in-shards/latest/state.json | grep -qF '"classes":["ant","bee","cow"]' || fail "the classes have lost their names"
same_files <(tail -n 1 in-files/summary.csv | cut -d, -f1-6) <(tail -n 1 in-shards/summary.csv | cut -d, -f1-6)

# Stopped, it goes on; other options and images are refused, and so is a shard that somebody changed.
rm packed-3/train-0000.tar packed-3/train.json
touch packed-3/train-0000.tar.part
run 0 60 2 pack --dataset folder --data-dir photos --val-split 0.3 --shard-mib 1 --to packed-3
[ "$(everything packed-1)" = "$(everything packed-3)" ] || fail "a command that goes on writes other shards"
run 4 60 2 pack --dataset folder --data-dir photos --val-split 0.4 --shard-mib 1 --to packed-3
one_line 'packed-3 has shards of other images or options; give another folder with --to'
run 4 60 1 pack --dataset folder --data-dir photos --to photos
one_line 'photos is not an empty folder; give another one with --to'
run 2 60 1 pack --dataset folder --data-dir photos
one_line 'pack requires --to, the folder of the shards'

# Resized, as JPEG and as PNG; data sets without files.
run 0 60 1 pack --dataset folder --data-dir photos --val-split 0.3 --pack-size 14 --to small
[ "$(tar -tf small/train-0000.tar | grep -c '\.jpg$')" -gt 10 ] || fail "resized pictures are no JPEG"
run 0 60 1 pack --dataset folder --data-dir photos --val-split 0.3 --pack-size 14 --pack-format png --to lossless
mkdir one && tar -xf lossless/train-0000.tar -C one
[ "$(od -An -tu1 -j16 -N8 one/00000000.png | tr -s ' ')" = ' 0 0 0 14 0 0 0 14' ] || fail "the size of a resized picture is another one"
run 0 60 2 pack --dataset glyphs --train-limit 100 --test-limit 20 --to digits
run 0 60 1 "${net[@]}" --dataset glyphs --train-limit 100 --test-limit 20 --output digits-1
run 0 60 1 "${net[@]}" --dataset webdataset --data-dir digits/train-0000.tar --val-dir digits/val-0000.tar --output digits-2
same_tensors digits-1/latest digits-2/latest

# A damaged picture is left out.
printf 'no picture' >photos/ant/000.png
run 4 60 2 pack --dataset folder --data-dir photos --val-split 0.3 --to damaged
one_line 'photos/ant/000.png: is a text file, not an image'
rm -rf damaged
run 0 60 1 pack --dataset folder --data-dir photos --val-split 0.3 --max-bad-samples 1 --to damaged
grep -q '35 images in 2 shards' out || fail "not 35 of 36 pictures are packed"
finish
