#!/usr/bin/env bash
# cuBLASLt, cuDNN and NCCL are found in Python packages if the toolkit lacks them.
#
#   cuda_parts_test.sh SOURCE_DIR NVCC CUDART_STATIC CUBLASLT
set -euo pipefail
source_dir=$1 nvcc=$2 cudart=$3 cublaslt=$4

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

major=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)[.].*/\1/p')
nvidia=$work/python/nvidia
# The layout of pip packages: libraries with versioned names only.
package() {
  mkdir -p "$nvidia/$1/include" "$nvidia/$1/lib"
  touch "$nvidia/$1/include/$2" "$nvidia/$1/lib/$3"
}
package "cu$major" cublasLt.h "libcublasLt.so.$major"
package cudnn cudnn.h libcudnn.so.9
package nccl nccl.h libnccl.so.2

mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(parts LANGUAGES CXX)
include($source_dir/cmake/DdpCuda.cmake)
get_target_property(place CUDA::cublasLt IMPORTED_LOCATION)
message(STATUS "cuBLASLt is \${place}")
EOF

# Hides the libraries of the toolkit except cudart, and all other copies of cuBLASLt.
hidden=""
toolkit=$(dirname "$(dirname "$nvcc")")
# nvcc may be a wrapper script outside the toolkit.
top=$("$nvcc" --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#[$] TOP=//p')
for folder in "$(dirname "$cublaslt")" {"$toolkit","${top:-$toolkit}",/usr/local/cuda*}/{,targets/x86_64-linux/}lib{,64} \
  /usr{,/local}/lib{,64} /usr/lib/x86_64-linux-gnu; do
  compgen -G "$folder/libcublasLt.*" >/dev/null && hidden+="$folder;$(readlink -f "$folder");"
done
configure() {
  PYTHONPATH=$work/python cmake -S "$work/project" -B "$work/build" -DCMAKE_CUDA_COMPILER="$nvcc" -DDDP_CUDA=ON \
    -DCMAKE_IGNORE_PATH="$hidden" \
    -DCUDA_CUDART="$cudart" -DCUDA_cudart_static_LIBRARY="$cudart" 2>&1
}
fail() {
  echo "FAILED: $1"
  echo "$log"
  exit 1
}

log=$(configure) || fail "not found in Python's packages"
grep -qF "cuBLASLt is $nvidia/cu$major/lib/libcublasLt.so.$major" <<<"$log" || fail "found elsewhere"

rm "$nvidia/cu$major/lib/libcublasLt.so.$major"
rm -r "$work/build"
log=$(configure) && fail "found although it does not exist"
grep -q "cublasLt.h with its library" <<<"$log" || fail "the error is a different one"
