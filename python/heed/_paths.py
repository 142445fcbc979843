"""Where C and C++ programs find heed: the wheel holds the library, its headers and its CMake package."""

from __future__ import annotations

import os.path

_PACKAGE = os.path.dirname(__file__)


def get_include() -> str:
    """The folder for -I: <heed/heed.hpp> and <heed/heed.h> are below it."""
    return os.path.join(_PACKAGE, "include")


def get_library_dir() -> str:
    """The folder for -L and -rpath: libheed.so is in it."""
    return os.path.join(_PACKAGE, "lib")


def get_cmake_dir() -> str:
    """For CMake: -Dheed_DIR=$(python -c 'import heed; print(heed.get_cmake_dir())')."""
    return os.path.join(_PACKAGE, "lib", "cmake", "heed")
