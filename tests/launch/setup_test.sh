#!/usr/bin/env bash
# setup_test.sh ROOT: tests launch/setup on systems where it cannot install packages, and what it installs where it can.
# The machine's packages are used; apt-get, sudo and CMake's missing packages are simulated.
# shellcheck disable=SC2016  # scripts in single quotes
set -euo pipefail
root=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

# A copy that CMake configures quickly, with nothing to compile.
mkdir "$folder/tree"
cp -r "$root/CMakePresets.json" "$root/cmake" "$root/launch" "$folder/tree/"
sed '/^ *add_subdirectory/d' "$root/CMakeLists.txt" >"$folder/tree/CMakeLists.txt"

# commands NAME: a folder with the commands of this machine except apt, dpkg and sudo.
commands() {
  local tool
  mkdir -p "$folder/$1"
  for tool in bash env sed awk grep tr sort head tail mkdir rm mktemp cat dirname basename id nproc uname c++ cc g++ gcc as ld ar \
    ranlib cmake ninja mpirun mpicxx mpicc curl wget perl ps python3 ip expr touch test true; do
    [ -z "$(type -P $tool)" ] || ln -sf "$(type -P $tool)" "$folder/$1/$tool"
  done
  # A CMake that does not find the packages in HIDDEN.
  rm -f "$folder/$1/cmake"
  cat >"$folder/$1/cmake" <<WRAPPER
#!/usr/bin/env bash
hidden=()
for name in \${HIDDEN:-}; do hidden+=(-DCMAKE_DISABLE_FIND_PACKAGE_\$name=ON); done
exec "$(command -v cmake)" "\$@" -DDDP_CUDA=OFF "\${hidden[@]}"
WRAPPER
  chmod +x "$folder/$1/cmake"
}

# expect CODE PATTERN COMMANDS ARGUMENTS...: launch/setup with only these commands exits with CODE, and its output
# matches.
expect() {
  local code=$1 pattern=$2 got=0
  rm -rf "$folder/tree/build"
  env PATH="$folder/$3" "$folder/tree/launch/setup" "${@:4}" >"$folder/out" 2>&1 </dev/null || got=$?
  if [ "$got" -ne "$code" ] || ! grep -qE -- "$pattern" "$folder/out"; then
    echo "FAILED: exit code $got instead of $code, or no line with '$pattern', from: $3 setup ${*:4} (hidden: ${HIDDEN:-})"
    sed 's/^/    /' "$folder/out"
    failures=$((failures + 1))
  fi
}
says() { grep -qE -- "$1" "$folder/out" || { echo "FAILED: no line with '$1'" && cat "$folder/out" && failures=$((failures + 1)); }; }
silent() { if grep -qE -- "$1" "$folder/out"; then echo "FAILED: '$1'" && cat "$folder/out" && failures=$((failures + 1)); fi; }

# --- Without apt-get: it succeeds if nothing is missing, and otherwise lists exactly the missing packages at once.
commands foreign
expect 0 'nothing is missing' foreign
expect 0 'nothing is missing' foreign --tests
HIDDEN="spdlog GTest" expect 3 '^setup: missing: spdlog GoogleTest' foreign --tests
says '^  apt +libspdlog-dev libgtest-dev libgmock-dev *$'
says '^  dnf +spdlog-devel gtest-devel gmock-devel *$'
says '^  conda +spdlog gtest gmock *$'
says '^  Spack +spdlog googletest *$'
# GoogleTest is not required for building without tests.
HIDDEN=GTest expect 0 'nothing is missing' foreign
got=0
(cd "$folder/tree" && HIDDEN=GTest PATH="$folder/foreign" cmake -S . -B build/plain -G Ninja) >"$folder/out" 2>&1 || got=$?
[ "$got" -eq 0 ] || { echo "FAILED: CMake requires GoogleTest" && tail "$folder/out" && failures=$((failures + 1)); }
says 'tests are not built'
rm "$folder/foreign/ninja"
expect 3 '^setup: missing: ninja;' foreign
says '^  apt +ninja-build *$'

# --- With apt-get, as root or with sudo: only missing packages are installed; without permission, they are listed.
commands debian
printf '#!/usr/bin/env bash\nexit 1\n' >"$folder/debian/dpkg-query"
cat >"$folder/debian/apt-get" <<APT
#!/usr/bin/env bash
echo "apt-get \$*" >>"$folder/apt"
APT
chmod +x "$folder"/debian/{dpkg-query,apt-get}
: >"$folder/apt"
expect 0 'nothing is missing' debian
[ ! -s "$folder/apt" ] || { echo "FAILED: it installs present packages" && cat "$folder/apt" && failures=$((failures + 1)); }
printf '#!/usr/bin/env bash\necho 0\n' >"$folder/id-root"
printf '#!/usr/bin/env bash\necho 1000\n' >"$folder/id-user"
chmod +x "$folder"/id-*
ln -sf "$folder/id-root" "$folder/debian/id"
# The stand-in installs nothing, so the package is still missing afterwards.
HIDDEN=spdlog expect 3 'still missing after installing their packages: spdlog' debian
cp "$folder/apt" "$folder/out"
says 'install .* libspdlog-dev$'
silent 'libpng|libdnnl'
ln -sf "$folder/id-user" "$folder/debian/id"
: >"$folder/apt"
HIDDEN=spdlog expect 3 '^setup: missing: spdlog;' debian
[ ! -s "$folder/apt" ] || { echo "FAILED: it installs without permission" && failures=$((failures + 1)); }
printf '#!/usr/bin/env bash\nif [ "$1" = -n ]; then exit 1; fi\nexit 1\n' >"$folder/debian/sudo"
chmod +x "$folder/debian/sudo"
HIDDEN=spdlog expect 3 '^setup: missing: spdlog;' debian
printf '#!/usr/bin/env bash\nif [ "$1" = -n ]; then shift; fi\nexec "$@"\n' >"$folder/debian/sudo"
HIDDEN=spdlog expect 3 'still missing after' debian
grep -q 'libspdlog-dev' "$folder/apt" || { echo "FAILED: sudo was not used" && failures=$((failures + 1)); }

# --- An unsuitable oneDNN is rejected with one line that gives the remedy.
for refused in "2.5 OMP" "4.0 OMP" "3.2 SYCL" "3.2 THREADPOOL"; do
  read -r version threads <<<"$refused"
  if cmake -Ddnnl_VERSION="$version" -DDNNL_CPU_RUNTIME="$threads" -P "$root/cmake/DdpOneDnn.cmake" >"$folder/out" 2>&1; then
    echo "FAILED: oneDNN $refused is accepted" && failures=$((failures + 1))
  fi
  says "oneDNN $version"
done
for taken in "2.6.3 OMP" "3.13.2 SEQ"; do
  read -r version threads <<<"$taken"
  cmake -Ddnnl_VERSION="$version" -DDNNL_CPU_RUNTIME="$threads" -P "$root/cmake/DdpOneDnn.cmake" >"$folder/out" 2>&1 ||
    { echo "FAILED: oneDNN $taken is rejected" && cat "$folder/out" && failures=$((failures + 1)); }
done

[ "$failures" -eq 0 ] || exit 1
echo "launch/setup installs or lists what is missing"
