"""Objects that heed has never heard of, by __dlpack__ and __cuda_array_interface__. (test_torch and test_cuda have more.)"""

import subprocess
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


TORCH_BOTH_WAYS = """
import sys
import torch
if sys.argv[1] == "attributes":
    torch.Tensor.__dlpack_c_exchange_api__ = None  # as before torch 2.10
import heed
generator = torch.Generator().manual_seed(3)
make = lambda *shape: torch.randn(*shape, generator=generator)
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    q, k, v = (make(2, 20, heads, 2, 16)[:, 3:12, :, 1].to(dtype) for heads in (4, 2, 2))  # strides of their own
    mask = make(2, 1, 9, 9) > -1
    lengths = torch.tensor([4, 9], dtype=torch.int64)
    o, lse = heed.attention(q, k, v, mask=mask, bias=make(4, 9, 9), seqlens_k=lengths, return_lse=True)
    print(o.double().sum().item(), lse.double().sum().item())
print(heed.attention(make(0, 3, 1, 8), make(0, 5, 1, 8), make(0, 5, 1, 8)).shape)
for wrong in (torch.zeros(1, 2, 3, 4, 5), torch.zeros(3, 4, 5, 6).to_sparse(), torch.zeros(3, 4, 5, 6, dtype=torch.complex64),
              torch.zeros(3, 4, 5, 6, device="meta"), torch.zeros(3, 4, 5, 6, dtype=torch.int16)):
    try:
        heed.attention(wrong, wrong, wrong, out=torch.zeros(3, 4, 5, 6))
    except Exception as refusal:
        print(type(refusal).__name__, refusal)
"""


def test_torch_tensors_are_read_alike_with_and_without_exchange_functions():
    pytest.importorskip("torch", reason="torch is not installed")
    outputs = []
    for way in ("functions", "attributes"):
        command = [sys.executable, "-W", "ignore", "-c", TORCH_BOTH_WAYS, way]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    lines = outputs[0].splitlines()
    assert "nan" not in "".join(lines[:3]) and lines[3] == "torch.Size([0, 3, 1, 8])"
    assert [line.split()[0] for line in lines[4:]] == ["ValueError", *["TypeError"] * 4], lines
