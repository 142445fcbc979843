"""Bad input is a Python exception of the right kind, that says what was passed, and nothing is written."""

import numpy as np
import pytest
from conftest import NUMPY_TYPES, Data

import heed


def refused(error, words, q, k, v, **options):
    """Calls with an out= full of sevens, which must stay as it is."""
    out = options.pop("out", None)
    if out is None:
        out = np.full((2, 9, 4, 16), 7, np.float32)
    before = out.copy()
    with pytest.raises(error) as caught:
        heed.attention(q, k, v, out=out, **options)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    np.testing.assert_array_equal(out, before)


@pytest.fixture
def qkv():
    return Data(1).qkv()


def test_shapes_that_do_not_fit(qkv):
    q, k, v = qkv
    refused(ValueError, ["k", "[1, 13, 2, 16]", "batch"], q, k[:1], v)
    refused(ValueError, ["h = 4", "h_k = 3"], q, np.repeat(k, 3, 2)[:, :, :3], np.repeat(v, 3, 2)[:, :, :3])
    refused(ValueError, ["k", "8"], q, k[..., :8], v)
    refused(ValueError, ["v", "12"], q, k, v[:, :12])
    refused(ValueError, ["o", "[2, 9, 4, 8]"], q, k, v, out=np.full((2, 9, 4, 8), 7, np.float32))
    refused(heed.InvalidArgumentError, ["bias", "14"], q, k, v, bias=np.zeros((9, 14), np.float32))
    refused(ValueError, ["alibi", "5"], q, k, v, alibi_slopes=np.zeros(5, np.float32))
    refused(ValueError, ["sink"], q, k, v, sink=np.zeros(3, np.float32))
    refused(ValueError, ["seqlen_k", "14"], q, k, v, seqlens_k=np.array([14, 1], np.int32))
    refused(ValueError, ["5 dimensions"], q[None], k, v)


def test_bad_arrays_without_out(qkv):
    q, k, v = qkv
    with pytest.raises(ValueError, match=r"\[9, 4, 16\].*b, s_q, h, d"):
        heed.attention(q[0], k, v)
    with pytest.raises(ValueError, match="four dimensions"):
        heed.attention(q[0], k, v, return_lse=True)
    with pytest.raises(ValueError, match=r"\[2, 9, 4, 16\].*total_q, h, d"):
        heed.attention_varlen(q, k, v, np.array([0, 9]), np.array([0, 13]))
    with pytest.raises(TypeError, match="v is .*list"):
        heed.attention(q, k, v.tolist())
    with pytest.raises(TypeError, match="q is .*NoneType"):
        heed.attention(None, k, v)
    with pytest.raises(ValueError, match="v has 0 dimensions"):
        heed.attention(q, k, np.array(1.0, np.float32))


def test_types_that_do_not_fit(qkv):
    q, k, v = qkv
    refused(TypeError, ["q", "int32", "float32"], q.astype(np.int32), k, v)
    refused(TypeError, ["q", "float64"], q.astype(np.float64), k, v)
    refused(TypeError, ["q", "complex64"], q.astype(np.complex64), k, v)
    refused(TypeError, ["k is float16 and q float32"], q, k.astype(np.float16), v)
    refused(TypeError, ["bool_mask", "float32", "bias"], q, k, v, mask=np.full((9, 13), np.nan, np.float32))
    refused(TypeError, ["bias", "bool"], q, k, v, bias=np.ones((9, 13), bool))
    refused(TypeError, ["seqlen_k", "float32"], q, k, v, seqlens_k=np.array([1, 2], np.float32))
    refused(TypeError, ["sink", "float16"], q, k, v, sink=np.zeros(4, np.float16))
    refused(TypeError, ["k", "list", "NumPy"], q, k.tolist(), v)
    refused(TypeError, ["q", "byte order"], q.astype(">f4"), k, v)
    refused(TypeError, ["o", "int32"], q, k, v, out=np.full(q.shape, 7, np.int32))


def test_memory_that_cannot_be_used(qkv):
    q, k, v = qkv
    refused(ValueError, ["head dim", "2"], np.repeat(q, 2, 3)[..., ::2], k, v)
    frozen = np.full(q.shape, 7, np.float32)
    frozen.flags.writeable = False
    refused(ValueError, ["o is read-only"], q, k, v, out=frozen)
    refused(ValueError, ["q"], q, k, v, out=q)
    unaligned = np.zeros(q.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(q.shape)
    refused(ValueError, ["q", "copy"], unaligned, k, v)
    fields = np.zeros(q.shape, np.dtype([("a", np.float32), ("b", np.uint8)]))["a"]
    refused(ValueError, ["q", "5", "stride"], fields, k, v)


def test_read_only_inputs_are_fine(qkv):
    expected = heed.attention(*qkv)
    for each in qkv:
        each.flags.writeable = False
    np.testing.assert_array_equal(heed.attention(*qkv), expected)


def test_options_that_make_no_sense(qkv):
    q, k, v = qkv
    refused(ValueError, ["layout", "bsdh", "'bhsd'"], q, k, v, layout="bsdh")
    refused(ValueError, ["engine", "gpu", "'cuda'"], q, k, v, engine="gpu")
    refused(ValueError, ["math", "exact", "'accurate'"], q, k, v, math="exact")
    refused(ValueError, ["scale"], q, k, v, scale=0)
    refused(ValueError, ["scale", "nan"], q, k, v, scale=float("nan"))
    refused(ValueError, ["soft_cap"], q, k, v, softcap=-1)
    refused(ValueError, ["dropout", "1"], q, k, v, dropout_p=1.0, seed=1)
    refused(ValueError, ["dropout", "seed"], q, k, v, dropout_p=0.5)
    refused(ValueError, ["dropout_p is 0"], q, k, v, seed=3)
    refused(ValueError, ["dropout_p is 0"], q, k, v, offset=3)
    refused(ValueError, ["offset"], q, k, v, dropout_p=0.5, dropout_state=np.array([1, 0]), offset=3)
    refused(ValueError, ["seed"], q, k, v, dropout_p=0.5, seed=-1)
    refused(ValueError, ["stream", "CPU"], q, k, v, stream=1)
    refused(ValueError, ["pass one"], q, k, v, dropout_p=0.5, seed=1, dropout_state=np.array([1, 0]))
    refused(TypeError, ["generator"], q, k, v, dropout_p=0.5, generator=7)
    refused(ValueError, ["window"], q, k, v, window=(1,))
    refused(ValueError, ["window = 5", "(left, right)"], q, k, v, window=5)
    refused(TypeError, ["mask_left", "float", "whole number"], q, k, v, window=(1.5, 0))
    refused(ValueError, ["mask_left", str(2**70), "64 bits"], q, k, v, window=(2**70, 0))
    refused(ValueError, ["window", "causal"], q, k, v, window=(1, 3), causal=True)
    refused(ValueError, ["mask", "again"], q, k, v, mask="b", causal=True)
    refused(ValueError, ["q:3"], q, k, v, mask="q:3")
    refused(TypeError, ["softmax_scale"], q, k, v, softmax_scale=1)
    keep = np.ones((3, 4), bool)
    refused(TypeError, ["block_mask", "2 things", "(keep, block_q, block_k)"], q, k, v, block_mask=(keep, 4))
    refused(TypeError, ["block_mask", "ndarray", "(keep, block_q, block_k)"], q, k, v, block_mask=keep)
    refused(TypeError, ["block_q", "float", "whole number"], q, k, v, block_mask=(keep, 4.0, 4))
    for name, words in (("scale", "scale"), ("softcap", "soft_cap"), ("dropout_p", "dropout_p")):
        seed = {"seed": 1} if name == "dropout_p" else {}
        refused(TypeError, [words, "str", "number"], q, k, v, **{name: "1"}, **seed)
        refused(TypeError, [name, "(2,)", "one number"], q, k, v, **{name: np.array([0.5, 0.25])}, **seed)
    for seed in (1.5, "1", [1]):
        refused(TypeError, ["seed", "whole number"], q, k, v, dropout_p=0.5, seed=seed)
    refused(TypeError, ["offset", "NoneType", "whole number"], q, k, v, dropout_p=0.5, seed=1, offset=None)


def test_whole_numbers_of_numpy_are_whole_numbers(qkv):
    expected = heed.attention(*qkv, dropout_p=0.5, seed=3, offset=2**63, window=(4, 1))
    seed, offset, window = np.int32(3), np.uint64(2**63), np.array([4, 1])
    np.testing.assert_array_equal(heed.attention(*qkv, dropout_p=0.5, seed=seed, offset=offset, window=window), expected)


def test_what_only_looks_like_an_array(qkv):
    """It has every attribute, as what torch.fx traces a program with has."""

    class Anything:
        shape = (2, 9, 4, 16)

        def __getattr__(self, name):
            return self

    with pytest.raises(TypeError, match="q is .*Anything.*no memory"):
        heed.attention(Anything(), *qkv[1:])


def test_what_is_not_built_yet_is_unsupported(qkv):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    q, k, v = (each.astype(ml_dtypes.float8_e4m3fn) for each in qkv)
    with pytest.raises(heed.UnsupportedError, match="fp8"):
        heed.attention(q, k, v, out=np.empty(q.shape, NUMPY_TYPES["bf16"]))
    with pytest.raises(heed.Error, match="cuda|CUDA|GPU"):  # no such engine here, or no such memory there
        heed.attention(*qkv, engine="cuda")


def test_errors_are_what_python_programs_expect():
    assert issubclass(heed.InvalidArgumentError, ValueError) and issubclass(heed.InvalidArgumentError, heed.Error)
    assert issubclass(heed.UnsupportedError, NotImplementedError)
    assert issubclass(heed.OutOfMemoryError, MemoryError)
    assert issubclass(heed.DeviceError, RuntimeError)


def test_lists_of_sequences_that_make_no_sense(data):
    q, k, v = data.normal(9, 4, 16), data.normal(13, 2, 16), data.normal(13, 2, 16)
    out = np.full(q.shape, 7, np.float32)
    for starts_q, words in [([0, 5, 4], "seqstart_q"), ([0, 10], "seqstart_q"), ([-1, 9], "seqstart_q")]:
        with pytest.raises(ValueError, match=words):
            heed.attention_varlen(q, k, v, np.array(starts_q), np.arange(len(starts_q)), out=out)
    with pytest.raises(ValueError, match="max_s_q"):
        heed.attention_varlen(q, k, v, np.array([0, 9]), np.array([0, 13]), max_seqlen_q=3, out=out)
    with pytest.raises(TypeError, match="cu_seqlens"):
        heed.attention_varlen(q, k, v, None, np.array([0, 13]), out=out)
    with pytest.raises(ValueError, match="one layout"):
        heed.oracle(q, k, v, cu_seqlens_q=np.array([0, 9]), cu_seqlens_k=np.array([0, 13]), layout="bhsd")
    assert (out == 7).all()
