# Sourced first by launch/run, launch/supervise and the batch scripts: standard streams, the folder for temporary files, and
# programs that end together with the script.
# shellcheck shell=bash
#
#   open_streams                      # those that the caller has closed
#   choose_temporary_folder run       # sets TMPDIR; "run" is the prefix of its messages
#   setsid ${tied[@]+"${tied[@]}"} mpirun ... &     # gets SIGTERM when this script dies, also by SIGKILL

# Files that bash opens, such as pipes, would otherwise get the numbers of closed streams.
open_streams() {
  [ -e /proc/self/fd/0 ] || exec 0</dev/null
  [ -e /proc/self/fd/1 ] || exec 1>/dev/null
  [ -e /proc/self/fd/2 ] || exec 2>/dev/null
}

# MiB that Open MPI and PMIx need for their files, for any number of ranks: 8, and some room.
temporary_need=12

# free_in FOLDER: MiB that its file system has left for users, or nothing if it does not say.
free_in() {
  local free
  free=$(stat -f -c '%a * %S' "$1" 2>/dev/null) || return 0
  [[ ! $free =~ ^[0-9]+\ \*\ [0-9]+$ ]] || echo $(((free) >> 20))
}
# writable FOLDER: whether files can be created in it.
writable() {
  local made
  made=$(mktemp -d -p "$1" 2>/dev/null) || return 1
  rmdir "$made" 2>/dev/null || true
}

# choose_temporary_folder PREFIX: TMPDIR, or if nothing can be created in it, another common folder. Ends the script with code 3
# if there is none, or if it is full.
choose_temporary_folder() {
  local wanted=${TMPDIR:-/tmp} folder free
  for folder in "$wanted" /dev/shm /tmp /var/tmp; do
    free=$(free_in "$folder")
    # Files cannot be created either where not a single block is left.
    if [ -d "$folder" ] && [ -n "$free" ] && [ "$free" -lt "$temporary_need" ]; then
      [ "$folder" = "$wanted" ] || continue
      echo "$1: TMPDIR $(printable "$wanted") has $free MiB free, and MPI needs $temporary_need MiB there; free some space, or set" \
        "TMPDIR to another folder" >&2 || true
      exit 3
    fi
    writable "$folder" || continue
    # A container that is started with --read-only has no other folder than /dev/shm, and nothing has to be changed there.
    if [ "$folder" != "$wanted" ] && [ -n "${TMPDIR:-}" ]; then
      echo "$1: warning: cannot create files in TMPDIR $(printable "$wanted"); they are in $folder instead" >&2 || true
    fi
    export TMPDIR=$folder
    return 0
  done
  echo "$1: cannot create files in TMPDIR $(printable "$wanted"), nor in /dev/shm, /tmp or /var/tmp; set TMPDIR to another folder" >&2 || true
  exit 3
}

# printable TEXT: with ? in place of control characters, which would otherwise change the terminal.
printable() { printf '%s\n' "${1//[[:cntrl:]]/?}"; }

# The kernel then sends SIGTERM to what is started this way when this script has ended. job.sh has a second way, for systems
# whose setpriv lacks the option.
tied=()
# shellcheck disable=SC2034  # used by the scripts that source this
if setpriv --pdeathsig TERM true 2>/dev/null; then tied=(setpriv --pdeathsig TERM); fi
