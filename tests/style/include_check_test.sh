#!/usr/bin/env bash
# Tests include_check.sh: a good tree passes, and each violation of a rule fails.
# shellcheck source=tests/style/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh" include_check.sh

new_tree() {
  tree=$(mktemp -d -p "$folder")
  put src/base/error.h '#pragma once' '#include <string>'
  put src/backend/tensor.h '#pragma once' '#include "base/error.h"'
  put src/backend/cpu/cpu_backend.cpp '#include "backend/cpu/pool/pool.h"' '#include "backend/tensor.h"'
  put src/backend/cpu/pool/pool.h '#pragma once' '#include "backend/tensor.h"'
  put src/backend/cpu/pool/pool_kernels.h '#pragma once'
  put src/backend/cpu/onednn/onednn.cpp '#include "backend/cpu/pool/pool.h"' '#include "backend/tensor.h"'
  put src/comm/mpi.cpp '#include <mpi.h>' '#include "backend/tensor.h"' '#include "comm/mpi.h"'
  put src/comm/mpi.h '#pragma once' '// says nothing of #include "train/step.h"'
  put src/data/sources/idx.cpp '#include "data/images/png.h"'
  put src/data/images/png.h '#pragma once'
  put src/commands/pictures.cpp '#include "data/images/png.h"'
  put src/commands/steps.cpp '#include "comm/mpi.h"' '#include <nlohmann/json.hpp>'
  put src/main.cpp '#include "train/step/step.h"' '#include "commands/train.h"'
  put src/commands/train.h '#pragma once' '#include "train/step/step.h"'
}
# finds MESSAGE FILE LINES...: with this file in the tree the check fails, with this message about its folder.
finds() {
  new_tree
  put "${@:2}"
  rejects "$1" "${2%/*}"
}

new_tree
passes "a good tree"
finds 'src/backend may not include "comm/mpi.h"' src/backend/back.cpp '#include "comm/mpi.h"'
finds 'src/base may not include "backend/tensor.h"' src/base/up.cpp '#include "backend/tensor.h"'
finds 'src/train/loop may not include "commands/train.h"' src/train/loop/up.h '#pragma once' '#include "commands/train.h"'
finds 'src/comm may not include "options/options.h"' src/comm/deep/o.cpp '#  include   "options/options.h"'
finds 'may not include "nowhere/a.h"' src/commands/x.cpp '#include "nowhere/a.h"'
finds 'src/data/images may not include "data/sources/idx.h"' src/data/images/up.cpp '#include "data/sources/idx.h"'
finds 'src/data/sources may not include "data/pipeline/loader.h"' src/data/sources/up.cpp '#include "data/pipeline/loader.h"'
finds 'src/optim/rules may not include "optim/optimizer.h"' src/optim/rules/up.h '#pragma once' '#include "optim/optimizer.h"'
finds 'src/backend may not include "optim/optimizer.h"' src/backend/up.cpp '#include "optim/optimizer.h"'
finds 'src/backend may not include "backend/cpu/pool/pool.h"' src/backend/down.cpp '#include "backend/cpu/pool/pool.h"'
finds 'src/train may not include "backend/cpu/pool/pool.h"' src/train/down.cpp '#include "backend/cpu/pool/pool.h"'
finds 'src/backend/cpu/pool may not include "backend/cpu/onednn/onednn.h"' src/backend/cpu/pool/up.cpp '#include "backend/cpu/onednn/onednn.h"'
finds 'is inside of src/backend/cpu/pool; other folders include its pool.h' src/backend/cpu/onednn/in.cpp '#include "backend/cpu/pool/pool_kernels.h"'
finds 'src/comm: does not include src/backend' src/comm/mpi.cpp '#include <mpi.h>' '#include "comm/mpi.h"'
finds 'is not named from src/' src/comm/near.cpp '#include "mpi.h"'
finds 'is not named from src/' src/comm/up.cpp '#include "../base/error.h"'
for header in nlohmann/json.hpp boost/program_options.hpp spdlog/spdlog.h mpi.h zlib.h dnnl.hpp; do
  finds "<$header> in a header" src/comm/heavy.h '#pragma once' "#include <$header>"
done
finds 'src/train/step may not include "train/loop/trainer.h"' src/train/step/up.cpp '#include "train/loop/trainer.h"'
finds 'src/train/inputs may not include "train/plan/plan.h"' src/train/inputs/up.cpp '#include "train/plan/plan.h"'
finds 'src/train may not include "train/loop/trainer.h"' src/train/up.cpp '#include "train/loop/trainer.h"'
finds 'outside of comm and job' src/train/step/mpi.cpp '#include <mpi.h>'
finds "no '#pragma once'" src/base/bare.h 'int x;'
finds 'not in the table' src/novel/a.cpp 'int x;'
# Tables in which rooms include each other, also by a grant without the rooms below.
new_tree
tables=$check
check=$folder/include_check.sh
for cycle in "train/parallel\]='|&train/loop |" "backend\]='|&comm |"; do
  sed "s|\[$cycle" "$tables" >"$check"
  rejects 'is not acyclic'
done
check=$tables
mapfile -t long < <(seq 501)
finds '501 lines' src/base/long.cpp "${long[@]/#/// }"
finds '501 lines' tests/unit/base/long_test.cpp "${long[@]/#/// }"
tree=$folder/empty
mkdir -p "$tree/src"
if bash "$check" "$tree" >/dev/null 2>&1; then
  echo "FAILED: a tree without source files passes"
  failures=$((failures + 1))
fi

summary
