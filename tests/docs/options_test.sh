#!/usr/bin/env bash
# options_test.sh PROGRAM ROOT: checks that docs/options.md is what the program generates from its option table.
set -euo pipefail
if ! diff -u "$2/docs/options.md" <("$1" --help markdown); then
  echo "docs/options.md is out of date; run: ddp_train --help markdown >docs/options.md"
  exit 1
fi
