"""The package as installed: what importing costs, the command, what C++ programs find in it, and its types."""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

import heed

PACKAGE = pathlib.Path(heed.__file__).parent
INSTALLED = (PACKAGE / "lib" / "libheed.so").exists()
installed = pytest.mark.skipif(not INSTALLED, reason="heed runs from its source tree, not from a wheel")


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **options)


def python(code):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = run(sys.executable, "-c", code, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_is_quick_and_imports_no_library():
    code = """
import sys, time
before = set(sys.modules)
begin = time.perf_counter()
import heed
print(time.perf_counter() - begin)
print([name for name in ("numpy", "torch", "ml_dtypes", "transformers") if name in sys.modules])
"""
    python("import heed")  # leaves its byte code behind, as an installer does
    results = [python(code).splitlines() for _ in range(10)]
    assert all(line == "[]" for _, line in results)
    assert min(float(seconds) for seconds, _ in results) <= 0.1


def test_numpy_is_enough():
    code = """
import sys
sys.modules["torch"] = sys.modules["ml_dtypes"] = None
import heed, numpy as np
q = np.ones((1, 2, 1, 8), np.float32)
print(heed.attention(q, q, q)[0, 0, 0, 0])
"""
    assert python(code) == "1.0"


def test_every_public_name_is_there():
    for name in heed.__all__:
        assert getattr(heed, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        heed.no_such_name


def test_every_public_function_has_its_words():
    for name in heed.__all__:
        thing = getattr(heed, name)
        assert thing.__doc__, name


@installed
def test_the_command_is_there_under_both_names():
    by_module = run(sys.executable, "-m", "heed", "mask", "b", "-s=2", "-s_k=3", "--plain")
    assert (by_module.returncode, by_module.stdout) == (0, "11.\n111\n"), by_module.stderr
    script = pathlib.Path(sys.executable).parent / "heed"
    if script.exists():  # beside this Python, where the wheel was installed into its environment
        by_script = run(script, "mask", "b", "-s=2", "-s_k=3", "--plain")
        assert by_script.stdout == by_module.stdout
    refused = run(sys.executable, "-m", "heed", "fwd", "-h=6", "-h_k=4")
    assert refused.returncode == 2 and "multiple" in refused.stderr


PROGRAM = """
#include <heed/heed.hpp>
#include <cstdio>
#include <vector>
int main() {
  const std::vector<float> q(64, 0.5f), v(64, 3.0f);
  std::vector<float> o(64);
  heed::forward({.q = {q.data(), heed::f32, {1, 4, 2, 8}}, .k = {q.data(), heed::f32, {1, 4, 2, 8}},
                 .v = {v.data(), heed::f32, {1, 4, 2, 8}}, .o = {o.data(), heed::f32, {1, 4, 2, 8}}});
  std::printf("%g\\n", o[0]);
}
"""
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(outside LANGUAGES CXX)
find_package(heed 0.1 REQUIRED)
add_executable(outside main.cpp)
target_link_libraries(outside PRIVATE heed::heed)
"""


@installed
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_a_cxx_program_takes_heed_from_the_package(tmp_path):
    (tmp_path / "main.cpp").write_text(PROGRAM)
    library = heed.get_library_dir()
    flags = ["-std=c++20", f"-I{heed.get_include()}", f"-L{library}", "-lheed", f"-Wl,-rpath,{library}"]
    built = run("c++", "main.cpp", "-o", "outside", *flags, cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    assert run(tmp_path / "outside").stdout == "3\n"


@installed
@pytest.mark.skipif(shutil.which("cmake") is None, reason="no CMake")
def test_a_cmake_project_takes_heed_from_the_package(tmp_path):
    (tmp_path / "main.cpp").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    made = run("cmake", "-S", ".", "-B", "b", f"-Dheed_DIR={heed.get_cmake_dir()}", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    built = run("cmake", "--build", "b", cwd=tmp_path)
    assert built.returncode == 0, built.stdout + built.stderr
    assert run(tmp_path / "b" / "outside").stdout == "3\n"


@pytest.mark.skipif("HEED_WHEEL" not in os.environ, reason="HEED_WHEEL names no wheel")
def test_the_wheel_holds_one_of_each_and_nothing_of_the_machine_it_was_built_on():
    with zipfile.ZipFile(os.environ["HEED_WHEEL"]) as wheel:
        names = wheel.namelist()
        assert len([name for name in names if "libheed" in name]) == 1
        for name in ("heed/_native.abi3.so", "heed/bin/heed", "heed/include/heed/heed.h", "heed/py.typed"):
            assert name in names
        assert not [name for name in names if "__pycache__" in name or name.endswith((".cpp", ".a"))]
        source = os.environ["HEED_SOURCE"].encode()
        assert not [name for name in names if name.endswith((".cmake", ".pc")) and source in wheel.read(name)]
        metadata = next(wheel.read(name).decode() for name in names if name.endswith("METADATA"))
    assert "Requires-Python: >=3.10" in metadata
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist") and "extra ==" not in line]
    assert not required, "heed forces no library upon anyone"
