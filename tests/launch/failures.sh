# Sourced by the tests of the launch scripts, after `folder` is set: failures are counted and shown with what was last said.
#
#   source "$(dirname "$0")/failures.sh" said      # fail TEXT prints TEXT and the last lines of $folder/said
#   [ "$failures" -eq 0 ] || exit 1
# shellcheck shell=bash
# shellcheck disable=SC2154  # folder is the caller's
failures=0
said_file=${1:-}
fail() {
  echo "FAILED: $1"
  if [ -n "$said_file" ] && [ -e "$folder/$said_file" ]; then sed 's/^/    /' "$folder/$said_file" | tail -n 40; fi
  failures=$((failures + 1))
}
