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
        # What evaluates is not a copy of what trains.
        [ "$split" = train ] || { cp "$golden/interlaced.png" "$data/val/$class/b$copy.png" && echo val | tee -a "$data/val/$class"/*"$copy".jp* "$data/val/$class/c$copy.JPEG" >/dev/null; }
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
grep -qE '^ *not read +1 file \(1 \.txt\)' "$folder/out" || fail "the header does not count notes.txt: $(cat "$folder/out")"
run 0 60 2 "${images[@]}" --workers 0 --output "$folder/two"
same_tensors "$folder/one/latest" "$folder/two/latest"
run 0 60 1 "${images[@]}" --workers 1 --output "$folder/again" --max-steps 4
run 0 60 2 "${images[@]}" --workers 1 --output "$folder/again" --resume auto
same_tensors "$folder/one/latest" "$folder/again/latest"
run 0 60 1 "${images[@]}" --seed 2 --output "$folder/other"
! cmp -s "$folder/one/latest/model.safetensors" "$folder/other/latest/model.safetensors" || fail "the seed has no effect"
grep -q '"grün"' "$folder/one/latest/state.json" || fail "the checkpoint does not name the classes"

rm "$data/train/grün/notes.txt"

run 8 60 1 "${images[@]}" --output "$folder/again" --resume auto --epochs 3 --exif-orientation off
one_line 'EXIF orientation off instead of on'
# Runs of earlier versions do not turn pictures.
old=$(dirname "$0")/../golden/old_runs
run 2 60 1 "${images[@]}" --image-size 16 --global-batch 4 --model "$old/network.onnx" --resume "$old/photographs" \
  --exif-orientation on --output "$folder/older"
one_line 'an earlier version began this run, without turning its images'

# Pictures that evaluate and train are counted.
cp "$data/train/grün/a1.jpg" "$data/val/red one/seen.jpg"
run 0 60 2 "${images[@]}" --epochs 1 --output "$folder/copied"
[ "$(grep -c '1 of the 25 images that evaluate is also among those that train (.*red one/seen.jpg is .*train/.*/a1.jpg)' "$folder/err")" -eq 1 ] ||
  fail "the copy is not reported once: $(cat "$folder/err")"
rm "$data/val/red one/seen.jpg"

# A checkpoint with other classes cannot be resumed.
mv "$data/train/grün" "$data/train/blau" && mv "$data/val/grün" "$data/val/blau"
run 8 30 1 "${images[@]}" --output "$folder/one" --epochs 3 --resume auto
one_line 'classes grün, red one'
run 8 30 1 eval "${images[@]}" --resume "$folder/one/latest"
grep -q 'error: .*classes grün, red one' "$folder/err" || fail "eval accepts a checkpoint with other classes"

# The same pixels as PNG files of the network's size and in the formats of MNIST and CIFAR-10 give the same weights and
# evaluations: 600 grey images, of which other folders would measure 512 for --normalize standard, and 60 colour images.
python3 - "$folder" <<'END'
import random, struct, sys, zlib
from pathlib import Path
root = Path(sys.argv[1])

def png(width, channels, pixels):
    def chunk(kind, data):
        return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
    stride = width * channels
    rows = b''.join(b'\0' + pixels[y * stride:(y + 1) * stride] for y in range(width))
    header = struct.pack('>IIBBBBB', width, width, 8, 2 if channels == 3 else 0, 0, 0, 0)
    return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', header) + chunk(b'IDAT', zlib.compress(rows, 1)) + chunk(b'IEND', b'')

def write_png(split, label, i, width, channels, pixels):
    path = root / f'png{width}' / split / f'class{label}' / f'{i:04}.png'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(width, channels, pixels))

dice = random.Random(5)
for split, name, count in (('train', 'train', 600), ('val', 't10k', 30)):
    labels = sorted(i % 3 for i in range(count))
    images = [bytes(dice.choices(range(1 + 80 * (label + 1)), k=784)) for label in labels]
    for i, (label, image) in enumerate(zip(labels, images)):
        write_png(split, label, i, 28, 1, image)
    (root / 'idx').mkdir(exist_ok=True)
    (root / 'idx' / f'{name}-images-idx3-ubyte').write_bytes(struct.pack('>IIII', 2051, count, 28, 28) + b''.join(images))
    (root / 'idx' / f'{name}-labels-idx1-ubyte').write_bytes(struct.pack('>II', 2049, count) + bytes(labels))
for split, files, count in (('train', [f'data_batch_{i}.bin' for i in range(1, 6)], 60), ('val', ['test_batch.bin'], 20)):
    labels = sorted(i % 10 for i in range(count))
    images = [dice.randbytes(3072) for _ in labels]
    for i, (label, image) in enumerate(zip(labels, images)):
        write_png(split, label, i, 32, 3, bytes(image[c * 1024 + k] for k in range(1024) for c in range(3)))
    (root / 'cifar10').mkdir(exist_ok=True)
    for part, file in enumerate(files):
        each = count // len(files)
        some = zip(labels[part * each:(part + 1) * each], images[part * each:(part + 1) * each])
        (root / 'cifar10' / file).write_bytes(b''.join(bytes([label]) + image for label, image in some))
END
same_pixels() { # same_pixels WIDTH FORMAT ARGUMENTS...
  local width=$1 format=$2
  shift 2
  local common=(--global-batch 30 --logical-shards 2 --epochs 2 --lr 0.01 --deterministic --threads 1 --progress none "$@")
  run 0 60 1 "${common[@]}" --dataset "$format" --data-dir "$folder/$format" --output "$folder/stored"
  run 0 60 2 "${common[@]}" --dataset folder --data-dir "$folder/png$width" --image-size "$width" --output "$folder/pictures"
  grep -qE "pictures +(in evaluation )?shorter side to [0-9]+, central $width, bilinear; those of ${width}x$width as they are" "$words/out" ||
    fail "the header does not say what is done to pictures"
  same_tensors "$folder/stored/latest" "$folder/pictures/latest"
  same_files "$folder/stored/latest/evaluation.json" "$folder/pictures/latest/evaluation.json"
}
same_pixels 28 idx --image-channels 1
same_pixels 28 idx --image-channels 1 --normalize standard --random-flip --random-crop-padding 2 --cutout 5
same_pixels 32 cifar10 --normalize standard --random-resized-crop --random-flip --color-jitter 0.4,0.4,0.4 --image-cache "$folder/pixels"

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

# A file with damage at its end is named at its first reading, whatever region is read of it.
fresh
python3 - "$data/train/grün/b1.png" <<'END'
import sys
content = bytearray(open(sys.argv[1], 'rb').read())
content[content.rindex(b'IEND') - 5] ^= 1  # the last chunk's checksum
open(sys.argv[1], 'wb').write(content)
END
for region in on off; do
  run 4 30 1 "${images[@]}" --random-resized-crop "$region" --epochs 20 --output "$folder/late"
  one_line 'train/grün/b1.png: is a damaged PNG file: IDAT: CRC error'
  # With --max-bad-samples it stands out in the first epoch, and never again.
  run 0 60 1 "${images[@]}" --random-resized-crop "$region" --epochs 3 --max-bad-samples 1 --output "$folder/late-$region"
  [ "$(grep -c 'b1.png' "$folder/err")" -eq 1 ] || fail "the damaged file is reported $(grep -c b1.png "$folder/err") times"
done
[ ! -e "$folder/late" ] || fail "a run with a damaged file got beyond its first reading"

# The other class does not stand in for one of which nothing can be read.
for file in "$data/train/grün"/*; do printf 'no image' >"$file"; done
run 4 30 2 "${images[@]}" --output "$folder/gone" --max-bad-samples 20
one_line 'error: .*train/grün: no image of the class can be read .*a1.jpg: is a text file'

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

# An undivided folder: the same division on any number of ranks and in every epoch, copies on one side, a file that says which
# image evaluates, and nobody continues with another division.
flat="$folder/my flat"
rm -rf "$flat" && mkdir "$flat"
for class in cat dog; do
  mkdir "$flat/$class"
  for n in $(seq 12); do cp "$golden/photo.jpg" "$flat/$class/$n.jpg" && echo "$class $n" >>"$flat/$class/$n.jpg"; done
done
cp "$flat/cat/1.jpg" "$flat/cat/copy.jpg"
divided=("${images[@]}" --data-dir "$flat" --val-split 0.3)
run 0 60 1 "${divided[@]}" --output "$folder/flat-1"
for ranks in 2 3; do
  run 0 60 "$ranks" "${divided[@]}" --logical-shards 6 --global-batch 12 --output "$folder/flat-$ranks"
  cmp "$folder/flat-1/split.csv" "$folder/flat-$ranks/split.csv" || fail "$ranks ranks divide the images in another way"
done
same_tensors "$folder/flat-2/latest" "$folder/flat-3/latest"
grep -q 'evaluated on 30 % of the images, chosen by their content ([1-9][0-9]* cat, [1-9][0-9]* dog)' "$folder/out" ||
  fail "the header does not say what evaluates"
[ "$(grep -cE '^(cat|dog)/[0-9a-z]*\.jpg,(cat|dog),(train|val)$' "$folder/flat-1/split.csv")" -eq 25 ] || fail "split.csv is not of 25 images"
[ "$(grep -E '^cat/(1|copy).jpg' "$folder/flat-1/split.csv" | cut -d, -f3 | uniq | wc -l)" -eq 1 ] || fail "a copy is on the other side"
run 0 60 1 eval --run "$folder/flat-1"
echo 'another' >>"$flat/dog/7.jpg" && cp "$flat/dog/7.jpg" "$flat/dog/new.jpg"
run 8 30 2 "${divided[@]}" --epochs 3 --output "$folder/flat-1" --resume auto
one_line 'the images are not divided as in .*split.csv: .*dog/new.jpg is new'
run 8 30 1 eval --run "$folder/flat-1"
grep -q 'error: the images are not divided as in .*split.csv: .*dog/new.jpg is new' "$folder/err" || fail "eval accepts another division"
# A list in another order trains on the same images.
(cd "$flat" && echo 'path,label' && find cat dog -name '*.jpg' | sort | sed 's|^\([^/]*\)/.*|&,\1|') >"$folder/list.csv"
run 0 60 1 "${divided[@]}" --labels "$folder/list.csv" --output "$folder/listed"
run 0 60 2 "${divided[@]}" --output "$folder/unlisted"
cmp <(sort "$folder/listed/split.csv") <(sort "$folder/unlisted/split.csv") || fail "a list divides the images in another way"
sed 's|^|cat/|; s|,|,x|' "$folder/list.csv" >"$folder/bad.csv"
run 4 30 2 "${divided[@]}" --labels "$folder/bad.csv" --output "$folder/bad-list"
one_line 'bad.csv: line 1 names no column'
sed '1s/$/,split/; 2,$s/$/,train/; $s/train$/val/' "$folder/list.csv" >"$folder/split-list.csv"
run 2 30 2 "${divided[@]}" --labels "$folder/split-list.csv" --output "$folder/bad-list"
one_line '--val-split divides the images .* but .*split-list.csv has a column split; remove it'
run 0 60 2 "${images[@]}" --data-dir "$flat" --labels "$folder/split-list.csv" --output "$folder/by-column"
[ "$(grep -c ',val$' "$folder/by-column/split.csv")" -eq 1 ] || fail "the column split is not used"
sed '1s/$/,camera/; 2,$s/\([^,]*\)$/\1,\1 1/' "$folder/list.csv" | awk -F, -v OFS=, 'NR > 1 { $3 = $3 NR % 5 } 1' >"$folder/groups.csv"
run 0 60 2 "${divided[@]}" --labels "$folder/groups.csv" --split-group camera --output "$folder/by-group"
grep -q 'evaluated on 30 % of the images, chosen by the column camera of the list' "$folder/out" || fail "the column of groups is not named"
run 2 30 2 "${images[@]}" --fold 1/2 --data-dir "$data"
one_line '--fold divides the images of --dataset folder in CLASS/ or train/CLASS/, or of a list, but .* has images in folders of their own'

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
