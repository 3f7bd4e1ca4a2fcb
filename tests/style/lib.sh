# Shared by the tests of the style checks, which source it as `source lib.sh NAME_check.sh`: they build small trees and
# run the check on them.
# shellcheck shell=bash
set -euo pipefail
check=$(dirname "${BASH_SOURCE[0]}")/$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
tree=$folder/tree

# put FILE LINES...: writes a file of the tree.
put() {
  mkdir -p "$(dirname "$tree/$1")"
  printf '%s\n' "${@:2}" >"$tree/$1"
}
# failed MESSAGE: reports a failure with the output of the check.
failed() {
  echo "FAILED: $1"
  sed 's/^/    /' "$folder/out"
  failures=$((failures + 1))
}
# passes WHAT: the check accepts the tree.
passes() { bash "$check" "$tree" >"$folder/out" 2>&1 || failed "$1 does not pass"; }
# rejects MESSAGES...: the check rejects the tree with all these messages.
rejects() {
  local message
  if bash "$check" "$tree" >"$folder/out" 2>&1; then failed "accepted, not rejected with: $1" && return; fi
  for message; do grep -qF "$message" "$folder/out" || failed "not found: $message"; done
}
# summary: the last line of a test, and its exit code.
summary() { [ "$failures" -eq 0 ] && echo "$(basename "$check") detects all violations"; }
