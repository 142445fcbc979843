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
