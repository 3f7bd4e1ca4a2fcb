# Shared by the scripts in this folder, which source it. Sets `root`, the folder of the repository or, once installed,
# PREFIX/share/ddp_train.
# shellcheck shell=bash
# shellcheck disable=SC2034  # used where this is sourced
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# find_program: the program that was built here, or installed together with this script.
find_program() {
  local installed=$root/../../bin/ddp_train
  if [ ! -e "$root/build/release/src/ddp_train" ] && [ -x "$installed" ]; then
    readlink -f "$installed"
  else
    echo "$root/build/release/src/ddp_train"
  fi
}

# die CODE MESSAGE...: one line on standard error, and the exit code (docs/errors.md).
die() {
  echo "$(basename "$0"): ${*:2}" >&2
  exit "$1"
}

# print_help: prints the comment at the head of the script.
print_help() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; }

# usage_error MESSAGE...
usage_error() { die 2 "$*; see $(basename "$0") --help"; }

# quietly FILE COMMAND...: writes the output of the command to FILE and shows the end of it only on failure.
quietly() {
  local log=$1 status=0
  shift
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 || status=$?
  if [ "$status" -ne 0 ]; then
    tail -n 40 "$log" >&2
    echo "$(basename "$0"): '$*' failed; see $log" >&2
  fi
  return "$status"
}

# python_package NAME VERSION: downloads a Python package once, unpacks it under build/packages and prints its folder.
python_package() {
  local folder=$root/build/packages/$1-$2
  if [ ! -d "$folder" ]; then
    python3 -m pip --version >/dev/null 2>&1 || die 3 "needs Python's pip; on Debian: apt-get install python3-pip"
    rm -rf "$folder.part"
    mkdir -p "$folder.part"
    quietly "$folder.log" python3 -m pip download --quiet --no-deps --dest "$folder.part" "$1==$2" >&2 ||
      die 3 "the package $1 $2 could not be downloaded"
    python3 -m zipfile -e "$folder.part"/*.whl "$folder.part"
    rm "$folder.part"/*.whl
    mv "$folder.part" "$folder"
  fi
  echo "$folder"
}

# show_progress: reads the lines of ninja whose status is "@FINISHED/TOTAL/SECONDS@ " and prints one line of progress, which
# is replaced on a terminal and otherwise repeated every 30 s; other lines, such as errors, as they are.
show_progress() {
  local line finished total seconds left shown=0 open=no
  while IFS= read -r line; do
    if [[ ! $line =~ ^@([0-9]+)/([0-9]+)/([0-9]+)[.0-9]*@ ]]; then
      [ $open = no ] || echo
      open=no
      [ "$line" = 'ninja: no work to do.' ] || printf '%s\n' "$line"
      continue
    fi
    finished=${BASH_REMATCH[1]} total=${BASH_REMATCH[2]} seconds=${BASH_REMATCH[3]}
    left=''
    if [ "$finished" -gt 0 ] && [ "$seconds" -ge 5 ]; then
      left=$((seconds * (total - finished) / finished))
      left=", about $((left / 60)) min $((left % 60)) s left"
    fi
    if [ -t 1 ]; then
      printf '\r\033[Kbuild: %d of %d%s' "$finished" "$total" "$left"
      open=yes
    elif [ "$seconds" -ge $((shown + 30)) ]; then
      shown=$seconds
      printf 'build: %d of %d%s\n' "$finished" "$total" "$left"
    fi
  done
  [ $open = no ] || printf '\r\033[K'
}

# build PRESET: builds a configured preset, with progress; shows errors as they come.
build() {
  NINJA_STATUS='@%f/%t/%e@ ' cmake --build --preset "$1" -j "$(nproc)" | show_progress
}

# count_host_ranks LIST: the ranks that --hosts A:8,B:8 adds up to.
count_host_ranks() {
  local entry sum=0 entries=()
  IFS=, read -ra entries <<<"$1"
  for entry in "${entries[@]}"; do
    [[ $entry =~ ^[A-Za-z0-9._-]+(:[1-9][0-9]{0,4})?$ ]] || usage_error "--hosts '$1' is not a list such as a:8,b:8"
    [[ $entry == *:* ]] || entry+=:1
    sum=$((sum + ${entry#*:}))
  done
  echo "$sum"
}

# raise_file_limit RANKS: mpirun hangs if it cannot open its files and those of the ranks on this host.
raise_file_limit() {
  local most needed=$((40 + 5 * $1))
  most=$(ulimit -Hn)
  if [ "$most" != unlimited ] && [ "$most" -lt "$needed" ]; then
    die 3 "the limit of $most open files (ulimit -n) is too low for $1 ranks, which need about $needed; raise it to 1024"
  fi
  [ "$(ulimit -Sn)" = unlimited ] || [ "$(ulimit -Sn)" -ge "$needed" ] || ulimit -Sn "$needed" || true
}

# thread_limit: the smallest limit of processes and threads of this container, job or user, or nothing if there is none.
thread_limit() {
  local line group root least=''
  least=$(ulimit -u)
  while IFS=: read -r _ line group; do
    case $line in
    '') root=/sys/fs/cgroup ;;
    *pids*) root=/sys/fs/cgroup/pids ;;
    *) continue ;;
    esac
    while :; do
      { read -r line <"$root$group/pids.max"; } 2>/dev/null || line=max
      if [ "$line" != max ] && { [ "$least" = unlimited ] || [ "$line" -lt "$least" ]; }; then least=$line; fi
      [ -n "${group%/}" ] || break
      group=${group%/*}
    done
  done </proc/self/cgroup
  [ "$least" = unlimited ] || echo "$least"
}

count_gpus() { if command -v nvidia-smi >/dev/null; then nvidia-smi -L 2>/dev/null | grep -c '^GPU ' || true; else echo 0; fi; }
# Physical cores, but not more than this process may use.
count_cores() {
  local physical allowed
  allowed=$(nproc)
  physical=$(lscpu -p=CORE,SOCKET 2>/dev/null | grep -v '^#' | sort -u | wc -l) || physical=$allowed
  if [ "$physical" -ge 1 ] && [ "$physical" -lt "$allowed" ]; then echo "$physical"; else echo "$allowed"; fi
}
# Ranks on this machine: one per GPU, or per core without GPUs.
default_ranks() {
  local gpus
  gpus=$(count_gpus)
  if [ "$gpus" -ge 1 ]; then echo "$gpus"; else count_cores; fi
}
