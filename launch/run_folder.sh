# The options, the run folder and the newest checkpoint of a run, for launch/supervise and the batch scripts.
# shellcheck shell=bash
#
#   options=$scratch/options          # what `ddp_train ARGUMENTS --dump-config` prints
#   output=$(run_folder)
#   newest_step                       # of $output

options='' output=''

# option NAME: its value.
option() { sed -n "s/^$1 *= *\(.*[^ ]\)  *# .*/\1/p" "$options" | tail -n 1; }

# The run folder of this job (--output may contain %j, %A, %a and %%).
run_folder() {
  local text
  text=$(option output)
  if [ -z "$text" ]; then
    text=$(option model)
    if [[ $text == *.onnx ]]; then text=$(basename "$text" .onnx); fi
    text=runs/$text-$(option dataset)
  fi
  text=${text//'%%'/$'\1'} text=${text//'%j'/${SLURM_JOB_ID:-}} text=${text//'%A'/${SLURM_ARRAY_JOB_ID:-}}
  text=${text//'%a'/${SLURM_ARRAY_TASK_ID:-}}
  echo "${text//$'\1'/%}"
}

# The step of the newest checkpoint, or nothing.
newest_step() {
  local name
  name=$(readlink "$output/latest" 2>/dev/null) || return 0
  name=${name##*step-}
  [[ ! $name =~ ^[0-9]+$ ]] || echo $((10#$name))
}
