#!/usr/bin/env bash
# build_test.sh FOLDER OF THE PROJECT: launch/build and its progress, with a cmake that only writes down how it was called: which
# value DDP_CUDA gets after which other, that a failed build ends with its code and its errors, and what is shown of the steps.
set -u
project=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# shellcheck source=tests/launch/failures.sh
source "$(dirname "$0")/failures.sh" out
root="$folder/a copy"
mkdir -p "$root/launch" "$folder/bin"
cp "$project/launch/common.sh" "$project/launch/build" "$root/launch"
cat >"$folder/bin/cmake" <<'CMAKE'
#!/usr/bin/env bash
echo "$*" >>calls
case $* in
--preset*)
  mkdir -p build/release
  printf '%s\n' "$@" | sed -n 's/^-DDDP_CUDA=/DDP_CUDA:STRING=/p' >build/release/CMakeCache.txt
  ! grep -q DRIVER build/release/CMakeCache.txt || echo '-- The module is not built: this machine has no NVIDIA driver'
  ;;
--build*)
  [ ! -e fails ] || { printf '@1/4/1.0@ Building a.o\nFAILED: b.o\nb.cpp:1: error: no\n' && exit 1; }
  printf '@1/4/9.5@ Building a.o\n@2/4/41.0@ Building b.o\n@3/4/50@ Building c.o\nb.cpp:1: note: look\n@4/4/51@ Linking\n'
  ;;
esac
CMAKE
chmod +x "$folder/bin/cmake"
export PATH=$folder/bin:$PATH
# builds VALUE ARGUMENTS...: launch/build configures with this DDP_CUDA.
builds() {
  "$root/launch/build" "${@:2}" >"$folder/out" 2>&1 || fail "launch/build ${*:2} ends with $?"
  grep -q -- "-DDDP_CUDA=$1\$" <(tail -n 2 "$root/calls") || fail "DDP_CUDA is not $1 after launch/build ${*:2}: $(tail -n 2 "$root/calls")"
}
builds DRIVER --for-this-machine
grep -qx 'build: without the module for NVIDIA GPUs, as there is no driver here; launch/build builds it' "$folder/out" || fail "nothing said"
builds DRIVER --for-this-machine
builds AUTO --tests
grep -q -- '-DDDP_BUILD_TESTS=ON' "$root/calls" || fail "no tests"
builds DRIVER --for-this-machine
builds AUTO
mkdir -p "$root/build/release/src" && touch "$root/build/release/src/libddp_cuda.so"
builds AUTO --for-this-machine
for choice in ON OFF; do
  echo "DDP_CUDA:STRING=$choice" >"$root/build/release/CMakeCache.txt"
  builds $choice --for-this-machine
  builds $choice --tests
done
# A line of progress every 30 s, and all that is no step.
grep -A1 -x 'build: 2 of 4, about 0 min 41 s left' "$folder/out" | grep -qx 'b.cpp:1: note: look' || fail "the progress is not shown"
[ "$(grep -c ' of 4' "$folder/out")" -eq 1 ] || fail "more than one line of progress in 30 s"
touch "$root/fails"
if "$root/launch/build" >"$folder/out" 2>&1; then fail "a failed build ends with 0"; fi
grep -qx 'b.cpp:1: error: no' "$folder/out" || fail "the error is not shown"
if grep -q 'build: done' "$folder/out"; then fail "a failed build is done"; fi
[ "$failures" -eq 0 ] || { echo "$failures checks failed" && exit 1; }
