"""Objects that heed has never heard of, by __dlpack__ and __cuda_array_interface__. (test_torch and test_cuda have more.)"""

import sys

import numpy as np
import pytest
from conftest import Data

import heed


class Speaks:
    """Knows DLPack and nothing else; an old one does not know max_version."""

    def __init__(self, array, old=False):
        self.array, self.old, self.asked = array, old, []

    def __dlpack__(self, **options):
        self.asked.append(options)
        if self.old and "max_version" in options:
            raise TypeError("unexpected keyword argument 'max_version'")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.fixture
def qkv():
    return Data(1).qkv()


@pytest.mark.parametrize("old", [False, True])
def test_dlpack_objects_are_read_in_place_and_given_back(qkv, old):
    if old and np.lib.NumpyVersion(np.__version__) < "1.24.0":
        pytest.skip("this NumPy is older")
    expected = heed.attention(*qkv)
    objects = [Speaks(each, old) for each in qkv]
    counts = [sys.getrefcount(each) for each in qkv]
    for _ in range(10):
        result = heed.attention(*objects)
        assert isinstance(result, np.ndarray)
        np.testing.assert_array_equal(result, expected)
        with pytest.raises(ValueError):
            heed.attention(objects[0], Speaks(qkv[1][:1], old), objects[2])
    assert [sys.getrefcount(each) for each in qkv] == counts
    assert all("stream" not in asked for each in objects for asked in each.asked), "on the CPU there is none"


def test_an_output_by_dlpack_is_written(qkv):
    out = np.full(qkv[0].shape, np.nan, np.float32)
    given = Speaks(out)
    assert heed.attention(*qkv, out=given) is given
    np.testing.assert_array_equal(out, heed.attention(*qkv))


def test_a_read_only_output_is_refused_by_every_protocol(qkv):
    out = np.full(qkv[0].shape, 7, np.float32)
    out.flags.writeable = False
    with pytest.raises((ValueError, BufferError), match="read-?only"):
        heed.attention(*qkv, out=Speaks(out))
    assert (out == 7).all()


def test_dlpack_objects_on_other_devices_are_refused(qkv):
    class Elsewhere(Speaks):
        def __dlpack_device__(self):
            return (8, 0)  # Metal

    with pytest.raises(TypeError, match=r"q lies on DLPack device \(8, 0\)"):
        heed.attention(Elsewhere(qkv[0]), qkv[1], qkv[2])


class Interface:
    """Claims to be in GPU memory. Nothing is read from there: each is refused before."""

    def __init__(self, **changes):
        told = {"shape": (2, 9, 4, 16), "typestr": "<f4", "data": (4096, False), "version": 3}
        self.__cuda_array_interface__ = {**told, **changes}


@pytest.mark.parametrize(
    "changes, error, words",
    [
        ({"typestr": "<f8"}, TypeError, "k has elements of typestr '<f8'"),
        ({"typestr": "<V2"}, TypeError, "__dlpack__"),
        ({"shape": (2, 9, 4, 16, 1)}, ValueError, "5 dimensions"),
        ({"shape": [2, 9]}, TypeError, "no proper shape"),
        ({"data": None}, TypeError, "no proper shape"),
        ({"strides": (7, 4)}, TypeError, "no proper shape"),
        ({"strides": (1, 1, 1, 3)}, ValueError, "stride of 3 bytes"),
        ({"typestr": "<f2"}, TypeError, "one type"),
        ({}, ValueError, "k is on a GPU and q on the CPU"),
    ],
)
def test_bad_cuda_array_interfaces_are_refused(qkv, changes, error, words):
    out = np.full(qkv[0].shape, 7, np.float32)
    with pytest.raises(error, match=words):
        heed.attention(qkv[0], Interface(**changes), qkv[2], out=out)
    assert (out == 7).all()


def test_heed_allocates_no_gpu_memory_for_strangers():
    one = Interface()
    with pytest.raises(TypeError, match="out="):
        heed.attention(one, one, one)
    with pytest.raises(TypeError, match="lse_out="):
        heed.attention(one, one, one, out=one, return_lse=True)


def test_streams_of_strangers_must_agree():
    one, other = Interface(stream=77), Interface(stream=78)
    with pytest.raises(ValueError, match="k is ready on stream 78 and q on stream 77"):
        heed.attention(one, other, one, out=one)
