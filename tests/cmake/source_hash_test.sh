#!/usr/bin/env bash
# The hash of sources, which is part of the key of cached plans, changes with every source in the folders and below them, and
# with nothing else.
#
#   source_hash_test.sh SOURCE_DIR
set -euo pipefail
source_dir=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

project="$work/a project"
mkdir -p "$project/kernels/conv/deep" "$project/kernels/other"
echo 'int one();' >"$project/kernels/one.h"
echo 'int deep();' >"$project/kernels/conv/deep/kernels.inc"
echo 'int other();' >"$project/kernels/other/other.cpp"
echo 'int main() { return 0; }' >"$project/main.cpp"
cat >"$project/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(hashed LANGUAGES CXX)
include("$source_dir/cmake/DdpSourceHash.cmake")
add_executable(program main.cpp)
ddp_source_hash(program hash_of_all "\${CMAKE_CURRENT_SOURCE_DIR}/kernels" EXCEPT "\${CMAKE_CURRENT_SOURCE_DIR}/kernels/other")
EOF
# hash: what the program is built with now.
hash() {
  { cmake -S "$project" -B "$work/a build" && cmake --build "$work/a build"; } >"$work/log" 2>&1 || { cat "$work/log" && exit 1; }
  sed -n 's/.*return "\([0-9a-f]*\)".*/\1/p' "$work/a build/hash_of_all.cpp"
}
failures=0
# expect same|another WHAT: the hash after WHAT was done, compared with that before.
expect() {
  local now
  now=$(hash)
  if { [ "$now" = "$before" ] && [ "$1" = another ]; } || { [ "$now" != "$before" ] && [ "$1" = same ]; }; then
    echo "FAILED: $2: the hash was $before and is $now"
    failures=$((failures + 1))
  fi
  before=$now
}
before=$(hash)
[[ $before =~ ^[0-9a-f]{16}$ ]] || { echo "FAILED: the hash is '$before'" && exit 1; }
expect same "nothing"
echo 'int two();' >>"$project/kernels/one.h"
expect another "a source of the folder"
echo 'int deeper();' >>"$project/kernels/conv/deep/kernels.inc"
expect another "a source two folders below"
echo 'int more();' >"$project/kernels/conv/more.cu"
expect another "a new source below"
rm "$project/kernels/conv/more.cu"
expect another "a source less"
echo 'notes' >"$project/kernels/conv/notes.txt"
expect same "what is no source"
echo 'int others();' >>"$project/kernels/other/other.cpp"
expect same "a source of a folder that is left out"
[ "$failures" -eq 0 ] && echo "the hash changes with every source, and with nothing else"
