#!/usr/bin/env bash
# include_check.sh [ROOT]: which folder of src/ includes which, what public headers keep to themselves, and the length of
# files. Prints one line for each break of a rule and ends with 1, or with 0 where there is none.
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"

# What each folder may include besides itself and base. An arrow goes down only, so no two folders include each other.
declare -A may=(
  [base]=''
  [options]=''
  [backend]=''
  [comm]='backend'
  [runtime]='options backend comm'
  [data]='options backend'
  [model]='options backend'
  [gradients]='backend comm'
  [optim]='options backend'
  [checkpoint]='backend'
  [metrics]='options comm'
  [run_folder]='options checkpoint metrics'
)
may[train]=${!may[*]}
may[commands]="${may[train]} train"
may[.]="${may[commands]} commands" # main.cpp

# Headers that are slow to compile or belong to one library's inside stay out of ours: a .cpp file includes them.
heavy='nlohmann/|boost/|spdlog/|mpi\.h|zlib\.h|jpeglib\.h|png\.h|dnnl|onnx/onnx_pb|google/'
# Only these folders know MPI; main and the commands do not.
mpi_folders='comm runtime'
longest=500

breaks=0
complain() {
  echo "$1"
  breaks=$((breaks + 1))
}
has_word() { [[ " $1 " == *" $2 "* ]]; }

# includes PATTERN FILES...: lines "file:line:what is included" of the #include lines that match.
includes() {
  grep -nHE "^[[:space:]]*#[[:space:]]*include[[:space:]]*$1" "${@:2}" |
    sed -E 's/^([^:]+:[0-9]+):[^"<]*["<]([^">]+)[">].*/\1:\2/' || true
}
folder_of() {
  local path=${1#src/}
  if [[ $path == */* ]]; then echo "${path%%/*}"; else echo .; fi
}

mapfile -t sources < <(find src -name '*.h' -o -name '*.cpp' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' | sort)
mapfile -t headers < <(find src -name '*.h' -o -name '*.cuh' | sort)
mapfile -t everything < <(find src tests bench launch -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.inc' -o -name '*.cu' \
  -o -name '*.cuh' -o -name '*.py' -o -name '*.sh' -o -name '*.txt' \) 2>/dev/null | sort)
[ ${#sources[@]} -gt 0 ] || complain "there is no source file under $PWD/src"

for directory in src/*/; do
  folder=$(basename "$directory")
  [ -n "${may[$folder]+known}" ] ||
    complain "src/$folder: not in the table of tests/style/include_check.sh; say there what it may include"
done

while IFS=: read -r file line included; do
  [ -n "$file" ] || continue
  folder=$(folder_of "$file")
  target=${included%%/*}
  if [[ $included != */* || $included == ../* || $included == ./* ]]; then
    complain "$file:$line: \"$included\" is not named from src/, as in \"base/error.h\""
  elif [ "$target" != "$folder" ] && [ "$target" != base ] && ! has_word "${may[$folder]-}" "$target"; then
    complain "$file:$line: src/$folder may not include \"$included\"; it may include base ${may[$folder]-}"
  fi
done < <([ ${#sources[@]} -eq 0 ] || includes '"' "${sources[@]}")

while IFS=: read -r file line included; do
  [ -n "$file" ] || continue
  complain "$file:$line: <$included> in a header; include it in .cpp files only"
done < <([ ${#headers[@]} -eq 0 ] || includes "[<\"]($heavy)" "${headers[@]}")

while IFS=: read -r file line included; do
  [ -n "$file" ] || continue
  folder=$(folder_of "$file")
  has_word "$mpi_folders" "$folder" || complain "$file:$line: <$included> outside of ${mpi_folders// / and }"
done < <([ ${#sources[@]} -eq 0 ] || includes '[<"]mpi\.h' "${sources[@]}")

for header in "${headers[@]}"; do
  grep -q '^#pragma once$' "$header" || complain "$header: no '#pragma once'"
done

for file in "${everything[@]}"; do
  lines=$(wc -l <"$file")
  [ "$lines" -le $longest ] || complain "$file: $lines lines; files stay under $longest"
done

if [ "$breaks" -gt 0 ]; then
  echo "include_check: $breaks breaks of the rules"
  exit 1
fi
echo "include_check: ${#sources[@]} source files keep the rules"
