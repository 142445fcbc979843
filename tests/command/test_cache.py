"""heed cache: the compiled CUDA kernels on disk. No GPU and no NVRTC is needed: the kernels here are made by hand."""

import hashlib
import json
import resource
import signal
import struct
import subprocess

import pytest
from conftest import HEED, UNSUPPORTED, USAGE, VALID, not_when_instrumented


def entry(kernel, arch="sm_90a", code=b"\x7fELF code", nvrtc=(13, 0)):
    """(file name, bytes) as src/cuda/cache_entry.hpp lays them out."""
    source = hashlib.sha256(f"{kernel} {arch}".encode()).hexdigest()
    resources = {"registers": 168, "shared_bytes": 1024, "local_bytes": 0, "spill_bytes": 0,
                 "serialized_wgmma": False, "remarks": ""}  # fmt: skip
    meta = json.dumps(
        {"kernel": kernel, "arch": arch, "source": source, "nvrtc": nvrtc, "resources": resources}
    ).encode()
    checksum = hashlib.sha256(struct.pack(">QQ", len(meta), len(code)) + meta + code).digest()
    bytes_ = b"heedkrn1" + struct.pack("<QQ", len(meta), len(code)) + checksum + meta + code
    return f"{source}-{nvrtc[0]}.{nvrtc[1]}.kernel", bytes_


@pytest.fixture
def cache(tmp_path):
    """A cache folder with two kernels."""
    folder = tmp_path / "cache"
    folder.mkdir()
    for kernel in ("forward_d64", "forward_d128"):
        name, content = entry(kernel)
        (folder / name).write_bytes(content)
    return folder


def where(folder):
    return {"HEED_CACHE_DIR": str(folder)}


def kernels(ok, folder):
    return [each["kernel"] for each in json.loads(ok("cache", "ls", "--json", env=where(folder)))["kernels"]]


def test_ls_shows_each_kernel_with_its_resources(ok, cache):
    text = ok("cache", "ls", env=where(cache))
    assert "forward_d128" in text and "forward_d64" in text
    assert "sm_90a" in text and "168" in text and "13.0" in text
    assert text.splitlines()[-1].startswith("2 kernels, ")
    assert ok("cache", "ls", f"-dir={cache}") == text


def test_ls_of_a_folder_that_is_not_there_is_empty(ok, tmp_path):
    assert ok("cache", "ls", env=where(tmp_path / "none")) == f"0 kernels, 0 B in {tmp_path / 'none'}\n"


def test_ls_takes_a_filter(ok, cache):
    text = ok("cache", "ls", "-filter=d64*sm_90", env=where(cache))
    assert "forward_d64" in text and "forward_d128" not in text


def test_ls_names_a_damaged_file(ok, cache):
    name, content = entry("forward_d64")
    (cache / name).write_bytes(content[:-1])
    assert f"damaged, will be compiled again: {name}" in ok("cache", "ls", env=where(cache))


def test_ls_as_json(ok, cache):
    data = json.loads(ok("cache", "ls", "--json", env=where(cache)))
    assert data["folder"] == str(cache)
    assert data["bytes"] == sum(each.stat().st_size for each in cache.iterdir())
    assert data["kernels"][0]["kernel"] == "forward_d128"
    assert data["kernels"][0]["resources"]["registers"] == 168


def test_clear_removes_kernels_and_leaves_other_files(ok, cache):
    (cache / "notes.txt").write_text("mine")
    assert ok("cache", "clear", env=where(cache)).startswith("removed 2 files, ")
    assert [each.name for each in cache.iterdir()] == ["notes.txt"]


def test_clear_leaves_what_is_only_named_alike(ok, cache):
    key = "0" * 64 + "-13.0.kernel"
    others = ["my.kernel", "my.kernel.txt", "0-13.0.kernel", key + ".bak", key + ".lock.txt", key + ".abc.tmp", "x" + key,
              key.replace("13.0", "13"), "g" * 64 + "-13.0.kernel"]  # fmt: skip
    for name in others:
        (cache / name).write_text("mine")
    for name in (key, key + ".lock", key + ".aB3def.tmp"):
        (cache / name).write_text("left by a process that was killed")
    assert ok("cache", "clear", env=where(cache)).startswith("removed 5 files, ")
    assert sorted(each.name for each in cache.iterdir()) == sorted(others)
    assert ok("cache", "ls", env=where(cache)).startswith("0 kernels")


def test_an_export_that_fails_leaves_the_pack_that_was_there(cache, tmp_path):
    pack = tmp_path / "kernels.pack"
    pack.write_bytes(b"the one before")

    def few_bytes_in_a_file():
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = subprocess.run([HEED, "cache", "export", str(pack)], env=where(cache), preexec_fn=few_bytes_in_a_file,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == USAGE and f"kernel pack {pack}: cannot be written" in done.stderr, done.stderr
    assert pack.read_bytes() == b"the one before"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["cache", "kernels.pack"]


def test_a_pack_carries_kernels_to_another_machine(ok, cache, tmp_path):
    pack, there = tmp_path / "kernels.pack", tmp_path / "there"
    assert ok("cache", "export", str(pack), env=where(cache)) == f"wrote 2 kernels to {pack}\n"
    assert ok("cache", "import", str(pack), env=where(there)) == f"took 2 kernels from {pack} into {there}\n"
    assert kernels(ok, there) == kernels(ok, cache)
    assert {each.name for each in there.iterdir()} == {each.name for each in cache.iterdir()}


def test_export_takes_a_filter(ok, cache, tmp_path):
    pack, there = tmp_path / "kernels.pack", tmp_path / "there"
    ok("cache", "export", str(pack), "-filter=d64", env=where(cache))
    ok("cache", "import", str(pack), env=where(there))
    assert kernels(ok, there) == ["forward_d64"]


def test_a_damaged_pack_is_refused_whole(refused, ok, cache, tmp_path):
    pack, there = tmp_path / "kernels.pack", tmp_path / "there"
    ok("cache", "export", str(pack), env=where(cache))
    content = pack.read_bytes()
    for spoiled in (content[:-1], content[:-1] + b"?", content + b"x", b"something else"):
        pack.write_bytes(spoiled)
        assert str(pack) in refused(USAGE, "cache", "import", str(pack), env=where(there))
        assert not there.exists()


def test_import_says_when_the_folder_cannot_be_written(refused, ok, cache, tmp_path):
    pack, there = tmp_path / "kernels.pack", tmp_path / "there"
    ok("cache", "export", str(pack), env=where(cache))
    there.write_text("a file")
    assert "cannot be written" in refused(USAGE, "cache", "import", str(pack), env=where(there))


@pytest.mark.parametrize("words, text", [
    ([], "ls|clear|prewarm"),
    (["lst"], "did you mean 'ls'"),
    (["export"], "the file is missing"),
    (["ls", "x"], "ls takes no file"),
    (["clear", "-filter=x"], "-filter : clear does not take it"),
    (["ls", "-j4"], "-j : ls does not take it"),
    (["prewarm", "-profile=x"], "flash, inference, all"),
    (["prewarm", "-sm=90", "-filter=d3000"], "no kernel of profile all matches"),
    (["prewarm", "-sm=75"], "from 80 on"),
    (["prewarm", "-sm=90,"], "from 80 on"),
    (["prewarm", "-sm=90", "-j=-1"], "-j"),
    (["import", "no such file"], "No such file"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_with_the_rule(refused, tmp_path, words, text):
    assert text in refused(USAGE, "cache", *words, env=where(tmp_path / "cache"))


def test_an_empty_cache_cannot_be_exported(refused, tmp_path):
    text = refused(USAGE, "cache", "export", str(tmp_path / "pack"), env=where(tmp_path / "cache"))
    assert "prewarm" in text
    assert not (tmp_path / "pack").exists()


@not_when_instrumented
def test_prewarm_says_what_it_did(heed, tmp_path):
    done = heed("cache", "prewarm", "-sm=90", "-profile=flash", "-filter=bf16_d64*sm_90", "-j2",
                env=where(tmp_path / "cache"), timeout=600)  # fmt: skip
    if done.returncode == UNSUPPORTED:
        pytest.skip(done.stderr)
    assert done.returncode == VALID, done.stderr
    assert "of profile flash for sm 90" in done.stdout
    assert " 0 failed" in done.stdout
    kernels = int(done.stdout.split()[1])
    assert 10 <= kernels < 40
    listed = json.loads(heed("cache", "ls", "--json", env=where(tmp_path / "cache")).stdout)["kernels"]
    assert len(listed) == kernels
    assert all("_bf16_d64" in each["kernel"] for each in listed)


def test_prewarm_refuses_a_folder_that_cannot_be_written(refused):
    assert "/dev/null cannot be written" in refused(USAGE, "cache", "prewarm", "-sm=90", "-dir=/dev/null")


def test_prewarm_without_nvrtc_says_what_to_install(refused, tmp_path):
    text = refused(UNSUPPORTED, "cache", "prewarm", "-sm=90", f"-dir={tmp_path}",
                   env={"HEED_NVRTC_PATH": str(tmp_path / "none.so")})  # fmt: skip
    assert "pip install nvidia-cuda-nvrtc" in text
    assert str(tmp_path / "none.so") in text


def test_info_tells_the_driver_nvrtc_and_the_cache(ok, cache):
    data = json.loads(ok("info", "--json", env=where(cache)))["cuda"]
    assert data["driver"]["present"] is (data["driver"]["missing"] == "")
    assert data["nvrtc"]["present"] is (data["nvrtc"]["missing"] == "")
    assert data["cache"] == {
        "folder": str(cache),
        "kernels": 2,
        "bytes": sum(each.stat().st_size for each in cache.iterdir()),
    }
    text = ok("info", env=where(cache))
    assert f"2 kernels, 0.0 MB in {cache}" in text


def test_info_says_what_to_install(ok, tmp_path):
    text = ok("info", env={"HEED_NVRTC_PATH": str(tmp_path / "none.so")})
    assert "pip install nvidia-cuda-nvrtc" in text
