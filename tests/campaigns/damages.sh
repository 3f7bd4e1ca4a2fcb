#!/usr/bin/env bash
# damages.sh PROGRAM MPIRUN [TRIALS]: damages a finished run folder at random, and evaluates, resumes or exports the
# run. Each time the damage must be reported by an error (code 8, or 2 for a configuration) or be harmless, with a
# bit-identical result. No command may take 10 s, and no intact file may be lost.
set -u
source "$(dirname "$0")/lib.sh"
trials=${3:-40}
run=$folder/run
whole=$folder/whole
alone "${tiny[@]}" --epochs 4 --output "$folder/source" --max-steps 9 || fail "the run to damage failed"
cp -a "$folder/source" "$whole"
alone "${tiny[@]}" --epochs 4 --output "$whole" --resume auto || fail "the undamaged run failed"
alone eval --json "${tiny[@]}" --output "$folder/source" || fail "eval"
right_values=$(sed 's/.*"val_loss"/"val_loss"/' "$folder/out")
mapfile -t names < <(cd "$folder/source" && find . -mindepth 1 | sort)

random_below() { echo $(((RANDOM << 15 | RANDOM) % $1)); }
# damage PATH: damages it in a random way and sets `what` to a description.
damage() {
  local path=$1 size
  size=$(stat -c %s "$path" 2>/dev/null || echo 0)
  way=$((RANDOM % 14))
  if [ -d "$path" ] && [ ! -L "$path" ]; then way=$((8 + RANDOM % 6)); fi
  if [ -L "$path" ]; then way=$((8 + RANDOM % 7)); fi
  [ "$size" -gt 0 ] || [ "$way" -gt 4 ] || way=5
  case $way in
  0 | 1 | 2) # change a byte
    what="byte changed"
    local at old new
    at=$(random_below "$size")
    old=$(od -An -tu1 -j "$at" -N 1 "$path" | tr -d ' ')
    new=$(((old + 1 + RANDOM % 255) % 256))
    # shellcheck disable=SC2059
    printf "\\$(printf %o "$new")" | dd of="$path" bs=1 seek="$at" conv=notrunc status=none
    ;;
  3) what="cut short" && truncate -s "$(random_below "$size")" "$path" ;;
  4) what="a block of zeros" && dd if=/dev/zero of="$path" bs=1 count=$((1 + RANDOM % 512)) seek="$(random_below "$size")" conv=notrunc status=none ;;
  5) what="garbage at the end" && head -c $((1 + RANDOM % 5000)) /dev/urandom >>"$path" ;;
  6) what="8 GiB, sparse" && truncate -s 8G "$path" ;;
  7) what="100 GiB, sparse" && truncate -s 100G "$path" ;;
  8) what="gone" && rm -rf "$path" ;;
  9) what="a FIFO" && rm -rf "$path" && mkfifo "$path" ;;
  10) what="a folder" && rm -rf "$path" && mkdir "$path" && echo text >"$path/file" ;;
  11) what="a link to /dev/zero" && rm -rf "$path" && ln -s /dev/zero "$path" ;;
  12) what="a link to itself" && rm -rf "$path" && ln -s "$(basename "$path")" "$path" ;;
  13) what="empty" && rm -rf "$path" && : >"$path" ;;
  14) what="a link to nothing" && rm -rf "$path" && ln -s checkpoints/step-00000099 "$path" ;;
  esac
}

# The files of the run with their modification times.
listing() { find "$run" \( -type d -printf '%P\n' -o -printf '%P %y %s %T@ %l\n' \) | sort; }

declare -A outcomes
slowest=0
for ((n = 1; n <= trials; n++)); do
  rm -rf "$run" && cp -a "$folder/source" "$run"
  name=${names[RANDOM % ${#names[@]}]}
  damage "$run/$name"
  command=$((RANDOM % 4))
  case $command in
  0) arguments=(eval --json "${tiny[@]}" --output "$run") ;;
  1) arguments=("${tiny[@]}" --epochs 4 --output "$run" --resume auto) ;;
  2) arguments=("${tiny[@]}" --epochs 4 --max-steps 0 --config "$run/config.cfg" --output "$run" --resume "$run/latest") ;;
  3) arguments=(export --run "$run" --checkpoint best --format safetensors --to "$folder/exported") ;;
  esac
  last="trial $n: $name $what; ${arguments[0]} ${arguments[*]: -2}"
  damaged=$(listing)
  begin=$(date +%s%N) got=0
  alone "${arguments[@]}" || got=$?
  took=$((($(date +%s%N) - begin) / 1000000))
  [ "$took" -lt 10000 ] || fail "$last: took $took ms"
  [ "$took" -le "$slowest" ] || slowest=$took
  case $got in
  2 | 8)
    outcome=refused
    [ "$(grep -c 'error:' "$folder/err")" -eq 1 ] || fail "$last: other than one line of error"
    [ "$(listing)" = "$damaged" ] || fail "$last: it was rejected but changed the folder"
    ;;
  0)
    outcome=harmless
    grep -q 'warning:' "$folder/err" && outcome="passed over"
    case $command in
    0) [ "$(sed 's/.*"val_loss"/"val_loss"/' "$folder/out")" = "$right_values" ] || [ "$outcome" = "passed over" ] ||
      fail "$last: eval says $(cat "$folder/out")" ;;
    1 | 2) for file in model.safetensors optimizer.safetensors evaluation.json; do
      cmp -s "$whole/latest/$file" "$run/latest/$file" || fail "$last: latest/$file differs"
    done ;;
    3) alone export --run "$folder/source" --checkpoint best --format safetensors --to "$folder/right"
      cmp -s "$folder/right" "$folder/exported" || fail "$last: the export differs" ;;
    esac
    ;;
  *) fail "$last: exit code $got" ;;
  esac
  outcomes[$outcome]=$((${outcomes[$outcome]:-0} + 1))
  [ $((n % 500)) -ne 0 ] || echo "$n damages, $failures failures"
done
echo "the slowest command took $slowest ms"
for outcome in "${!outcomes[@]}"; do echo "$outcome: ${outcomes[$outcome]} of $trials"; done
finish
