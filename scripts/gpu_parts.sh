# shellcheck shell=bash
# What scripts/gpu_suite.sh and scripts/python_gpu_suite.sh share: parts that run within a limit and are summed up in $OUT.

limit=${HEED_PART_LIMIT:-540}  # seconds for each part

say() { printf 'gpu suite: %s\n' "$*"; }

# part <name> <command...>: within the limit, its output in $OUT/<name>.log; what it says last goes to the summary.
part() {
  local name=$1 begin=$SECONDS status=0 word
  shift
  say "$name"
  timeout --kill-after=10 "$limit" "$@" >"$OUT/$name.log" 2>&1 || status=$?
  case $status in
    0) word=passed ;;
    124 | 137) word="ran past its limit" ;;
    *) word="FAILED ($status)" ;;
  esac
  printf '%s: %s, %d s: %s\n' "$name" "$word" $((SECONDS - begin)) "$(tail -n 1 "$OUT/$name.log")" | tee -a "$OUT/summary.txt"
  return "$status"
}

# is_part <name>: one of all_parts, or the line that says which there are.
is_part() {
  [[ " ${all_parts[*]} " == *" $1 "* ]] || { say "'$1' is no part; there are: ${all_parts[*]}"; return 1; }
}

# run_parts <name> ...: each is a function; 1 if one of them failed.
run_parts() {
  local each failures=0
  rm -f "$OUT/summary.txt"
  for each in "$@"; do part "$each" bash -c "$each" || failures=$((failures + 1)); done
  cat "$OUT/summary.txt"
  return $((failures > 0))
}
