#!/usr/bin/env bash
# recording_cost.sh BEFORE AFTER MPIRUN [PAIRS]: training steps of two builds of ddp_train, such as one without a recording
# and one with it, in turns within a second, since other programs come and go. Prints the median of the ratios of the pairs.
set -u
before=$(realpath "$1") after=$(realpath "$2") mpirun=$3 pairs=${4:-60}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
options=(--dataset glyphs --model lenet --batch-per-rank 128 --threads 1)
coproc OLD { "$mpirun" -q --bind-to none -np 1 "$before" bench "${options[@]}" --on-request 2>/dev/null; }
old=("${OLD[@]}")
eval "exec 3<&${old[0]} 4>&${old[1]}"
{ coproc NEW { "$mpirun" -q --bind-to none -np 1 "$after" bench "${options[@]}" --on-request 2>/dev/null; }; } 2>/dev/null
eval "exec 5<&${NEW[0]} 6>&${NEW[1]}"
milliseconds() { sed 's/.*"step_ms":\([0-9.]*\).*/\1/'; }
for ((pair = 0; pair < pairs; pair++)); do
  echo >&4
  read -r a <&3
  echo >&6
  read -r b <&5
  awk -v a="$(milliseconds <<<"$a")" -v b="$(milliseconds <<<"$b")" 'BEGIN { print b / a }'
done | sort -g | awk '{ v[NR] = $1 } END { printf "%d pairs: median %+.2f%%, quartiles %+.2f%% and %+.2f%%\n", NR,
  100 * (v[int((NR + 1) / 2)] - 1), 100 * (v[int((NR + 3) / 4)] - 1), 100 * (v[int((3 * NR + 1) / 4)] - 1) }'
exec 4>&- 6>&-
