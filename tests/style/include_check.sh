#!/usr/bin/env bash
# include_check.sh [ROOT]: checks which folder of src/ includes which, through which headers the rooms of a backend are entered, what
# public headers must not include, and the length of files. Prints one line for each violation and exits with 1 if there are any.
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"

# What each folder may include besides itself and base. A folder includes its listed subfolders only if its own line says so;
# naming a folder grants all below it, with /. only itself and those below it that have no line. A line names only folders above it,
# or its own subfolders, so the table is acyclic; what is granted must be used.
declare -A may=(
  [base]=''
  [options]=''
  [optim/rules]=''
  [backend]='optim/rules'
  [comm]='backend/. backend/cuda/. backend/cuda/device'
  [job]='options comm'
  [machine]='options backend/. comm job'
  [data/formats]=''
  [data/images]='data/formats'
  [data/index]='data/formats data/images'
  [data/shards]='data/formats data/images'
  [data/sources]='data/formats data/images data/index data/shards'
  [data/pipeline]='data/formats data/images data/sources'
  [model]='backend/.'
  [onnx]='backend/. model'
  [gradients]='backend/. comm'
  [optim]='options backend/. optim/rules'
  [checkpoint]=''
  [metrics]='options comm'
  [explain]='options backend/. metrics'
  [run_folder]='checkpoint metrics'
)
may+=(
  [train/parallel]='options backend/. comm machine data/pipeline model gradients optim explain'
  [train/step]='options backend/. comm data/sources data/pipeline model gradients optim checkpoint metrics train/parallel'
  [train/inputs]="options backend/. comm job machine data model onnx checkpoint run_folder train/parallel train/step"
  [train/plan]='options backend/. comm job machine model gradients optim checkpoint train/parallel train/step train/inputs'
  [train/evaluation]='options backend/. comm data/sources data/pipeline model train/step train/inputs'
  [train/nonfinite]='backend/. comm model checkpoint train/parallel train/step train/inputs'
)
may[train/loop]="options backend/. comm job machine data/pipeline model onnx gradients optim checkpoint metrics run_folder
  train/parallel train/step train/inputs train/plan train/evaluation train/nonfinite"
above=" ${!may[*]} sweep "
# The rooms of the backends. Those without kernels of their own concept come first: what others are made of.
cpu=backend/cpu
may[$cpu/isa]=''
may[$cpu/device]="backend/. $cpu/isa"
may[$cpu/update]="backend/. optim/rules $cpu/isa"
may[$cpu/ends]="backend/. $cpu/device $cpu/update"
may[$cpu/norm]="backend/. $cpu/isa $cpu/device"
may[$cpu/pointwise]="${may[$cpu/norm]} $cpu/update"
may[$cpu/pool]="${may[$cpu/norm]} $cpu/pointwise"
may[$cpu/onednn]="backend/. $cpu/pool"
may[$cpu/conv/tiles]="backend/. $cpu/isa $cpu/device $cpu/pointwise"
may[$cpu/conv/amx]="backend/. $cpu/isa $cpu/device $cpu/conv/tiles"
may[$cpu/conv/depthwise]="${may[$cpu/conv/amx]} $cpu/norm"
may[$cpu/conv/winograd]="${may[$cpu/conv/amx]} $cpu/pointwise"
may[$cpu/conv]="${may[$cpu/conv/winograd]} $cpu/conv/winograd $cpu/conv/amx"
may[$cpu/linear]="${may[$cpu/conv/winograd]} $cpu/conv/. $cpu/onednn"
may[$cpu/joined]="backend/. $cpu/device $cpu/norm $cpu/conv/depthwise"
may[$cpu/candidates]="backend/. $cpu/isa $cpu/pool $cpu/onednn $cpu/conv $cpu/linear"
may[$cpu]="backend/. $cpu"
cuda=backend/cuda
may[$cuda/device]='backend/.'
may[$cuda/code]="backend/. $cuda/device"
may[$cuda/vendor]="backend/. $cuda/device"
may[$cuda/norm]="backend/. $cuda/device $cuda/code $cuda/vendor"
may[$cuda/pointwise]=${may[$cuda/norm]}
may[$cuda/pool]=${may[$cuda/norm]}
may[$cuda/update]="${may[$cuda/norm]} optim/rules"
may[$cuda/conv]="${may[$cuda/norm]} $cuda/pointwise"
may[$cuda/ends]="backend/. $cuda/code $cuda/vendor $cuda/conv"
may[$cuda/linear]="${may[$cuda/conv]} $cuda/conv $cuda/ends"
may[$cuda/joined]="${may[$cuda/norm]} $cuda/norm"
may[$cuda/candidates]="${may[$cuda/conv]} $cuda/conv $cuda/linear $cuda/norm $cuda/pool $cuda/update $cuda/joined"
may[$cuda]="backend/. $cuda"
may[sweep]='options'
may[commands]="${above/ backend / backend/. } train"
may[.]="${may[commands]} commands" # main.cpp

# The headers through which other folders enter a room. The rooms that are left out consist of what others are made of: all of theirs
# may be included.
declare -A doors=(
  [$cpu/update]=update.h
  [$cpu/norm]='norm.h row_norm.h'
  [$cpu/pointwise]='pointwise.h elementwise_kernels.h'
  [$cpu/pool]=pool.h
  [$cpu/onednn]='onednn.h primitives.h'
  [$cpu/conv/amx]='amx_direction.h amx_gradient.h amx_kernels.h'
  [$cpu/conv/depthwise]='depthwise.h depthwise_planes.h'
  [$cpu/conv/winograd]='winograd.h winograd_gradient.h'
  [$cpu/conv]=conv.h
  [$cpu/linear]=linear.h
  [$cpu/joined]=joined.h
  [$cpu/candidates]=candidates.h
  [$cuda/norm]='norm.h batch_norm.cuh'
  [$cuda/pointwise]=pointwise.h
  [$cuda/pool]=pool.h
  [$cuda/update]=update.h
  [$cuda/conv]='conv.h packing.cuh'
  [$cuda/ends]=loss.cuh
  [$cuda/linear]=linear.h
  [$cuda/joined]=joined.h
  [$cuda/candidates]='cuda_candidates.h op_set.h'
  [$cuda]=cuda_backend.h
)

# Headers that are slow to compile or an implementation detail may be included only by .cpp files.
heavy='nlohmann/|boost/|spdlog/|mpi\.h|zlib\.h|jpeglib\.h|png\.h|tiffio\.h|gif_lib\.h|libheif/|avif/|webp/|dnnl|onnx/onnx_pb|google/'
# Only these folders use MPI; main and the commands do not.
mpi_folders='comm job'
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
# find_room PATH: sets `found` to the innermost folder of this file with a line in the table, or to its first folder. Like grants()
# without a subshell, which thousands of includes would take seconds for.
find_room() {
  found=${1#src/}
  [[ $found == */* ]] || { found=.; return; }
  found=${found%/*}
  while [[ -z ${may[$found]+known} && $found == */* ]]; do found=${found%/*}; done
}
# grants LIST ROOM: sets `granted` to the entry of LIST that grants ROOM (itself or a folder above it); fails if there is none.
grants() {
  for granted in $1; do
    [[ $2/. != "$granted" && $2 != "$granted" && $2 != "$granted"/* ]] || return 0
  done
  return 1
}

mapfile -t sources < <(find src -name '*.h' -o -name '*.cpp' -o -name '*.inc' -o -name '*.cu' -o -name '*.cuh' | sort)
mapfile -t headers < <(find src -name '*.h' -o -name '*.cuh' | sort)
mapfile -t everything < <(find src tests bench launch -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.inc' -o -name '*.cu' \
  -o -name '*.cuh' -o -name '*.py' -o -name '*.sh' -o -name '*.txt' \) 2>/dev/null | sort)
[ ${#sources[@]} -gt 0 ] || complain "there is no source file under $PWD/src"

for directory in src/*/; do
  folder=$(basename "$directory")
  [[ " ${!may[*]}" == *" $folder"[\ /]* || -n ${may[$folder]+known} ]] ||
    complain "src/$folder: not in the table of tests/style/include_check.sh; say there what it may include"
done

declare -A used=()
while IFS=: read -r file line included; do
  [ -n "$file" ] || continue
  find_room "$file" && room=$found
  find_room "$included" && target=$found
  if [[ $included != */* || $included == ../* || $included == ./* ]]; then
    complain "$file:$line: \"$included\" is not named from src/, as in \"base/error.h\""
  elif [ "$target" != "$room" ] && [ "$target" != base ]; then
    if grants "${may[$room]-}" "$target"; then
      used[$room $granted]=yes
    else
      complain "$file:$line: src/$room may not include \"$included\"; it may include base ${may[$room]-}"
    fi
    [[ -z ${doors[$target]-} ]] || has_word "${doors[$target]}" "${included##*/}" ||
      complain "$file:$line: \"$included\" is inside of src/$target; other folders include its ${doors[$target]}"
  fi
done < <([ ${#sources[@]} -eq 0 ] || includes '"' "${sources[@]}")

for room in "${!may[@]}"; do
  [[ $room != commands && $room != . ]] || continue # they may include all above
  for granted in ${may[$room]}; do
    [[ ! -d src/$room || ! -d src/$granted || -n ${used[$room $granted]-} ]] ||
      complain "src/$room: does not include src/$granted; remove that from the table of tests/style/include_check.sh"
  done
done

# One way: rooms that include only rooms without lines are taken away until none is left.
declare -A left=()
for room in "${!may[@]}"; do left[$room]=${may[$room]}; done
for ((taken = 1; taken > 0; )); do
  taken=0
  for room in "${!left[@]}"; do
    for granted in ${left[$room]}; do
      for other in "${!left[@]}"; do
        [[ $other == "$room" || ($other != "${granted%/.}" && $other != "$granted"/*) ]] || continue 3
      done
    done
    unset "left[$room]"
    taken=$((taken + 1))
  done
done
[ ${#left[@]} -eq 0 ] || complain "the table of tests/style/include_check.sh is not acyclic; each of these includes another of them: ${!left[*]}"

while IFS=: read -r file line included; do
  [ -n "$file" ] || continue
  complain "$file:$line: <$included> in a header; include it in .cpp files only"
done < <([ ${#headers[@]} -eq 0 ] || includes "[<\"]($heavy)" "${headers[@]}")

while IFS=: read -r file line included; do
  [ -n "$file" ] || continue
  find_room "$file"
  has_word "$mpi_folders" "$found" || complain "$file:$line: <$included> outside of ${mpi_folders// / and }"
done < <([ ${#sources[@]} -eq 0 ] || includes '[<"]mpi\.h' "${sources[@]}")

while IFS= read -r header; do
  complain "$header: no '#pragma once'"
done < <([ ${#headers[@]} -eq 0 ] || grep -L '^#pragma once$' "${headers[@]}")

while read -r lines file; do
  [ "$lines" -le $longest ] || [ "$file" = total ] || complain "$file: $lines lines; files stay under $longest"
done < <([ ${#everything[@]} -eq 0 ] || wc -l "${everything[@]}")

if [ "$breaks" -gt 0 ]; then
  echo "include_check: $breaks breaks of the rules"
  exit 1
fi
echo "include_check: ${#sources[@]} source files keep the rules"
