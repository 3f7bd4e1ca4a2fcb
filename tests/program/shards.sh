#!/usr/bin/env bash
# Shards: the bytes of the same pictures in a folder, on any number of ranks and after a stop; an evaluation; an index that is kept;
# damaged samples; and one line for what does not fit.
set -u
source "$(dirname "$0")/lib.sh"
python3 "$(dirname "$0")/make_shards.py" "$folder" || fail "no shards"
cd "$folder" || exit 1
net=(--model lenet --image-size 28 --image-channels 1 --epochs 2 --global-batch 8 --random-crop-padding 2 --deterministic --logical-shards 3
  --threads 1 --progress none)
web=(--dataset webdataset --data-dir 'web/train-{0..2}.tar' --val-dir 'web/val-{0..2}.tar')
records=(--dataset tfrecord --data-dir 'records/train-{0..2}.tfrecord' --val-dir 'records/val-{0..2}.tfrecord')

run 0 60 1 "${net[@]}" --dataset folder --data-dir folder --output in-files
for ranks in 1 2 3; do
  run 0 60 "$ranks" "${net[@]}" "${web[@]}" --output "web-$ranks"
  same_tensors in-files/latest "web-$ranks/latest"
done
grep -q 'evaluated on web/val-{0..2}.tar (12 images in 3 shards)' out || fail "the header does not say what evaluates"
run 0 60 2 "${net[@]}" "${records[@]}" --output records-2
same_tensors in-files/latest records-2/latest
run 0 60 2 "${net[@]}" "${web[@]}" --max-steps 3 --output stopped
grep -q 'pictures  *shorter side to 32, central 28' out || fail "the header does not say what is done to pictures"
run 8 60 1 "${net[@]}" "${web[@]}" --resize squash --resume auto --output stopped
one_line 'resizing by squash'
run 0 60 3 "${net[@]}" "${web[@]}" --resume auto --output stopped
same_tensors in-files/latest stopped/latest

# The checkpoint knows its shards and classes; those that train are not needed.
logged=$(grep '"val_loss"' web-1/metrics.jsonl | tail -n 1 | sed 's/.*"val_loss":\([0-9.e-]*\).*/\1/')
mkdir away && mv web/train-* away/
run 0 60 1 eval --json --run web-1
grep -qF "$logged" out || fail "the evaluation does not give the run's loss $logged"
mv away/* web/

# The kept index is used until a shard changes: a damaged one goes unnoticed only if nothing says that it changed.
[ "$(find cache/ddp_train/indexes -name '*.index' | wc -l)" -eq 4 ] || fail "there are not 4 indexes"
touch -r web/train-1.tar when
printf 'X' | dd of=web/train-1.tar bs=1 seek=2 conv=notrunc 2>/dev/null
touch -r when web/train-1.tar
run 0 60 1 "${net[@]}" "${web[@]}" --output again
same_tensors in-files/latest again/latest
touch web/train-1.tar
run 4 60 2 "${net[@]}" "${web[@]}" --output refused
one_line 'web/train-1.tar: is no tar file'
truncate -s $(($(stat -c %s web/train-2.tar) * 4 / 5 - 100)) web/train-2.tar
run 4 60 2 "${net[@]}" "${web[@]}" --data-dir web/train-2.tar --output refused
one_line 'web/train-2.tar: offset [0-9]+: is truncated'
run 0 60 1 "${net[@]}" "${web[@]}" --data-dir 'web/train-{0,2}.tar' --max-bad-samples 1 --output fewer
grep -q 'web/train-2.tar: offset [0-9]*: is truncated.*; another sample stands in' err || fail "the damaged sample is not named"

run 2 60 2 "${net[@]}" --dataset webdataset --data-dir web --output refused
one_line "--dataset webdataset requires --val-dir, the shards that evaluate, such as 'val-{0000..0007}.tar'"
run 2 60 1 "${net[@]}" "${web[@]}" --val-dir web/train-0.tar --output refused
one_line 'web/train-0.tar is in both --data-dir and --val-dir'
run 2 60 1 "${net[@]}" "${web[@]}" --val-split 0.2 --output refused
one_line '--val-split divides .* but --dataset webdataset has shards of its own for evaluation'
run 2 60 1 "${net[@]}" "${web[@]}" --image-cache cache --output refused
one_line '--image-cache stores the pictures of --dataset folder'
run 2 60 1 "${net[@]}" --dataset glyphs --label-key cls --output refused
one_line '--label-key applies to --dataset webdataset and tfrecord only'
run 4 60 1 "${net[@]}" "${web[@]}" --data-dir 'web/train-{0..9}.tar' --output refused
one_line 'web/train-3.tar: does not exist, and 6 more of the 10 shards'
run 4 60 1 "${net[@]}" "${records[@]}" --label-key nothing --output refused
one_line 'records/train-0.tfrecord: offset 0: has no nothing \(its keys: image/class/label, image/encoded\)'
run 4 60 1 "${net[@]}" "${web[@]}" --data-dir web/train-0.tar --output refused
one_line "web/val-0.tar: the label '1' is not a label of those that train"
[ -e refused ] && fail "a refused run has left a folder"
finish
