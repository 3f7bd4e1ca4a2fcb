#!/usr/bin/env bash
# Images that do not fit into the memory of a device, a stand-in for a GPU (tests/stand_ins/gpu_module.cpp): loader threads
# write each batch to where it is copied from. All bytes are those of a run on the CPU, and of one whose images fit.
set -u
source "$(dirname "$0")/lib.sh"
: "${STAND_IN_GPU_MODULE:?}"
export DDP_CUDA_MODULE=$STAND_IN_GPU_MODULE STAND_IN_GPUS='0000:01:00.0 0000:02:00.0'

# 11 steps per epoch, the last one with a smaller batch.
images=(--dataset synthetic --image-size 64 --train-limit 1000 --test-limit 100 --global-batch 96 --max-steps 14 --epochs 2
  --deterministic --logical-shards 2 --lr 0.01 --momentum 0.9 --threads 1 --progress none)
# Enough for a run, but not for its images.
little=(--device cuda --gpu-memory-limit 50MiB --steps-in-flight 3)

same_runs() { # same_runs RUN OTHER
  same_tensors "$folder/$1/latest" "$folder/$2/latest"
  same_files "$folder/$1/latest/evaluation.json" "$folder/$2/latest/evaluation.json"
}
hashes() { # hashes RUN: of the pixels of each step
  cut -d, -f 1,3 "$folder/$1/steps.csv"
}

run 0 120 1 "${images[@]}" --device cpu --output "$folder/cpu"
run 0 120 1 "${images[@]}" --device cuda --output "$folder/resident"
same_runs cpu resident
for ahead in 1 3; do
  run 0 120 1 "${images[@]}" "${little[@]}" --steps-in-flight $ahead --output "$folder/streamed-$ahead"
  same_runs cpu "streamed-$ahead"
  # Only images that are not resident have hashes.
  [ "$(hashes cpu)" = "$(hashes "streamed-$ahead")" ] || fail "other pixels in $last"
done
[ "$(hashes resident | cut -d, -f 2 | sort -u)" = "$(printf '%016d\npixels' 0)" ] || fail "images are not resident in $last"

# The device edits them, on any number of ranks, and a run is resumed within an epoch. Threads that mix images augment them.
edits=(--random-crop-padding 5 --random-flip on --cutout 9 --random-erasing 0.5 --normalize standard)
run 0 120 1 "${images[@]}" "${edits[@]}" --device cpu --output "$folder/by-threads"
run 0 120 2 "${images[@]}" "${edits[@]}" "${little[@]}" --steps-in-flight 4 --max-steps 5 --output "$folder/by-device"
run 0 120 1 "${images[@]}" "${edits[@]}" "${little[@]}" --workers 2 --output "$folder/by-device"
same_runs by-threads by-device
[ "$(hashes by-device | cut -d, -f 2 | sort -u)" = "$(hashes resident | cut -d, -f 2 | sort -u)" ] || fail "threads edit images in $last"
for more in '--random-crop-fill reflect --workers 0' '--mixup 0.3'; do
  read -ra options <<<"$more"
  name=${options[0]#--}
  run 0 120 1 "${images[@]}" "${edits[@]}" "${options[@]}" --device cpu --output "$folder/$name-by-threads"
  run 0 120 1 "${images[@]}" "${edits[@]}" "${options[@]}" "${little[@]}" --output "$folder/$name"
  same_runs "$name-by-threads" "$name"
done

# Decoded images, of which one cannot be read, and several views in evaluations.
golden=$(dirname "$0")/../golden/images
for split in train val; do
  for class in a b; do
    mkdir -p "$folder/photos/$split/$class"
    for copy in 1 2 3 4; do
      cp "$golden/photo.jpg" "$folder/photos/$split/$class/a$copy.jpg"
      cp "$golden/rgb.png" "$folder/photos/$split/$class/b$copy.png"
    done
  done
done
echo 'not an image' >"$folder/photos/train/a/c1.png"
photos=("${images[@]}" --dataset folder --data-dir "$folder/photos" --image-size 28 --global-batch 6 --max-bad-samples 1
  --eval-views mirror "${edits[@]}")
run 0 120 1 "${photos[@]}" --device cpu --output "$folder/photos-by-threads"
run 0 120 1 "${photos[@]}" --device cuda --steps-in-flight 4 --output "$folder/photos-by-device"
same_runs photos-by-threads photos-by-device
# The batch of a step that is not finite is kept as the network reads it.
for device in cpu cuda; do
  run 6 120 1 "${photos[@]}" --device $device --steps-in-flight 4 --lr 1e6 --output "$folder/broken-$device"
done
same_files "$folder"/broken-cpu/nonfinite-*/pixels.bin "$folder"/broken-cuda/nonfinite-*/pixels.bin
same_files "$folder"/broken-cpu/nonfinite-*/weights.safetensors "$folder"/broken-cuda/nonfinite-*/weights.safetensors
# In the first epoch threads augment images before they resize them.
photos+=(--model mobilenet-v3-small --image-size 48 --progressive-size 32 --progressive-end 1 --progressive-stages 2)
run 0 120 1 "${photos[@]}" --device cpu --output "$folder/growing-by-threads"
run 0 120 1 "${photos[@]}" --device cuda --steps-in-flight 4 --output "$folder/growing-by-device"
same_runs growing-by-threads growing-by-device

# A batch in the host's memory that is copied for each step.
run 0 120 1 bench --dataset folder --data-dir "$folder/photos" --image-size 28 --global-batch 6 "${edits[@]}" --threads 1 \
  --device cuda --steps-in-flight 4
finish
