#!/usr/bin/env bash
# The bundle of tests/gpu/pack: bundle_test.sh BUILD. It is packed, unpacked in a folder with a space in its name, refused
# if it does not fit the machine, and used where there is only a C library, bash and Python (empty_root.sh): it trains on the
# CPU, and its scripts' checks pass on a stand-in for a GPU.
set -u
tests=$(cd "$(dirname "$0")" && pwd) build=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
fail() {
  echo "FAILED: $1"
  tail -20 "$folder/said" | sed 's/^/    /'
  failures=$((failures + 1))
}
expect() { # expect CODE PATTERN COMMAND...
  local code=$1 pattern=$2 got=0
  shift 2
  "$@" >"$folder/said" 2>&1 </dev/null || got=$?
  [ "$got" -eq "$code" ] || fail "exit code $got in place of $code from $*"
  grep -qE -- "$pattern" "$folder/said" || fail "no '$pattern' from $*"
}

mkdir "$folder/bin" "$folder/reference"
# Only the checkpoint of this build, which the unpacked bundle must reproduce; the other references take minutes.
"$tests/reference" --program "$build/src/ddp_train" --out "$folder/reference" --only checkpoint >"$folder/said" 2>&1 ||
  fail "no CPU results to pack"
expect 2 'OUT is missing' "$tests/pack"
expect 2 'unknown option' "$tests/pack" --fast "$folder/out"
expect 3 'there is no .*ddp_train' "$tests/pack" --build "$folder" "$folder/out"
XZ_OPT=-0 expect 0 'pack: .*MiB, commit' "$tests/pack" --build "$build" --reference "$folder/reference" "$folder/out"
place="$folder/a place"
mkdir "$place"
tar -C "$place" -xJf "$folder/out/ddp-gpu-bundle.tar.xz" || fail "the archive does not unpack"
bundle=$place/ddp-gpu-bundle
rm -rf "$folder/out"

# Bundles that do not fit the machine are rejected, with one line each.
export PATH=$folder/bin:$PATH
machine() { # machine NAME CAPABILITY CUDA: what nvidia-smi says
  printf '#!/usr/bin/env bash\ncase $* in *compute_cap*) echo "%s, %s, 580.00" ;; *) echo "CUDA Version: %s" ;; esac\n' "$@" \
    >"$folder/bin/nvidia-smi"
  chmod +x "$folder/bin/nvidia-smi"
}
architecture=$(sed -n 's/.*"architectures": "\([0-9]*\).*/\1/p' "$bundle/bundle.json")
machine Old "7.0" 99.0
expect 3 'compute capability 7.0, and the bundle has code for' "$bundle/tests/gpu/run" --bundle "$bundle"
machine Card "${architecture%?}.${architecture: -1}" 11.4
expect 3 'runs CUDA 11.4, and the bundle is built with CUDA' "$bundle/tests/gpu/run" --bundle "$bundle"
cp -r "$bundle" "$folder/other" && sed -i 's/"commit": "[^"]*"/"commit": "0123456789"/' "$folder/other/bundle.json"
expect 3 'the bundle is of commit 0123456789 and these scripts' "$bundle/tests/gpu/run" --bundle "$folder/other"
rm -rf "$folder/other"

# The script that runs in the empty root.
cat >"$place/empty.sh" <<'EMPTY'
set -u
bundle="/bundle/ddp-gpu-bundle"
cd "$bundle" || exit 1
source ./env.sh
export LD_LIBRARY_PATH=$DDP_LIBRARIES
ddp_train --version || exit 1
ddp() { timeout 100 mpirun -q --oversubscribe -np "$@"; }
small=(--dataset glyphs --train-limit 1000 --test-limit 64 --global-batch 64 --max-steps 20 --deterministic
  --logical-shards 2 --progress none --device cpu --threads 1)
for ranks in 1 2; do ddp "$ranks" ddp_train "${small[@]}" --output "/tmp/on-$ranks" || exit 1; done
cmp /tmp/on-1/latest/model.safetensors /tmp/on-2/latest/model.safetensors || exit 1
unset LD_LIBRARY_PATH
# The check of the CPU in stage `first`, with the bundle's reference and with a wrong one. It needs no GPU; naming a module
# suppresses the search for CUDA's libraries.
cp /bundle/nvidia-smi /usr/bin/
stage() { DDP_CUDA_MODULE=/nowhere tests/gpu/run --bundle "$bundle" --out /tmp/cpu --only 'the CPU repeats' first; }
stage || exit 1
cp reference/reference.json /tmp/kept.json
sed -i 's/"checkpoint": "[0-9a-f]*"/"checkpoint": "0123"/' reference/reference.json
stage | grep 'other bytes than on the machine that packed' || exit 1
cp /tmp/kept.json reference/reference.json
# Missing libraries of CUDA are named.
tests/gpu/run --bundle "$bundle" --out /tmp/results && exit 1
rm /usr/bin/nvidia-smi
echo "trained with nothing but the bundle"
export DDP_CUDA_MODULE=$bundle/stand-ins/libstand_in_gpu_module.so DDP_NVML_LIBRARY=$bundle/stand-ins/libstand_in_nvml.so
export STAND_IN_GPUS=0000:01:00.0
cp /bundle/nvidia-smi /usr/bin/
tests/gpu/run --bundle "$bundle" --out /tmp/stand-in --only '^check: |USR1' first faults
EMPTY
# This requires root and namespaces.
if ! unshare -m true 2>/dev/null; then
  echo "not tried without root: the bundle on a machine that has nothing else"
else
  machine Card "${architecture%?}.${architecture: -1}" 99.0
  cp "$folder/bin/nvidia-smi" "$place/"
  mkdir "$folder/root"
  expect 0 '^3 passed, 0 failed$' "$tests/empty_root.sh" "$folder/root" "$place" bash /bundle/empty.sh
  grep -q 'trained with nothing but the bundle' "$folder/said" || fail "no training"
  grep -q 'libcublasLt.* not found; install' "$folder/said" || fail "missing libraries of CUDA are not named"
fi
if [ "$failures" -ne 0 ]; then exit 1; fi
echo "the bundle of tests/gpu/pack does what it promises"
