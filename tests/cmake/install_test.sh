#!/usr/bin/env bash
# install_test.sh BUILD_DIR: cmake --install into a prefix with a space in its name, which is then moved: the program,
# its GPU module, the scripts and configurations must work there, without the build tree and from another folder.
set -euo pipefail
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $1"
  [ ! -e "$work/log" ] || cat "$work/log"
  exit 1
}

cmake --install "$build" --prefix "$work/first place" >"$work/log" 2>&1 || fail "cmake --install"
mv "$work/first place" "$work/other place"
prefix="$work/other place"
for file in bin/ddp_train share/ddp_train/launch/{run,supervise,get-data,slurm-train.sbatch,slurm-train-srun.sbatch,slurm-job.sh} \
  share/ddp_train/configs/quickstart.cfg share/doc/ddp_train/{README.md,LICENSE,docs/options.md}; do
  [ -e "$prefix/$file" ] || fail "$file is not installed"
done
if [ -e "$build/src/libddp_loopback.so" ]; then
  [ -e "$prefix/lib/ddp_train/libddp_loopback.so" ] || fail "the library that launch/run loads into mpirun is not installed"
fi
if grep -qF "$build" "$prefix/share/ddp_train/launch/run"; then fail "launch/run names the build tree"; fi
if readelf -d "$prefix/bin/ddp_train" | grep -qE "R(UN)?PATH.*${build}"; then fail "the program searches the build tree"; fi

# Trains using only the prefix.
mkdir "$work/elsewhere" && cd "$work/elsewhere"
unset DDP_TRAIN DDP_CUDA_MODULE
"$prefix/share/ddp_train/launch/run" -np 2 -- --config "$prefix/share/ddp_train/configs/quickstart.cfg" --device cpu \
  --train-limit 256 --test-limit 64 --epochs 1 --max-steps 2 --output "$work/run" >"$work/log" 2>&1 || fail "launch/run"
[ -e "$work/run/latest/model.safetensors" ] || fail "the checkpoint is missing"

# The GPU module is found in the prefix: without a driver, the error is about the driver.
if [ -e "$build/src/libddp_cuda.so" ]; then
  [ -e "$prefix/lib/ddp_train/libddp_cuda.so" ] || fail "the GPU module is not installed"
  if ldd "$prefix/lib/ddp_train/libddp_cuda.so" | grep -q 'not found'; then fail "the GPU module lacks a library"; fi
  "$prefix/bin/ddp_train" check --device cuda >"$work/log" 2>&1 || true
  if grep -q 'has no GPU module' "$work/log"; then fail "the GPU module is not found"; fi
fi
echo "install_test: the prefix is complete and can be moved"
