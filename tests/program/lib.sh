# Shared by the tests of the whole program, which source it as `source lib.sh PROGRAM MPIRUN`.
# shellcheck shell=bash
program=$1 mpirun=$2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Otherwise all jobs of a user share one session directory, and a job that ends removes it while another one starts.
export OMPI_MCA_orte_tmpdir_base=$folder
# Plans are timed once for all runs of a test, so that compared runs use the same kernels.
export XDG_CACHE_HOME=$folder/cache
failures=0
# The folder for the output of a run: files out and err.
words=$folder

fail() {
  echo "FAILED: $1"
  sed 's/^/    /' "$words/out" "$words/err" 2>/dev/null | tail -40
  failures=$((failures + 1))
}

# run CODE SECONDS RANKS ARGUMENTS...: the job ends in time with this exit code; its output is in $words/{out,err}.
run() {
  local code=$1 limit=$2 ranks=$3 got=0 grace=1
  shift 3
  # When a process has failed, mpirun sleeps twice for this time in seconds, even if none is left. If all ranks reject their
  # input, no rank has anything to do in that time.
  case $code in 2 | 3 | 4 | 8) grace=0 ;; esac
  last="$ranks ranks: $*"
  # A single rank needs no launcher, which would take longer than many of these runs.
  local launcher=()
  [ "$ranks" -eq 1 ] || launcher=("$mpirun" -q --oversubscribe --bind-to none -np "$ranks")
  OMPI_MCA_odls_base_sigkill_timeout=$grace OMPI_MCA_orte_tmpdir_base=$words timeout -s KILL "$limit" "${launcher[@]}" "$program" "$@" \
    >"$words/out" 2>"$words/err" || got=$?
  [ "$got" -eq "$code" ] || fail "exit code $got instead of $code from $last"
}

# one_line PATTERN: standard error is one line that matches.
one_line() {
  local lines
  lines=$(grep -c . "$words/err")
  [ "$lines" -eq 1 ] || fail "$lines lines of error instead of 1 from $last"
  grep -qE -- "$1" "$words/err" || fail "no '$1' in the error of $last"
}

# await COMMAND...: until it succeeds, up to 30 s.
await() {
  local i
  for ((i = 0; i < 300; i++)); do
    if "$@"; then return 0; fi
    sleep 0.1
  done
  return 1
}

same_files() {
  cmp -s "$1" "$2" || fail "$1 and $2 differ"
}
same_tensors() {
  same_files "$1/model.safetensors" "$2/model.safetensors"
  same_files "$1/optimizer.safetensors" "$2/optimizer.safetensors"
}

finish() {
  if [ "$failures" -ne 0 ]; then
    echo "$failures checks failed"
    exit 1
  fi
  echo "all checks passed"
}

# A small run: 1,000 images in 8 steps per epoch, the last one incomplete.
# shellcheck disable=SC2034
small=(--dataset glyphs --train-limit 1000 --test-limit 200 --global-batch 128 --lr 0.05 --momentum 0.9 --threads 1
  --progress none)
