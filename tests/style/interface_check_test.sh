#!/usr/bin/env bash
# Proves that interface_check.sh finds what it is for: a good tree passes, and each break of a rule fails by itself.
set -euo pipefail
check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/interface_check.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# put FILE LINES...: a file of the tree.
put() {
  mkdir -p "$(dirname "$tree/$1")"
  printf '%s\n' "${@:2}" >"$tree/$1"
}
# finds WORDS: the check fails and prints these words.
finds() {
  if bash "$check" "$tree" >"$tree/out" 2>&1 || ! grep -qF "$1" "$tree/out"; then
    echo "FAILED: not found: $1"
    sed 's/^/    /' "$tree/out"
    failures=$((failures + 1))
  fi
}

mapfile -t eleven < <(seq -f '  virtual void f%g() = 0;' 11)
put src/base/a.h 'class A {' '  virtual ~A() = default;' "${eleven[@]}" '};' 'class B;' 'struct C : A {' '  virtual void g();' '};'
put src/backend/staging.cpp 'if (queue.on_host()) return;'
put src/backend/device_queue.h '  virtual bool on_host() const = 0;'
if ! bash "$check" "$tree" >"$tree/out" 2>&1; then
  echo "FAILED: a good tree does not pass"
  sed 's/^/    /' "$tree/out"
  failures=$((failures + 1))
fi
put src/base/b.h 'class Wide final {' "${eleven[@]}" '  virtual int g() const;' '};'
finds 'src/base/b.h: class Wide declares 12 virtual functions'
rm "$tree/src/base/b.h"
put src/train/step.cpp '' 'if (backend_->queue().on_host()) return;'
finds 'src/train/step.cpp:2: calls on_host()'
rm -r "$tree/src"
mkdir "$tree/src"
finds 'there is no source file'

[ "$failures" -eq 0 ] && echo "interface_check finds what it should"
