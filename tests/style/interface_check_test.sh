#!/usr/bin/env bash
# Tests interface_check.sh: a good tree passes, and each violation of a rule fails.
# shellcheck source=tests/style/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh" interface_check.sh

mapfile -t eleven < <(seq -f '  virtual void f%g() = 0;' 11)
put src/base/a.h 'class A {' '  virtual ~A() = default;' "${eleven[@]}" '};' 'class B;' 'struct C : A {' '  virtual void g();' '};'
put src/backend/staging.cpp 'if (queue.on_host()) return;'
put src/backend/device_queue.h '  virtual bool on_host() const = 0;'
passes "a good tree"
put src/base/b.h 'class Wide final {' "${eleven[@]}" '  virtual int g() const;' '};'
rejects 'src/base/b.h: class Wide declares 12 virtual functions'
rm "$tree/src/base/b.h"
mapfile -t four < <(seq -f '  virtual void f%g() = 0;' 4)
put src/backend/op.h 'class Op {' '  virtual ~Op() = default;' "${four[@]:0:3}" '};'
passes "an operator with three"
put src/backend/op.h 'class Op {' '  virtual ~Op() = default;' "${four[@]}" '};'
rejects 'src/backend/op.h: class Op declares 4 virtual functions; 3 at most'
rm "$tree/src/backend/op.h"
put src/train/step.cpp '' 'if (backend_->queue().on_host()) return;'
rejects 'src/train/step.cpp:2: calls on_host()'
rm "$tree/src/train/step.cpp"
put src/commands/plan.cpp '  fmt::print("\x1b[2J");  // fmt::print("")' 'fmt::print(file, "{}", name);'
passes "an escape sequence of our own, and a file"
put src/commands/plan.cpp 'if (named) fmt::print("{}\n", name);'
rejects 'src/commands/plan.cpp:1: calls fmt::print()'
rm -r "$tree/src"
mkdir "$tree/src"
rejects 'there is no source file'

summary
