"""What the tests of the Python package share. HEED_PYTHON_DEVICES="cpu cuda" says where the torch tests compute; without
it everywhere torch can."""

import os

import numpy as np
import pytest

# torch reads it at its first product on a GPU, and without it has no products whose bits repeat.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None
try:
    import torch
except ImportError:
    torch = None

NUMPY_TYPES = {"f32": np.float32, "f16": np.float16} | ({"bf16": ml_dtypes.bfloat16} if ml_dtypes else {})


def devices():
    """Where torch tensors can be: names for pytest's parameters."""
    if torch is None:
        return []
    wanted = os.environ.get("HEED_PYTHON_DEVICES", "cpu cuda").split()
    return [each for each in wanted if each == "cpu" or torch.cuda.is_available()]


def pytest_report_header(config):
    import heed

    words = [f"heed {heed.__version__} from {os.path.dirname(heed.__file__)}"]
    words.append(
        f"torch {torch.__version__} on {' and '.join(devices())}" if torch else "no torch: its tests are skipped"
    )
    words.append("ml_dtypes" if ml_dtypes else "no ml_dtypes: no bfloat16 in NumPy")
    return ", ".join(words)


class Data:
    """Random arrays, the same for the same seed."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def normal(self, *shape, dtype=np.float32):
        return self.rng.standard_normal(shape).astype(dtype)

    def qkv(self, b=2, s_q=9, s_k=13, h=4, h_k=2, d=16, d_v=None, dtype=np.float32, layout="bshd"):
        d_v = d if d_v is None else d_v
        shapes = [(b, s_q, h, d), (b, s_k, h_k, d), (b, s_k, h_k, d_v)]
        if layout == "bhsd":
            shapes = [(b, h, s, d) for b, s, h, d in shapes]
        return [self.normal(*shape, dtype=dtype) for shape in shapes]


@pytest.fixture
def data():
    return Data()


def guarded(shape, dtype, fill=np.nan, margin=512):
    """An array between bands of NaN, itself full of NaN, and a function that says whether the bands still are."""
    count = int(np.prod(shape))
    memory = np.full(count + 2 * margin, fill, dtype)
    before = memory.copy().tobytes()
    size = memory.itemsize

    def untouched():
        after = memory.tobytes()
        return after[: margin * size] == before[: margin * size] and after[-margin * size :] == before[-margin * size :]

    return memory[margin : margin + count].reshape(shape), untouched


def pytest_collection_modifyitems(items):
    """What takes longest first, so that it is not what workers wait for in the end."""
    slow = ("test_training.py", "test_the_whole_compiler", "test_bench.py")
    items.sort(key=lambda item: not any(word in item.nodeid for word in slow))
