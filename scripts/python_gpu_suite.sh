#!/usr/bin/env bash
# The Python package on a machine with a GPU and torch, and without a network. Two steps:
#
#   scripts/python_gpu_suite.sh pack            here: a wheel of heed and those of what the tests need, in build-python/gpu
#   scripts/python_gpu_suite.sh [part ...]      there: runs the parts, all within a limit; results go to $OUT
#
# Parts: suite (tests/python without transformers), transformers, examples, training (200 steps, a plot), host
# (bench/host_cost.py), compare and compare_backward (bench/compare.py). Default: all.
#   OUT=folder                 where summary.txt and results.tgz (logs, tables, plots) go (default build-python/gpu/out)
#   HEED_TORCH_PYTHON=python   the Python that has torch (default python3)
#   HEED_TOTAL_LIMIT=540       seconds for all parts together, shared out among them
#   HEED_PART_LIMIT=60         seconds for each part, where that is less than its share
#   HEED_TEST_WORKERS=8        processes of the tests
#   HEED_COMPARE_ARGUMENTS=... further arguments of bench/compare.py (--quick, --limit=60)
#
# Nothing is installed: wheels are unpacked into a folder that comes first on PYTHONPATH.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
root=$PWD
pack=$root/build-python/gpu
python=${HEED_TORCH_PYTHON:-python3}
all_parts=(suite transformers examples training host compare compare_backward)

# shellcheck source=scripts/gpu_parts.sh
source scripts/gpu_parts.sh

# --- here ------------------------------------------------------------------------------------------------------------
# Of the packages with compiled parts, wheels for every Python that torch 2.11 has; torch and NumPy are there already.
make_pack() {
  local wheel version
  wheel=$(compgen -G "$root/build-python/dist/heed-*.whl") || { say "no wheel; scripts/python_test.sh builds it"; return 1; }
  rm -rf "$pack"
  mkdir -p "$pack/wheels"
  cp "$wheel" "$pack/wheels"
  local pure=(pytest pytest-xdist execnet iniconfig pluggy packaging pygments exceptiongroup tomli typing_extensions tqdm
    requests urllib3 idna certifi filelock fsspec transformers huggingface-hub tokenizers safetensors
    httpx2 httpx httpcore httpcore2 truststore anyio sniffio h11 click typer rich markdown-it-py mdurl shellingham)
  local compiled=(regex pyyaml ml-dtypes charset-normalizer)
  .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$pack/wheels" \
    "${pure[@]}" || return 1
  for version in 3.10 3.11 3.12 3.13; do
    .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$pack/wheels" \
      --python-version "$version" --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 "${compiled[@]}" ||
      return 1
  done
  python=.venv/bin/python
  make_scratch || return 1
  unpack
  PYTHONPATH=$site .venv/bin/python -c 'import huggingface_hub.hf_api, pytest, transformers, xdist' ||
    { say "the packages are not complete"; return 1; }
  say "packed $(du -sh "$pack" | cut -f 1) into ${pack#"$root"/}"
}

# --- there -----------------------------------------------------------------------------------------------------------
# Wheels are zip files; those for this Python are unpacked.
unpack() {
  site=$SCRATCH/site
  "$python" - "$pack/wheels" "$site" <<'PYTHON'
import pathlib, sys, zipfile

wheels, site = map(pathlib.Path, sys.argv[1:])
here = f"cp{sys.version_info[0]}{sys.version_info[1]}"
for wheel in sorted(wheels.glob("*.whl")):
    _name, _version, _python, abi, _platform = wheel.stem.split("-")
    if abi in ("none", "abi3", here):
        with zipfile.ZipFile(wheel) as file:
            file.extractall(site)
PYTHON
  chmod +x "$site/heed/bin/heed"
}

tests() {
  local workers=()
  if "$python" -c 'import xdist' 2>/dev/null; then workers=(-n "${HEED_TEST_WORKERS:-8}"); fi
  "$python" -m pytest -q -rfEs -p no:cacheprovider "${workers[@]}" "$@"
}
suite() { tests "$root/tests/python" --ignore="$root/tests/python/test_transformers.py" --ignore="$root/tests/python/test_examples.py"; }
transformers() { tests "$root/tests/python/test_transformers.py"; }
examples() { tests "$root/tests/python/test_examples.py"; }
training() {
  local each
  for each in f32 bf16; do
    "$python" "$root/examples/python/19_train_a_transformer.py" --device=cuda --type="$each" --plots="$RESULTS" || return 1
  done
}
host() { "$python" "$root/bench/host_cost.py" --device=cuda --json="$RESULTS/host-cost.json" --markdown="$RESULTS/host-cost.md"; }
compare() {
  # shellcheck disable=SC2086
  "$python" "$root/bench/compare.py" --device=cuda --json="$RESULTS/compare.json" --markdown="$RESULTS/compare.md" \
    --plots="$RESULTS" --limit=$(($(seconds_left) * 9 / 10)) ${HEED_COMPARE_ARGUMENTS:-}
}
compare_backward() {
  # shellcheck disable=SC2086
  "$python" "$root/bench/compare.py" --backward --device=cuda --json="$RESULTS/compare-backward.json" \
    --markdown="$RESULTS/compare-backward.md" --plots="$RESULTS" --limit=$(($(seconds_left) * 9 / 10)) ${HEED_COMPARE_ARGUMENTS:-}
}

if [[ ${1:-} == pack ]]; then
  make_pack
  exit
fi
[[ -d $pack/wheels ]] || { say "no ${pack#"$root"/}/wheels: 'scripts/python_gpu_suite.sh pack' makes it, on a machine with a network"; exit 1; }
chosen=("$@")
((${#chosen[@]})) || chosen=("${all_parts[@]}")
for each in "${chosen[@]}"; do is_part "$each" || exit 2; done
export OUT=${OUT:-$pack/out}
mkdir -p "$OUT"
make_scratch || exit
unpack
export PYTHONPATH=$site HEED_CACHE_DIR=${HEED_CACHE_DIR:-${TMPDIR:-/tmp}/heed-gpu-suite-cache} HEED_SOURCE=$root PYTHONDONTWRITEBYTECODE=1
export -f tests "${all_parts[@]}"
export root python
{
  date --utc +%Y-%m-%d
  "$python" -c 'import torch; print("torch", torch.__version__, "CUDA", torch.version.cuda, torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU")'
  "$python" -m heed info
} >"$RESULTS/machine.txt" 2>&1
cat "$RESULTS/machine.txt"
run_parts "${chosen[@]}"
