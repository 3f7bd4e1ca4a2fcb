#!/usr/bin/env bash
# docker_files_test.sh ROOT: tests both Dockerfiles without a Docker engine: CMake configures from exactly the files
# that they copy and that .dockerignore admits, and the files of the final image exist.
set -euo pipefail
root=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# shellcheck source=tests/launch/failures.sh
source "$(dirname "$0")/failures.sh" ''

# The context: the files admitted by .dockerignore, a list of exceptions after "*".
[ "$(head -n 1 "$root/.dockerignore")" = '*' ] || fail ".dockerignore does not begin with '*'"
mkdir "$folder/context"
while IFS= read -r name; do
  cp -r "$root/$name" "$folder/context/" || fail ".dockerignore names $name, which does not exist"
done < <(sed -n 's/^!//p' "$root/.dockerignore")

# copies FILE build|final: lines "SOURCE... TARGET" of a stage, without copies from another stage.
copies() {
  awk -v wanted="$2" '
    /^FROM/ { stage = / AS build$/ ? "build" : "final" }
    /^COPY/ && $2 !~ /^--from/ && stage == wanted { $1 = ""; print }' "$1"
}

for file in Dockerfile Dockerfile.cpu; do
  for stage in build final; do
    tree=$folder/$file-$stage
    mkdir "$tree"
    while read -ra words; do
      target=$tree/${words[-1]}
      unset 'words[-1]'
      for word in "${words[@]}"; do
        [ -e "$folder/context/$word" ] || { fail "$file: .dockerignore keeps $word out of the context"; continue; }
        if [[ $target == */. || $target == */ || $target == */./ ]]; then cp -r "$folder/context/$word" "$target"; else
          mkdir -p "$(dirname "$target")" && cp -rT "$folder/context/$word" "$target"
        fi
      done
    done < <(copies "$root/docker/$file" $stage)
  done
  build=$folder/$file-build
  # The sources of the GPU module are part of src; configuring it here would only take time.
  if ! cmake -S "$build" -B "$build/build" -G Ninja -DDDP_BUILD_TESTS=OFF -DDDP_CUDA=OFF >"$folder/log" 2>&1; then
    fail "$file: CMake does not configure from the files that it copies"
    tail -n 15 "$folder/log"
  fi
  for needed in launch/run launch/get-data launch/common.sh configs/quickstart.cfg LICENSE; do
    [ -e "$folder/$file-final/$needed" ] || fail "$file: the image lacks $needed"
  done
  grep -q '^ENTRYPOINT \["/' "$root/docker/$file" || fail "$file: the entry point is not an absolute path"
  grep -q -- '--uid 1000' "$root/docker/$file" || fail "$file: the user ID is not fixed to 1000"
done
[ "$failures" -eq 0 ] || exit 1
echo "the Dockerfiles copy everything that they build"
