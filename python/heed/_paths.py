"""Where C and C++ programs find heed: the wheel holds the library, its headers and its CMake package."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def get_include() -> str:
    """The folder for -I: <heed/heed.hpp> and <heed/heed.h> are below it."""
    return str(_PACKAGE / "include")


def get_library_dir() -> str:
    """The folder for -L and -rpath: libheed.so is in it."""
    return str(_PACKAGE / "lib")


def get_cmake_dir() -> str:
    """For CMake: -Dheed_DIR=$(python -c 'import heed; print(heed.get_cmake_dir())')."""
    return str(_PACKAGE / "lib" / "cmake" / "heed")
