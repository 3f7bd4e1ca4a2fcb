# Runs a job under mpirun or srun for launch/run and the batch scripts, which source it first, because signals are
# handled from here on.
# shellcheck shell=bash
#
#   job_name=run                      # prefix of its messages
#   one_host=yes                      # the job runs only on this host
#   run_job mpirun -np 2 PROGRAM      # returns the exit code of the job
#
# - USR1, TERM and INT request the ranks to save and stop, at any time; `stops` counts them. The second TERM or INT ends
#   the job. HUP requests the ranks of this host to save and continue.
# - If a signal ended a rank, the last line names the rank, the host and the signal. Banners of the launcher about errors
#   that ddp_train has already reported are omitted.
# - A launcher without ranks, or with stopped ranks after the others have exited, is ended with exit code 7.
# - If the reader of the output has exited, as in `launch/run | head`, the ranks save and stop, and the exit code is 141.
# - If this script is killed, so is the job.

source "$(dirname "${BASH_SOURCE[0]}")/base.sh"
open_streams
job_name=job
one_host=no
program=  # of the ranks
stops=0
saves=0
job=      # PID of the launcher while it runs
launcher= # mpirun or srun
notes=    # a folder for the results of helper processes
unread=0  # 1 once the reader of the output has exited
stop_reason= # shown in place of the signal that the ranks receive
# Until the functions below exist.
trap 'stops=$((stops + 1))' TERM USR1
trap 'stops=$((stops + 1)); : "${stop_reason:=Ctrl-C}"' INT
trap 'saves=$((saves + 1))' HUP
# A message that nobody reads must not end this script, which would leave the job behind.
trap : PIPE
# From the helpers that copy the output.
trap : USR2

# Whether mpirun is MPICH's Hydra, which lacks Open MPI's settings and has other options for hosts.
mpirun_is_hydra() {
  [ -n "$hydra" ] || if mpirun --version 2>/dev/null | grep -qi hydra; then hydra=yes; else hydra=no; fi
  [ "$hydra" = yes ]
}
hydra=
# Without these settings Open MPI's mpirun may never detect the loss of a host.
# shellcheck disable=SC2034  # used by the scripts that source this
keep_alive=(--mca oob_tcp_keepalive_time 4 --mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3)

# Finds the running children of the launcher on this host, i.e. ranks and helpers: sets `children`, `stopped` to the
# stopped ones, `agents` to the number of those that reach other hosts, and `left` to the wait(2) status of the last zombie
# among them.
find_children() {
  local all=() below=() child name fields next
  children=() stopped=() left='' agents=0
  read -ra all <"/proc/$job/task/$job/children" || true
  for ((next = 0; next < ${#all[@]}; next++)); do
    child=${all[next]}
    # MPICH's mpirun has a process between itself and the ranks.
    read -r name <"/proc/$child/comm" || continue
    if [ "$name" = hydra_pmi_proxy ]; then
      below=()
      read -ra below <"/proc/$child/task/$child/children" || true
      all+=("${below[@]}")
      continue
    fi
    read -r fields <"/proc/$child/stat" || continue
    fields=${fields##*) }
    case $fields in
    Z* | X*)
      # What starts ranks has exit codes of its own.
      case $name in srun | ssh | rsh) fields=0 ;; esac
      [ "${left:-0}" -ne 0 ] || left=${fields##* }
      continue
      ;;
    [Tt]*) stopped+=("$child") ;;
    esac
    children+=("$child")
    case $name in ssh | rsh | orted | sh | bash) agents=$((agents + 1)) ;; esac
  done
} 2>/dev/null

# Repeats until the launcher has ended: it may not handle signals yet and lose early ones. From the third time on, the
# ranks are signalled directly too, since the launcher may be blocked on a pipe that nobody reads.
tell_until_it_ends() {
  local round
  for ((round = 0; ; round++)); do
    kill -USR1 "$job" 2>/dev/null || return 0
    if [ "$round" -ge 3 ] && [ "$launcher" = mpirun ]; then
      find_children
      [ ${#children[@]} -eq 0 ] || kill -USR1 "${children[@]}" 2>/dev/null || true
    fi
    sleep 1
  done
}

# say TEXT: a message for the user. On a terminal it takes the place of the progress bar, which is drawn again below it.
say() {
  if [ -t 2 ] && [ "${TERM:-dumb}" != dumb ]; then printf '\r\e[K' >&2 || true; fi
  printable "$job_name: $1" >&2 || true
}

teller=
request_stop() {
  [ -n "$job" ] || return 0
  if [ -z "$teller" ]; then
    # The terminal has written ^C behind the progress bar, which stays.
    if [ "$stop_reason" = Ctrl-C ] && [ -t 2 ]; then echo >&2 || true; fi
    [ "$unread" -ne 0 ] || say "asked all ranks to save and stop${stop_hint:-}"
    # launch/supervise passes every request on as USR1, and the reason in a file.
    if [ -z "$stop_reason" ] && [ -r "${DDP_STOP_REASON:-}" ]; then read -r stop_reason <"$DDP_STOP_REASON" || true; fi
    printf '%s\n' "$stop_reason" >"$notes/stop" || true
    tell_until_it_ends &
    teller=$!
  fi
}
# From a helper that copies the output: nobody reads it any more.
request_unread() {
  [ -n "$job" ] && [ -e "$notes/unread" ] && [ "$unread" -eq 0 ] || return 0
  unread=1 stop_reason=${stop_reason:-'a broken pipe (the reader of the output has exited)'}
  request_stop
}
# From the second request on. mpirun crashes if it is told to end while its ranks do, so ranks that have saved get the time until
# the third one.
request_end() {
  [ "$stops" -gt 1 ] && [ -n "$job" ] && [ -n "${stop_hint:-}" ] || return 0
  [ ! -e "$notes/saved" ] || [ "$stops" -gt 2 ] || return 0
  : >"$notes/end"
  kill -TERM "$job" 2>/dev/null || true
}
# mpirun exits on HUP and cannot forward it, so it is sent to the ranks, which are its children.
request_save() {
  [ -n "$job" ] || return 0
  local children stopped
  find_children
  [ ${#children[@]} -eq 0 ] || kill -HUP "${children[@]}" 2>/dev/null || true
}

trap 'stops=$((stops + 1)); request_stop' USR1
trap 'stops=$((stops + 1)); : "${stop_reason:=Ctrl-C}"; request_stop; request_end' INT
trap 'stops=$((stops + 1)); request_stop; request_end' TERM
trap request_unread USR2
trap 'saves=$((saves + 1)); request_save' HUP

signal_name() { kill -l "$1" 2>/dev/null || echo unknown; }

# Explains a signal to the user, for the last line.
signal_text() {
  local text
  text="signal $1 ($(signal_name "$1"))"
  case $1 in
  9) text+=", as the system sends it when memory runs out" ;;
  13) text+=": nobody reads what it writes any more" ;;
  esac
  echo "$text"
}

# show TEXT: writes it to standard error for filter_errors, on a terminal in place of the progress bar.
show() {
  if [ "$on_terminal" = yes ]; then printf '\r\e[K' >&2; fi
  { printf '%s\n' "$1" >&"$shown"; } 2>/dev/null && return 0
  # A file on a full disk is no reason to stop.
  [ -p "/proc/self/fd/$shown" ] || [ -S "/proc/self/fd/$shown" ] || return 0
  nobody_reads
}
# Once: the job is stopped by request_unread().
nobody_reads() {
  [ -e "$notes/unread" ] || { : >"$notes/unread" && kill -USR2 $$; } 2>/dev/null || true
}

# note_task FILE HOST RANK HOW: what srun reports of a task. The first one counts: srun ends the other tasks after it. The tasks of
# an mpirun that uses srun are its daemons.
note_task() {
  local number=
  case $4 in
  Killed) number=9 ;; Terminated) number=15 ;; 'Segmentation fault') number=11 ;; Aborted) number=6 ;;
  'Bus error') number=7 ;; 'Floating point exception') number=8 ;; 'Illegal instruction') number=4 ;;
  'User defined signal 1') number=10 ;; 'Broken pipe') number=13 ;;
  esac
  if [ "$launcher" = mpirun ]; then
    [ -s "$notes/lost" ] || echo "$2" >"$notes/lost"
  elif [ ! -s "$1" ] && [ ! -s "$notes/exited" ]; then
    if [ -n "$number" ]; then echo "$3 $2 $number" >"$1"; else echo "${4##* }" >"$notes/exited"; fi
  fi
}

# Filters the launcher's standard error: banners are suppressed if ddp_train or the last line reports the same. Writes
# "RANK HOST SIGNAL" to the file $1 for a rank ended by a signal, and creates the file $notes/saved if ddp_train stopped on
# request.
filter_errors() {
  trap '' INT TERM USR1 HUP PIPE
  local shown line block='' in_block=no bar='^-{60,}$' on_terminal=no reason
  # The complete output of the launcher.
  if [ -n "${DDP_MPI_VERBOSE:-}" ]; then
    cat >&2 && return 0
    nobody_reads
    exec cat >/dev/null
  fi
  exec {shown}>&2
  if [ -t 2 ] && [ "${TERM:-dumb}" != dumb ]; then on_terminal=yes; fi
  local killed='process rank ([0-9]+) with PID [0-9]+ on node ([^ ]+) exited on signal ([0-9]+)'
  local stopped='^ddp_train: (warning: )?(rank [0-9]+: )?stopped by '
  local task='^srun: error: ([^:]+): tasks? ([0-9]+)[^:]*: ([A-Z][A-Za-z ]*[a-z0-9])( \(core dumped\))?$'
  local failure='^srun: error: (Node failure on|Task launch for .* failed on node) ([^ :]+)($|: Communication connection failure)'
  # One for each request, which is repeated.
  local forwards='^mpirun: Forwarding signal [0-9]+ to job$'
  while IFS= read -r line || [ -n "$line" ]; do
    if [[ $line =~ $bar ]]; then
      if [ "$in_block" = no ]; then
        in_block=yes block=
        continue
      fi
      in_block=no
      if [[ $block =~ $killed ]]; then
        [ -s "$1" ] || echo "${BASH_REMATCH[1]} ${BASH_REMATCH[2]} ${BASH_REMATCH[3]}" >"$1"
      elif [[ $block =~ unable\ to\ reliably\ start\ one\ or\ more\ daemons ]]; then
        : >"$notes/unstarted"
        show "${block%$'\n'}"
      elif ! [[ $block =~ MPI_ABORT\ was\ invoked|a\ non-zero\ exit\ code|exited\ with\ non-zero\ status ]]; then
        show "${block%$'\n'}"
      fi
    elif [ "$in_block" = yes ]; then
      block+=$line$'\n'
    elif ! [[ $line =~ $forwards ]]; then
      if [[ $line =~ $task ]]; then note_task "$1" "${BASH_REMATCH[@]:1:3}"; fi
      if [[ $line =~ $failure ]]; then echo "${BASH_REMATCH[2]}" >"$notes/lost"; fi
      if [[ $line =~ $stopped ]]; then
        : >"$notes/saved"
        reason=
        { read -r reason <"$notes/stop"; } 2>/dev/null || true
        [ -z "$reason" ] || line=${line/stopped by SIGUSR1/stopped by $reason}
      fi
      show "$line"
    fi
  done
  [ "$in_block" = no ] || show "${block%$'\n'}"
}

# Copies the launcher's standard output. mpirun exits with 0 even if it cannot be written, so the reason is written to
# the file $1. It crashes if its output is closed, so that is read to its end.
copy_output() {
  trap '' INT TERM USR1 HUP
  local status=0
  LC_ALL=C cat 2>"$1.words" || status=$?
  [ "$status" -ne 0 ] || return 0
  # The second is what cat says where SIGPIPE is ignored.
  if [ "$status" -eq 141 ] || grep -q 'Broken pipe' "$1.words"; then
    nobody_reads
  else
    mv "$1.words" "$1"
  fi
  # The job continues.
  exec cat >/dev/null
}

# Whether this script has been killed, for its helpers: a killed process that nobody waits for keeps its PID.
script_is_gone() {
  local fields
  read -r fields <"/proc/$BASHPID/stat" || return 0
  read -r _ fields _ <<<"${fields##*) }"
  [ "$fields" != $$ ]
}
# Ends the job of a script that was killed. A second TERM would make mpirun leave its ranks, and srun passes the first one on
# to ranks that then save.
end_orphan() {
  local i children stopped left agents
  [ ${#tied[@]} -gt 0 ] || kill -TERM "$job" 2>/dev/null || true
  for ((i = 0; i < 10; i++)); do
    kill -0 "$job" 2>/dev/null || break
    sleep 0.5
  done
  if [ "$launcher" = mpirun ] && kill -0 "$job" 2>/dev/null; then
    find_children
    kill -KILL "$job" ${children[@]+"${children[@]}"} 2>/dev/null || true
  fi
  rm -rf "$notes"
}
# For srun, whose ranks are not its children. After a rank has failed it waits minutes for those of a host that is lost.
watch_srun() {
  trap '' INT TERM USR1 HUP
  local since_failure=0
  while kill -0 "$job" 2>/dev/null; do
    if script_is_gone; then
      end_orphan
      return
    fi
    [ ! -s "$notes/exited" ] && [ ! -s "$notes/killed" ] || since_failure=$((since_failure + 1))
    if [ "$since_failure" -gt "${DDP_SRUN_PATIENCE:-45}" ]; then
      : >"$notes/patience"
      kill -KILL "$job" 2>/dev/null || true
      return
    fi
    sleep 1
  done
}

# Ends a launcher that has no ranks left, or only stopped ones after others have exited, which no rank can detect. Not
# for srun, whose ranks are not its children. $1: seconds granted to a stopped rank.
watch_launcher() {
  trap '' INT TERM USR1 HUP
  local most=0 alone=0 stuck=0 apart=0 had_ranks=no children agents stopped left said=no place
  while kill -0 "$job" 2>/dev/null; do
    if script_is_gone; then
      end_orphan
      return 0
    fi
    find_children
    [ ${#children[@]} -le "$most" ] || most=${#children[@]}
    alone=$((${#children[@]} == 0 ? alone + 1 : 0))
    # It may be blocked on output, for example into a pager.
    place=
    { read -r place <"/proc/$job/wchan"; } 2>/dev/null || true
    case $place in *write* | wait_woken) [ -e "$notes/stop" ] || alone=0 ;; esac
    # The hosts that the remaining ones connect to may be out of reach.
    [ ${#children[@]} -le "$agents" ] || had_ranks=yes
    apart=$((${#children[@]} > 0 && ${#children[@]} == agents ? apart + 1 : 0))
    if [ "$had_ranks" = yes ] && [ "$apart" -ge 10 ]; then
      end_launcher "its ranks on this host have ended, and other hosts do not answer"
      return 0
    fi
    stuck=$((${#stopped[@]} > 0 && ${#stopped[@]} == ${#children[@]} && ${#children[@]} < most ? stuck + 1 : 0))
    # What it has started may have ended before anyone looked.
    if { [ "$most" -gt 0 ] || [ -n "$left" ]; } && [ "$alone" -ge 5 ]; then
      end_launcher "its ranks on this host are gone"
      return 0
    fi
    if [ "$stuck" -ge 20 ] && [ "$said" = no ]; then
      said=yes
      say "waiting for process ${stopped[*]}, which is stopped; the other ranks have ended"
    fi
    if [ "$stuck" -ge $(($1 * 2)) ]; then
      end_launcher "process ${stopped[*]} of it is stopped, the other ranks have ended"
      return 0
    fi
    sleep 0.5
  done
}
end_launcher() {
  # It may be about to exit by itself.
  sleep 0.5
  kill -0 "$job" 2>/dev/null || return 0
  echo "${left:-0} $1" >"$notes/ended"
  kill -TERM "$job" 2>/dev/null || true
  sleep 1
  [ ${#stopped[@]} -eq 0 ] || kill -KILL "${stopped[@]}" 2>/dev/null || true
  kill -KILL "$job" 2>/dev/null || true
}

# The value of --timeout among the arguments, in whole seconds.
timeout_of() {
  local word before='' seconds=600
  for word in "$@"; do
    case $before,$word in
    --timeout,*) seconds=$word ;;
    *,--timeout=*) seconds=${word#*=} ;;
    esac
    before=$word
  done
  seconds=${seconds%%.*}
  [[ $seconds =~ ^[0-9]{1,7}$ ]] && echo $((seconds < 1 ? 1 : seconds)) || echo 600
}

# Open MPI's mpirun accepts connections of daemons on all networks, also where the job has none. Sets `preload` to what makes
# it listen on the loopback network only (src/job/launch/loopback.cpp).
listen_on_loopback() {
  local library folder
  preload=()
  [ "$one_host" = yes ] && [ "$launcher" = mpirun ] && ! mpirun_is_hydra || return 0
  folder=$(dirname "$program")
  for library in "$folder/libddp_loopback.so" "$folder/../lib/ddp_train/libddp_loopback.so"; do
    [ -e "$library" ] || continue
    # The list of libraries is separated by spaces and colons.
    if [[ $library == *[\ :]* ]]; then
      ln -s "$(readlink -f "$library")" "$notes/libddp_loopback.so"
      library=$notes/libddp_loopback.so
    fi
    preload=(env "LD_PRELOAD=$library${LD_PRELOAD:+:$LD_PRELOAD}")
    return 0
  done
}

run_job() {
  local status=0 before filter filter_end watcher='' copier='' output=1 preload
  launcher=$(basename "$1")
  notes=$(mktemp -d) || return 3
  # Otherwise all jobs of a user on this host share one folder, and a job that ends removes it while another one starts.
  if [ "$one_host" = yes ]; then export OMPI_MCA_orte_tmpdir_base=${OMPI_MCA_orte_tmpdir_base:-$notes}; fi
  exec {filter_end}> >(filter_errors "$notes/killed")
  filter=$!
  # A terminal cannot run out of space.
  if [ ! -t 1 ]; then
    exec {output}> >(copy_output "$notes/unwritten")
    copier=$!
  fi
  listen_on_loopback
  # A separate session, so that Ctrl-C reaches only this script: on INT and TERM mpirun kills its ranks within 2 s,
  # whereas it forwards USR1.
  setsid ${tied[@]+"${tied[@]}"} ${preload[@]+"${preload[@]}"} "$@" >&"$output" 2>&"$filter_end" {filter_end}>&- &
  job=$!
  exec {filter_end}>&-
  [ "$output" -eq 1 ] || exec {output}>&-
  if [ "$launcher" = mpirun ]; then
    watch_launcher "$(timeout_of "$@")" &
    watcher=$!
  else
    watch_srun &
    watcher=$!
  fi
  [ "$stops" -eq 0 ] || request_stop
  [ "$saves" -eq 0 ] || request_save
  # A signal interrupts `wait`, whose result is then not that of the job.
  while :; do
    before=$stops,$saves,$unread status=0
    # Suppress bash's message that it was killed, since the last line says so.
    wait "$job" 2>/dev/null || status=$?
    [ "$before" != "$stops,$saves,$unread" ] || break
  done
  local ended=$job
  job=
  # A process that still holds the other end, such as a rank without a launcher, must not block this script, nor must a
  # stopped reader of the output.
  for ((i = 0; i < 20; i++)); do
    kill -0 "$filter" 2>/dev/null || { [ -n "$copier" ] && kill -0 "$copier" 2>/dev/null; } || break
    sleep 0.1
  done
  kill "$filter" $watcher $teller 2>/dev/null || true
  explain_status "$status" "$launcher" "$ended"
  status=$?
  rm -rf "$notes"
  return "$status"
}

# Prints the last line if the ranks cannot do so themselves. Returns the exit code of the job.
explain_status() {
  local rank host number
  # The reader of the output has exited, and the ranks have stopped for that reason, or had done their work already.
  if [ -e "$notes/unread" ] && [ "$stops" -eq 0 ]; then
    case $1 in 0 | 10 | 75 | 13[0-9] | 14[0-9]) return 141 ;; esac
  fi
  # MPICH's mpirun exits with the number of the signal that ended a rank; ddp_train has no such codes.
  case $1 in 9 | 10 | 11 | 13 | 15) set -- $((128 + $1)) "${@:2}" ;; esac
  # mpirun ends with 1 on TERM, and crashes if its ranks end at that moment.
  if [ -e "$notes/end" ] && { [ "$1" -eq 1 ] || [ "$1" -gt 128 ]; }; then
    [ ! -e "$notes/saved" ] || return 75
    say "ended at once by the second request; nothing was saved since the last checkpoint"
    return 130
  fi
  if [ -e "$notes/unstarted" ] && [ "$1" -ne 0 ] && [ "$stops" -eq 0 ]; then
    say "$2 could not start its daemons on all hosts, or lost a host while it did; see its messages above"
    return 7
  fi
  if [ -s "$notes/lost" ] && { [ "$1" -gt 128 ] || [ "$1" -eq 1 ]; }; then
    read -r host <"$notes/lost"
    say "lost host $host"
    return 7
  fi
  # Before a rank has installed its handlers, USR1 ends it; it had nothing to save.
  if [ "$stops" -gt 0 ] && { [ "$1" -eq 138 ] || [ "$1" -eq 143 ]; }; then
    [ -e "$notes/saved" ] || say "stopped before the run began; there was nothing to save"
    return 75
  fi
  if [ -s "$notes/ended" ]; then
    local left reason
    read -r left reason <"$notes/ended"
    if [ $((left & 127)) -ne 0 ]; then reason+="; one was ended by $(signal_text $((left & 127)))"; fi
    say "ended $2, which hung: $reason"
    [ $((left & 127)) -eq 0 ] && [ "$left" -ne 0 ] && return $((left >> 8))
    return 7
  fi
  if [ -e "$notes/patience" ]; then
    say "ended $2, which went on $((${DDP_SRUN_PATIENCE:-45})) s after a rank had failed: a host does not answer"
  fi
  # srun returns the highest code, which is that of the ranks it killed.
  if [ -s "$notes/exited" ]; then
    read -r number <"$notes/exited"
    [[ ! $number =~ ^[0-9]+$ ]] || return "$number"
  fi
  if [ -s "$notes/killed" ]; then
    read -r rank host number <"$notes/killed"
    say "rank $rank on host $host was ended by $(signal_text "$number")"
  elif [ "$1" -gt 128 ] && [ "$1" -lt 193 ]; then
    # Open MPI 4 is silent about a rank that dies before it has noted that all ranks run.
    say "$2 or a rank was ended by $(signal_text $(($1 - 128)))"
  elif [ "$1" -ge 193 ]; then
    say "$2 failed (code $1): it could not start the ranks, or lost a host; see its messages above"
    return 7
  fi
  # MPICH's mpirun sometimes ends with 0 after a signal, whatever its ranks end with.
  if [ "$1" -eq 0 ] && [ "$stops" -gt 0 ] && [ -e "$notes/saved" ]; then return 75; fi
  if [ "$1" -eq 0 ] && [ -e "$notes/unwritten" ]; then
    say "cannot write the standard output: $(sed 's/.*: //' "$notes/unwritten"); free disk space or give another"
    return 8
  fi
  return "$1"
}
