# What the scripts in this folder share; they source it. Sets `root`, the folder of the repository.
# shellcheck shell=bash
# shellcheck disable=SC2034  # used where this is sourced
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# die CODE MESSAGE...: one line on standard error, and the exit code (docs/errors.md).
die() {
  echo "$(basename "$0"): ${*:2}" >&2
  exit "$1"
}

# print_help: the comment at the head of the script is its help.
print_help() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

# usage_error MESSAGE...
usage_error() { die 2 "$*; see $(basename "$0") --help"; }

# quietly FILE COMMAND...: keeps the command's words in FILE and shows their end only where it fails.
quietly() {
  local log=$1 status=0
  shift
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 || status=$?
  if [ "$status" -ne 0 ]; then
    tail -n 40 "$log" >&2
    echo "$(basename "$0"): '$*' failed; all of its output lies in $log" >&2
  fi
  return "$status"
}

# build PRESET: configured before; one line of progress on a terminal, silence elsewhere unless it fails.
build() {
  local jobs
  jobs=$(nproc)
  if [ -t 1 ]; then
    NINJA_STATUS="[%f/%t, %e s] " cmake --build --preset "$1" -j "$jobs"
  else
    cmake --build --preset "$1" -j "$jobs" -- --quiet
  fi
}
