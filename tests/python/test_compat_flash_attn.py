"""heed.compat.flash_attn: the originals' arguments in their order, and what they mean."""

import inspect

import pytest
from conftest import Data, devices

torch = pytest.importorskip("torch", reason="torch is not installed")

import heed  # noqa: E402
import heed.compat.flash_attn as compat  # noqa: E402

pytestmark = pytest.mark.parametrize("device", devices())

TAIL = [
    ("dropout_p", 0.0),
    ("softmax_scale", None),
    ("causal", False),
    ("window_size", (-1, -1)),
    ("softcap", 0.0),
    ("alibi_slopes", None),
    ("deterministic", False),
    ("return_attn_probs", False),
]
LISTS = ["cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"]
#: As flash_attn 2.8 declares them.
SIGNATURES = {
    "flash_attn_func": (["q", "k", "v"], TAIL),
    "flash_attn_kvpacked_func": (["q", "kv"], TAIL),
    "flash_attn_qkvpacked_func": (["qkv"], TAIL),
    "flash_attn_varlen_func": (["q", "k", "v", *LISTS], [*TAIL, ("block_table", None)]),
    "flash_attn_varlen_kvpacked_func": (["q", "kv", *LISTS], TAIL),
    "flash_attn_varlen_qkvpacked_func": (["qkv", "cu_seqlens", "max_seqlen"], TAIL),
}


def make(device, *shape, seed=0):
    return torch.from_numpy(Data(seed).normal(*shape)).to(device)


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_and_defaults_are_the_originals(device, name):
    required, optional = SIGNATURES[name]
    parameters = inspect.signature(getattr(compat, name)).parameters.values()
    assert all(each.kind == each.POSITIONAL_OR_KEYWORD for each in parameters)
    assert [(each.name, each.default) for each in parameters] == [
        (each, inspect.Parameter.empty) for each in required
    ] + optional


@pytest.mark.parametrize("s_q, s_k", [(5, 9), (9, 5), (7, 7)])
@pytest.mark.parametrize(
    "arguments, options",
    [
        ({}, {}),
        ({"causal": True}, {"mask": "b"}),
        ({"window_size": (3, 1)}, {"mask": "b:3,1"}),
        ({"window_size": (3, 1), "causal": True}, {"mask": "b:3,0"}),
        ({"window_size": (-1, 2)}, {"mask": "b:-1,2"}),
        ({"window_size": (2, -1)}, {"mask": "b:2,-1"}),
        ({"window_size": (0, 0)}, {"mask": "b:0,0"}),
        ({"softmax_scale": 0.3, "softcap": 1.5}, {"scale": 0.3, "softcap": 1.5}),
        ({"deterministic": True}, {}),
    ],
)
def test_masks_end_at_the_last_query_and_key(device, s_q, s_k, arguments, options):
    q, k, v = make(device, 2, s_q, 4, 16), make(device, 2, s_k, 2, 16, seed=1), make(device, 2, s_k, 2, 16, seed=2)
    judge = heed.Validator(q, k, v, **options)
    assert judge.check(compat.flash_attn_func(q, k, v, **arguments))
    out, lse, nothing = compat.flash_attn_func(q, k, v, **arguments, return_attn_probs=True)
    assert judge.check(out) and judge.check_lse(lse) and nothing is None


def test_alibi(device):
    q, k, v = make(device, 2, 5, 4, 16), make(device, 2, 9, 2, 16), make(device, 2, 9, 2, 16)
    for slopes in (make(device, 4, seed=3).abs(), make(device, 2, 4, seed=3).abs()):
        expected = heed.Validator(q, k, v, causal=True, alibi_slopes=slopes)
        assert expected.check(compat.flash_attn_func(q, k, v, causal=True, alibi_slopes=slopes))


def test_packed_tensors_are_their_parts(device):
    qkv = make(device, 2, 7, 3, 4, 16)
    q, k, v = qkv.unbind(2)
    expected = compat.flash_attn_func(q, k, v, causal=True)
    assert torch.equal(compat.flash_attn_qkvpacked_func(qkv, causal=True), expected)
    assert torch.equal(compat.flash_attn_kvpacked_func(q, qkv[:, :, 1:], causal=True), expected)
    with pytest.raises(ValueError, match="third last is 3"):
        compat.flash_attn_qkvpacked_func(qkv[:, :, :2])


def test_packed_sequences_are_their_parts(device):
    starts = torch.tensor([0, 3, 3, 14], dtype=torch.int32, device=device)
    qkv = make(device, 14, 3, 4, 16)
    q, k, v = qkv.unbind(1)
    out, lse, _ = compat.flash_attn_varlen_func(q, k, v, starts, starts, 11, 11, causal=True, return_attn_probs=True)
    assert lse.shape == (4, 14)
    for begin, end in ((0, 3), (3, 14)):
        part, part_lse, _ = compat.flash_attn_func(
            q[None, begin:end], k[None, begin:end], v[None, begin:end], causal=True, return_attn_probs=True
        )
        torch.testing.assert_close(out[begin:end], part[0], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(lse[:, begin:end], part_lse[0], rtol=1e-5, atol=1e-5)
    assert torch.equal(compat.flash_attn_varlen_qkvpacked_func(qkv, starts, 11, causal=True), out)
    packed = compat.flash_attn_varlen_kvpacked_func(q, qkv[:, 1:], starts, starts, 11, 11, causal=True)
    assert torch.equal(packed, out)


def test_dropout_is_drawn_from_torch(device):
    q, k, v = (make(device, 2, 9, 4, 16, seed=each) for each in range(3))
    torch.manual_seed(1)
    first = compat.flash_attn_func(q, k, v, 0.5)
    torch.manual_seed(1)
    assert torch.equal(compat.flash_attn_func(q, k, v, 0.5), first)
    assert not torch.equal(compat.flash_attn_func(q, k, v, 0.5), first)


def test_nothing_is_ignored(device):
    q, k, v = (make(device, 2, 9, 4, 16, seed=each) for each in range(3))
    with pytest.raises(heed.UnsupportedError, match="return_attn_probs"):
        compat.flash_attn_func(q, k, v, dropout_p=0.5, return_attn_probs=True)
    starts = torch.tensor([0, 18], dtype=torch.int32, device=device)
    flat = [each.flatten(0, 1) for each in (q, k, v)]
    with pytest.raises(heed.UnsupportedError, match="block_table"):
        compat.flash_attn_varlen_func(*flat, starts, starts, 18, 18, block_table=starts)
    with pytest.raises(TypeError):
        compat.flash_attn_func(q, k, v, num_splits=2)
    with pytest.raises(TypeError, match=r"window_size = 5: it is \(left, right\)"):
        compat.flash_attn_func(q, k, v, window_size=5)
    with pytest.raises(TypeError, match="max_seqlen_k is None: it is the length"):
        compat.flash_attn_varlen_func(*flat, starts, starts, 18, None)
    with pytest.raises(AttributeError, match="KV cache"):
        compat.flash_attn_with_kvcache


def test_any_strides_will_do(device):
    q, k, v = (make(device, 2, 9, 16, 4, seed=each).transpose(-1, -2) for each in range(3))
    dense = [each.contiguous() for each in (q, k, v)]
    assert torch.equal(compat.flash_attn_func(q, k, v), compat.flash_attn_func(*dense))
    starts = torch.tensor([0, 4, 9], dtype=torch.int32, device=device)
    turned, flat = ([each[0] for each in given] for given in ((q, k, v), dense))
    expected = compat.flash_attn_varlen_func(*flat, starts, starts, 5, 5)
    assert torch.equal(compat.flash_attn_varlen_func(*turned, starts, starts, 5, 5), expected)


def test_the_longest_sequence_is_a_bound(device):
    """Callers tell the context length, whatever came; as a number of torch's, maybe."""
    starts = torch.tensor([0, 3, 14], dtype=torch.int32, device=device)
    q, k, v = make(device, 14, 3, 4, 16).unbind(1)
    expected = compat.flash_attn_varlen_func(q, k, v, starts, starts, 11, 11, causal=True)
    for told in (14, 15, 4096, torch.tensor(4096), starts.diff().max()):
        got = compat.flash_attn_varlen_func(q, k, v, starts, starts, told, told, causal=True)
        torch.testing.assert_close(got, expected)
    with pytest.raises(ValueError, match="cannot hold a sequence of s_q = 15"):  # heed's own function wants to be told what is true
        heed.attention_varlen(q, k, v, starts, starts, 15, 15)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", ["compat", "heed"])
def test_a_compiled_program_may_find_the_longest_sequence_when_it_runs(device, function):
    q, k, v = make(device, 14, 3, 4, 16).unbind(1)
    attention = compat.flash_attn_varlen_func if function == "compat" else heed.attention_varlen

    def layer(q, k, v, starts):
        longest = starts.diff().max().item()
        if function == "heed":
            torch._check(longest <= q.shape[0])
        return attention(q, k, v, starts, starts, longest, longest, causal=True)

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        for starts in ([0, 3, 14], [0, 10, 14]):
            starts = torch.tensor(starts, dtype=torch.int32, device=device)
            torch.testing.assert_close(compiled(q, k, v, starts), layer(q, k, v, starts))
