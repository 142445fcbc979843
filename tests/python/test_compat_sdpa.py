"""heed.compat.sdpa and heed.integrations.torch.use(), against torch's own."""

import inspect

import pytest
from conftest import devices

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.attention  # noqa: E402
import torch.nn.functional as functional  # noqa: E402

from heed.compat.sdpa import scaled_dot_product_attention as by_heed  # noqa: E402
from heed.integrations.torch import use  # noqa: E402

pytestmark = pytest.mark.parametrize("device", devices())
by_torch = functional.scaled_dot_product_attention


def make(device, *shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(device)


def same(q, k, v, **options):
    """Both compute it, torch in double precision and by its plain formula: the CPU kernel of torch 2.4 gets some masks wrong, and
    its function has no enable_gqa yet."""
    mask = options.get("attn_mask")
    exact = dict(options)
    given = [each.double() for each in (q, k, v)]
    if exact.pop("enable_gqa", False):
        given[1:] = (each.repeat_interleave(q.shape[-3] // each.shape[-3], -3) for each in given[1:])
    if mask is not None and mask.dtype is not torch.bool:
        exact["attn_mask"] = mask.double()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = by_torch(*given, **exact)
    got = by_heed(q, k, v, **options)
    assert got.shape == expected.shape and got.dtype == q.dtype
    torch.testing.assert_close(got.double(), expected, rtol=1e-5, atol=1e-5)


def test_arguments_and_defaults_are_torchs(device):
    parameters = inspect.signature(by_heed).parameters.values()
    assert [(each.name, each.default) for each in parameters][3:] == [
        ("attn_mask", None),
        ("dropout_p", 0.0),
        ("is_causal", False),
        ("scale", None),
        ("enable_gqa", False),
    ]
    assert [each.name for each in parameters][:3] == ["query", "key", "value"]


@pytest.mark.parametrize("s_q, s_k", [(5, 9), (9, 5), (7, 7)])
def test_causal_is_top_left(device, s_q, s_k):
    q, k, v = make(device, 2, 4, s_q, 16), make(device, 2, 4, s_k, 16, seed=1), make(device, 2, 4, s_k, 24, seed=2)
    same(q, k, v, is_causal=True)
    same(q, k, v)
    same(q, k, v, scale=0.7)


@pytest.mark.parametrize("shape", [(5, 9), (1, 9), (5, 1), (4, 5, 9), (2, 1, 5, 9), (2, 4, 5, 9), (2, 1, 1, 9)])
def test_masks_broadcast_as_in_torch(device, shape):
    q, k, v = make(device, 2, 4, 5, 16), make(device, 2, 4, 9, 16, seed=1), make(device, 2, 4, 9, 16, seed=2)
    keep = make(device, *shape, seed=3) > -0.5
    keep[..., 0] = True
    same(q, k, v, attn_mask=keep)
    same(q, k, v, attn_mask=make(device, *shape, seed=4))


def test_a_row_without_keys_is_zero(device):
    q, k, v = make(device, 1, 1, 3, 8), make(device, 1, 1, 4, 8), make(device, 1, 1, 4, 8)
    keep = torch.ones(3, 4, dtype=torch.bool, device=device)
    keep[1] = False
    assert (by_heed(q, k, v, keep)[0, 0, 1] == 0).all()


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 1, 3), (2, 2, 1, 3)])
def test_any_number_of_leading_dimensions(device, lead):
    q, k, v = make(device, *lead, 5, 16), make(device, *lead, 9, 16, seed=1), make(device, *lead, 9, 16, seed=2)
    same(q, k, v, is_causal=True)
    same(q, k, v, attn_mask=make(device, 5, 9, seed=3) > -1)
    if len(lead) > 3:
        same(q, k, v, attn_mask=make(device, *lead[:-1], 1, 5, 9, seed=3) > -1)


def test_groups_of_heads_only_where_asked(device):
    q, k, v = make(device, 2, 4, 5, 16), make(device, 2, 2, 9, 16, seed=1), make(device, 2, 2, 9, 16, seed=2)
    same(q, k, v, enable_gqa=True, is_causal=True)
    with pytest.raises(ValueError, match="enable_gqa"):
        by_heed(q, k, v)


def test_what_torch_refuses_is_refused(device):
    q = make(device, 2, 4, 5, 16)
    with pytest.raises(ValueError, match="is_causal"):
        by_heed(q, q, q, attn_mask=torch.ones(5, 5, dtype=torch.bool, device=device), is_causal=True)
    with pytest.raises(ValueError, match="dimensions"):
        by_heed(q, q[0], q)
    with pytest.raises(TypeError):
        by_heed(q.double(), q.double(), q.double())


def test_a_block_of_code_uses_heed(device):
    layer = torch.nn.MultiheadAttention(32, 4, batch_first=True).to(device).eval()
    x = make(device, 2, 7, 32)
    with torch.no_grad():
        expected = layer(x, x, x, need_weights=False)[0]
        with use():
            assert functional.scaled_dot_product_attention is by_heed
            torch.testing.assert_close(layer(x, x, x, need_weights=False)[0], expected, rtol=1e-4, atol=1e-5)
            with use(fallback=True):  # the stricter one counts
                assert functional.scaled_dot_product_attention is by_heed
    assert functional.scaled_dot_product_attention is by_torch


def test_without_fallback_nothing_goes_past_heed(device):
    q = make(device, 1, 2, 3, 8).double()
    with use(), pytest.raises(TypeError, match="float64"):
        functional.scaled_dot_product_attention(q, q, q)
    with use(fallback=True):
        assert torch.equal(functional.scaled_dot_product_attention(q, q, q), by_torch(q, q, q))
    assert functional.scaled_dot_product_attention is by_torch


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.filterwarnings("ignore")
def test_autocast_chooses_the_type_as_in_torch(device, dtype, compiled):
    given = [make(device, 2, 4, s, 16, seed=s).requires_grad_() for s in (5, 9, 9)]
    given[2] = given[2].detach().to(dtype).requires_grad_()  # as a layer without rotary embedding leaves it
    bias = make(device, 4, 5, 9, seed=3).requires_grad_()
    found = {}
    for name, function in (("torch", by_torch), ("heed", by_heed)):

        def layer(q, k, v, bias, function=function):
            with torch.autocast(device, dtype):
                return function(q, k, v, bias)

        o = (torch.compile(layer, fullgraph=True, backend="aot_eager") if compiled else layer)(*given, bias)
        found[name] = [o, *torch.autograd.grad(o.float().square().sum(), [*given, bias])]
    for got, want in zip(found["heed"], found["torch"]):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=5e-2, atol=5e-2)
    assert found["heed"][0].dtype == dtype


@pytest.mark.filterwarnings("ignore")  # where there is no GPU
def test_autocast_leaves_masks_and_other_devices_alone(device):
    q, keep = make(device, 2, 4, 5, 16), make(device, 5, 5, seed=3) > -1
    with torch.autocast(device, torch.bfloat16):
        assert by_heed(q, q, q, keep).dtype == torch.bfloat16
        with torch.autocast(device, enabled=False):
            assert by_heed(q, q, q, keep).dtype == torch.float32
        with pytest.raises(TypeError, match="float64"):
            by_heed(q.double(), q.double(), q.double())
    with torch.autocast("cuda" if device == "cpu" else "cpu", torch.bfloat16):
        assert by_heed(q, q, q, keep).dtype == torch.float32


def test_any_strides_will_do(device):
    q, k, v = (make(device, 2, 4, 16, s, seed=s).transpose(-1, -2) for s in (5, 9, 9))
    same(q, k, v, is_causal=True)
    same(q[..., ::2], k[..., ::2], v, attn_mask=make(device, 9, 5, seed=3).t())
    given = [each.detach().requires_grad_() for each in (q, k, v)]
    o = by_heed(*given)
    expected = torch.autograd.grad(by_torch(*given).sum(), given)
    for got, want in zip(torch.autograd.grad(o.sum(), given), expected):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_with_fallback_torch_has_the_last_word(device):
    """What heed takes for wrong may be right for torch; and if not, torch says so."""
    q, k = make(device, 2, 4, 5, 16), make(device, 2, 4, 9, 16)
    empty = make(device, 2, 4, 5, 0)
    with use(fallback=True):
        assert torch.equal(functional.scaled_dot_product_attention(q, k, k, scale=0.0), by_torch(q, k, k, scale=0.0))
        assert functional.scaled_dot_product_attention(empty, empty, empty).shape == empty.shape
        with pytest.raises(RuntimeError):
            functional.scaled_dot_product_attention(q, k[..., :8], k)
    with use(), pytest.raises(ValueError):
        functional.scaled_dot_product_attention(q, k, k, scale=0.0)


@pytest.mark.parametrize(
    "leads",
    [
        ((2, 3, 4), (2, 1, 4), (2, 3, 4)),
        ((2, 3, 4), (3, 4), (3, 4)),
        ((2, 1, 4), (2, 3, 4), (1, 3, 4)),
        ((2, 3, 4), (1, 1, 1), (2, 1, 4)),
        ((2, 4), (1, 4), (2, 4)),
        ((1, 4), (2, 4), (2, 4)),
        ((2, 4), (2, 4), (2, 1)),
        ((2, 1), (2, 4), (2, 4)),
        ((2, 4), (2, 1), (2, 1)),
        ((4,), (1,), (4,)),
    ],
)
def test_leading_dimensions_broadcast_as_in_torch(device, leads):
    """Each by itself, and not by how many there are of them."""
    rank = max(map(len, leads))
    q, k, v = (
        make(device, *(1,) * (rank - len(lead)), *lead, s, 16, seed=i)
        for i, (lead, s) in enumerate(zip(leads, (5, 9, 9)))
    )
    same(q, k, v)
    same(q, k, v, attn_mask=make(device, 5, 9, seed=3))


def test_leading_dimensions_that_only_have_as_many_elements_are_refused(device):
    q, k = make(device, 2, 3, 4, 5, 16), make(device, 3, 2, 4, 9, 16)
    with pytest.raises(ValueError, match=r"\(2, 3, 4, 5, 16\), \(3, 2, 4, 9, 16\).*leading dimensions"):
        by_heed(q, k, k)
    same(q, *(make(device, 2, 1, 2, 9, 16, seed=each) for each in (1, 2)), enable_gqa=True)
