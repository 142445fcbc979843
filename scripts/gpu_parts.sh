# shellcheck shell=bash
# What scripts/gpu_suite.sh and scripts/python_gpu_suite.sh share: parts that run within a limit of time and are summed up
# in $OUT. That folder gets two files, whole after every part: summary.txt, and results.tgz with all that the parts write
# into $RESULTS. $SCRATCH is a folder for what nobody wants to keep.

total_limit=${HEED_TOTAL_LIMIT:-540}  # seconds for all parts together
part_limit=${HEED_PART_LIMIT:-}       # seconds for each part, where that is less than its share
least_share=5                         # a part that would have fewer seconds is not begun

say() { printf 'gpu suite: %s\n' "$*"; }

# make_scratch: $SCRATCH and $RESULTS in it; both are gone in the end.
make_scratch() {
  SCRATCH=$(mktemp --directory) || return 1
  RESULTS=$SCRATCH/results
  mkdir "$RESULTS"
  export SCRATCH RESULTS
  trap 'rm -rf "$SCRATCH"' EXIT
}

# seconds_left: of the part that runs, with some for what comes after its last command; at least 1.
seconds_left() {
  local left=$((PART_END - EPOCHSECONDS - 2))
  echo $((left > 1 ? left : 1))
}
export -f seconds_left

# pack_results: what there is until now.
pack_results() {
  tar --create --gzip --file="$OUT/results.tgz.new" --directory="$SCRATCH" results && mv "$OUT/results.tgz.new" "$OUT/results.tgz"
}

# part <name> <seconds> <command...>: its output in $RESULTS/<name>.log; what it says last goes to the summary.
part() {
  local name=$1 seconds=$2 begin=$SECONDS status=0 word log=$RESULTS/$1.log
  shift 2
  say "$name, at most $seconds s"
  PART_END=$((EPOCHSECONDS + seconds)) timeout --kill-after=5 "$seconds" "$@" >"$log" 2>&1 || status=$?
  case $status in
    0) word=passed ;;
    124 | 137) word="STOPPED, its time was over" ;;
    *) word="FAILED ($status)" ;;
  esac
  printf '%s: %s, %d s: %s\n' "$name" "$word" $((SECONDS - begin)) "$(sed '/^[[:space:]]*$/d' "$log" | tail -n 1)" | tee -a "$OUT/summary.txt"
  pack_results
  return "$status"
}

# is_part <name>: one of all_parts, or the line that says which there are.
is_part() {
  # shellcheck disable=SC2154  # of the suite
  [[ " ${all_parts[*]} " == *" $1 "* ]] || { say "'$1' is no part; there are: ${all_parts[*]}"; return 1; }
}

# run_parts <name> ...: each is a function; 1 if one of them failed or was not reached. Each has an equal share of the time
# that is left: what one does not need, those behind it have.
run_parts() {
  local each failures=0 left=$# share end=$((SECONDS + total_limit))
  rm -f "$OUT/summary.txt" "$OUT/results.tgz"
  for each in "$@"; do
    share=$(((end - SECONDS) / left--))
    if [[ -n $part_limit ]] && ((share > part_limit)); then share=$part_limit; fi
    if ((share < least_share)); then
      printf '%s: NOT REACHED, the %d s were over\n' "$each" "$total_limit" | tee -a "$OUT/summary.txt"
      failures=$((failures + 1))
      continue
    fi
    part "$each" "$share" bash -c "$each" || failures=$((failures + 1))
  done
  cat "$OUT/summary.txt"
  return $((failures > 0))
}
