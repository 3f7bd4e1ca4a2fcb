#!/usr/bin/env bash
# Models from ONNX files, weights from other runs, and exports: training, stopping, resuming, moving, and rejection.
set -u
source "$(dirname "$0")/lib.sh"
cd "$folder" || exit 1

# A trained LeNet is exported as ONNX and safetensors, and the ONNX file is trained further.
run 0 60 2 "${small[@]}" --epochs 1 --output first
run 0 10 1 export --run first --to net.onnx
run 0 10 1 export --run first --format safetensors --to net.safetensors
grep -q 'net.safetensors: lenet of step 8, 129,068 parameters' out || fail 'what was exported is not said'
run 0 10 1 export --run first --checkpoint best --fold-batch-norm --to best.onnx
run 0 60 2 "${small[@]}" --model net.onnx --epochs 2 --max-steps 8 --output second
run 0 60 1 eval --json "${small[@]}" --model net.onnx --resume second
cmp -s net.onnx second/model.onnx || fail 'the run folder has no copy of the model'

# If the file is gone, the copy in the run folder is used. A run with the same initial weights does the same steps.
mv net.onnx moved.onnx
run 0 60 2 "${small[@]}" --model net.onnx --epochs 2 --output second --resume auto
run 0 60 1 eval --json "${small[@]}" --model net.onnx --resume second
run 0 10 1 export --run second --to again.onnx
run 0 60 2 "${small[@]}" --init-from net.safetensors --epochs 2 --output third
run 0 10 1 export --run third --to third.onnx
run 0 60 2 "${small[@]}" --init-from first --epochs 2 --output fourth
same_tensors third/latest fourth/latest

# The copy is replaced.
cp again.onnx second/model.onnx
run 8 10 1 export --run second --to x.onnx
one_line 'second/model.onnx: not the file that the checkpoint was trained with'
run 8 30 2 "${small[@]}" --model net.onnx --epochs 3 --output second --resume auto
one_line 'net.onnx is not the file that the checkpoint was trained with'

# The extension determines the format; the exported file is read back and evaluates like the checkpoint.
run 0 10 1 export --run first --to named.safetensors
same_files net.safetensors named.safetensors
run 0 60 1 eval --json "${small[@]}" --run first
# In half precision it is half as large, and read back, too.
for precision in fp16 bf16; do
  run 0 10 1 export --run first --export-precision $precision --to half.safetensors
  grep -q "129,068 parameters in $precision" out || fail "the precision $precision is not said"
  [ $((2 * $(stat -c %s half.safetensors))) -lt $(($(stat -c %s net.safetensors) + 4096)) ] || fail "$precision is not half as large"
  run 0 60 2 "${small[@]}" --init-from half.safetensors --max-steps 1 --output from-half --normalize standard
  grep -q 'warning: .*these weights were trained on images with mean' err || fail 'another normalisation of the weights is not said'
done

# In a folder, and with a prefix before all names; the names of tensors in an ONNX file decide nothing.
mkdir hub
python3 - net.safetensors hub/model.safetensors moved.onnx named.onnx <<'END' || fail 'the files were not written'
import json, sys
data = open(sys.argv[1], "rb").read()
length = int.from_bytes(data[:8], "little")
header = {key if key == "__metadata__" else "_orig_mod.net." + key: value for key, value in json.loads(data[8:8 + length]).items()}
text = json.dumps(header).encode()
open(sys.argv[2], "wb").write(len(text).to_bytes(8, "little") + text + data[8 + length:])
network = open(sys.argv[3], "rb").read()
open(sys.argv[4], "wb").write(network.replace(b"conv1.weight", b"__metadata__").replace(b"conv2.weight", b"const_weight"))
END
run 0 60 2 "${small[@]}" --init-from hub --epochs 2 --output prefixed
grep -q "names are read without '_orig_mod.net.'" err || fail 'the prefix is not said'
same_tensors third/latest prefixed/latest
run 0 60 1 "${small[@]}" --model named.onnx --max-steps 1 --epochs 1 --output from-named
grep -q 'tensors *8 trained, 0 constant' out || fail 'the header does not count the tensors'
run 0 10 1 export --run from-named --to from-named.safetensors
grep -q '"const_weight":{"dtype":"F32","shape":\[50,20,5,5\]' from-named.safetensors || fail 'a name was not kept'
# An ONNX file in half precision has the same tensors as the safetensors file.
for precision in fp16 bf16; do
  run 0 10 1 export --run first --export-precision $precision --to half.onnx
  [ "$(stat -c %s half.onnx)" -lt $(($(stat -c %s half.safetensors) + 4096)) ] || fail "the ONNX file in $precision is too large"
  run 0 60 1 "${small[@]}" --model half.onnx --lr 0 --max-steps 1 --epochs 1 --output from-half-onnx-$precision
  run 0 10 1 export --run first --export-precision $precision --to half.safetensors
  run 0 60 1 "${small[@]}" --init-from half.safetensors --lr 0 --max-steps 1 --epochs 1 --output from-half-$precision
  # Behind their headers, which name the model.
  python3 - from-half-onnx-$precision from-half-$precision <<'END' || fail "the ONNX file in $precision has other tensors"
import json, sys
def tensors(run):
    data = open(run + "/latest/model.safetensors", "rb").read()
    length = int.from_bytes(data[:8], "little")
    return {key: value for key, value in json.loads(data[8:8 + length]).items() if key != "__metadata__"}, data[8 + length:]
sys.exit(tensors(sys.argv[1]) != tensors(sys.argv[2]))
END
done
run 0 60 1 eval --json "${small[@]}" --run first
grep -q '"step":8,' out || fail 'eval --run evaluates something else'

# Three classes instead of ten: all layers but the last one start from the file.
idx() { # idx PREFIX COUNT: random images of 28x28 in three classes; COUNT below 64
  { printf '\0\0\10\3\0\0\0%b\0\0\0\34\0\0\0\34' "\\0$(printf %o "$2")" && head -c $(($2 * 784)) /dev/urandom; } >"$1-images-idx3-ubyte"
  { printf '\0\0\10\1\0\0\0%b' "\\0$(printf %o "$2")" && for ((i = 0; i < $2; i++)); do printf '%b' "\\0$((i % 3))"; done; } >"$1-labels-idx1-ubyte"
}
mkdir three
idx three/train 60
idx three/t10k 30
three=(--dataset idx --data-dir three --model moved.onnx --global-batch 20 --epochs 1 --threads 1 --progress none)
run 2 30 1 "${three[@]}" --output refused
one_line 'moved.onnx is for images of 1x28x28 in 10 classes, the data set has 1x28x28 in 3; .*--new-classifier if only the classes differ'
run 0 60 2 "${three[@]}" --new-classifier --output tuned --lr 0
grep -qE 'weights .*moved.onnx, 6 tensors taken, 2 new: ' "$folder/out" || fail "the header does not count the tensors that were taken"
run 0 30 1 export --run tuned --to tuned.safetensors
run 0 30 1 export --run tuned --to tuned.onnx
run 0 30 1 eval --json "${three[@]}" --run tuned
grep -q '"fc2.weight":{"dtype":"F32","shape":\[3,' tuned.safetensors || fail 'the classifier does not have three outputs'

# Invalid files and options.
printf 'PK\003\004 and so on' >torch.pth
run 8 10 2 "${small[@]}" --init-from torch.pth
one_line 'torch.pth: this is a file of torch.save'
sed 's/"dtype":"F32"/"dtype":"U32"/' net.safetensors >whole.safetensors
run 8 10 2 "${small[@]}" --init-from whole.safetensors
one_line 'is of type U32, only F32, F16, BF16 and F64 are supported; convert it'
sed 's/"dtype":"F32"/"dtype":"F16"/' net.safetensors >half.safetensors
run 8 10 2 "${small[@]}" --init-from half.safetensors
one_line 'has [0-9]* bytes of data'
run 4 10 2 --model nowhere.onnx
one_line 'nowhere.onnx: No such file'
head -c 1000 moved.onnx >short.onnx
run 4 10 2 --model short.onnx
one_line 'short.onnx: not a readable ONNX model'
run 2 10 1 export --run first
one_line '--to FILE'
run 2 10 1 --to x.onnx
one_line '--to applies to the commands export, pack, report and scaling only'
run 2 10 1 export --run first --format safetensors --fold-batch-norm --to x
one_line 'fold-batch-norm requires --format onnx'
run 2 10 1 export --run first --format onnx --to x.safetensors
one_line '--to x.safetensors has the extension of another format than --format onnx'
run 8 10 1 export --run nowhere --to x.onnx
one_line 'nowhere: no such checkpoint'
run 8 10 1 export --run first --average --to x.onnx
one_line 'no moving average.*remove --average'
run 8 10 1 export --run first --to nowhere/x.onnx
one_line 'nowhere'
run 8 60 2 "${small[@]}" --model caffe-lenet --init-from net.safetensors
one_line "--init-from net.safetensors: 4 of the 8 tensors of this model are not in the file, the first is 'ip1.weight': the file has 'conv1.weight', "
run 8 10 2 "${small[@]}" --init-from nowhere.safetensors
one_line '--init-from nowhere.safetensors: no such file'
head -c 100 net.safetensors >short.safetensors
run 8 10 2 "${small[@]}" --init-from short.safetensors
one_line 'short.safetensors: the header is'
printf '\377\377\377\377\377\377\377\177{}' >forged.safetensors
run 8 10 2 "${small[@]}" --init-from forged.safetensors
one_line 'forged.safetensors: the header is'
run 2 10 1 --new-classifier
one_line '--new-classifier requires --init-from'

finish
