"""bench/heed_c.py: the ctypes binding that the comparison with torch uses. (torch itself is not needed here.)"""

import array
import pathlib
import sys

import pytest
from conftest import HEED, ROOT, not_when_instrumented

sys.path.insert(0, str(ROOT / "bench"))
LIBRARY = pathlib.Path(HEED).resolve().parents[1] / "lib" / "libheed.so"

pytestmark = [not_when_instrumented, pytest.mark.skipif(not LIBRARY.exists(), reason="there is no libheed.so beside the command")]


class Dense:
    """What heed_c asks of a tensor: [b, h, s, d] of f32."""

    def __init__(self, shape, values):
        self.shape, self.memory = shape, array.array("f", values)

    def data_ptr(self):
        return self.memory.buffer_info()[0]

    def stride(self):
        _, h, s, d = self.shape
        return (h * s * d, s * d, d, 1)


@pytest.fixture
def heed():
    from heed_c import Heed

    context = Heed(LIBRARY, 1)
    yield context
    context.close()


def test_the_binding_computes(heed):
    from heed_c import F32

    shape = (1, 2, 3, 4)
    q, k = (Dense(shape, [0.1 * n for n in range(24)]) for _ in range(2))
    v = Dense(shape, [float(n // 12) for n in range(24)])  # all rows of a head are the same
    o = Dense(shape, [-1.0] * 24)
    args = heed.args(q, k, v, o, F32, True)
    heed.forward(args)
    assert list(o.memory) == pytest.approx(list(v.memory), abs=1e-6)
    assert heed.kernel(args).startswith("cpu/")
    assert heed.isa() in ("baseline", "avx2", "avx512", "avx512bf16", "amx")


def test_errors_become_exceptions(heed):
    from heed_c import F32

    q, k = Dense((1, 3, 2, 4), [0.0] * 24), Dense((1, 2, 2, 4), [0.0] * 16)
    with pytest.raises(RuntimeError, match="multiple of h_k"):
        heed.forward(heed.args(q, k, k, q, F32, False))
