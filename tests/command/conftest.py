"""The command from outside: what a person types, what comes back."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEED = os.environ.get("HEED", str(ROOT / "build" / "bin" / "heed"))

# Instrumented builds are many times slower: what takes seconds is left to the others.
not_when_instrumented = pytest.mark.skipif(os.environ.get("HEED_TEST_SCALE") == "small", reason="too slow here")

VALID, WRONG, USAGE, UNSUPPORTED = 0, 1, 2, 3


def run_heed(*arguments, env=None, timeout=120):
    environment = {key: value for key, value in os.environ.items() if key == "HEED_CACHE_DIR" or not key.startswith("HEED_")}
    environment.update(env or {})
    return subprocess.run(
        [HEED, *arguments], capture_output=True, text=True, timeout=timeout, env=environment, stdin=subprocess.DEVNULL
    )


@pytest.fixture
def heed():
    """heed("fwd", "-s=16") -> the finished process."""
    return run_heed


@pytest.fixture
def ok():
    """Like heed, for what must end with exit code 0; returns what it printed."""

    def run(*arguments, **options):
        done = run_heed(*arguments, **options)
        assert done.returncode == VALID, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def refused():
    """refused(code, ...) -> the one error text; nothing may have been printed as a result."""

    def run(code, *arguments, **options):
        done = run_heed(*arguments, **options)
        assert done.returncode == code, done.stdout + done.stderr
        assert done.stderr.startswith("heed: "), done.stderr
        assert done.stdout == "", done.stdout
        return done.stderr

    return run


@pytest.fixture
def fake_gpu(tmp_path):
    """The environment of a machine whose driver shows a Hopper GPU, and whose kernels compute nothing in a millisecond."""
    fakes = pathlib.Path(HEED).resolve().parents[1] / "tests" / "fake_cuda"
    nvrtc = fakes / "libheed_fake_nvrtc.so"
    if not ((fakes / "libcuda.so.1").exists() and nvrtc.exists()):
        pytest.skip("the tests are not built")
    return {"LD_LIBRARY_PATH": str(fakes), "FAKE_CUDA_TIMINGS": "1000000", "HEED_NVRTC_PATH": str(nvrtc),
            "FAKE_NVRTC_VERSION": "13.0", "FAKE_NVRTC_COMPILES": "1", "HEED_CACHE_DIR": str(tmp_path / "cache")}  # fmt: skip


SMALL = ("-b=1", "-h=2", "-s=33", "-d=16", "-warmup=0", "-repeat=1")


def pytest_collection_modifyitems(config, items):
    """Under a sanitizer everything takes many times as long: of every three tests one is run there. HEED_TEST_SHARD=2/4
    leaves the others to the other three of four runs."""
    chosen = items[::3] if os.environ.get("HEED_TEST_SCALE") == "small" else list(items)
    shard, shards = map(int, os.environ.get("HEED_TEST_SHARD", "1/1").split("/"))
    chosen = chosen[shard - 1 :: shards]
    kept = set(chosen)
    config.hook.pytest_deselected(items=[each for each in items if each not in kept])
    items[:] = chosen
