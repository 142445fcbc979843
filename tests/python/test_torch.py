"""torch tensors, on the CPU and where there is one on a GPU."""

import gc

import numpy as np
import pytest
from conftest import Data, devices

torch = pytest.importorskip("torch", reason="torch is not installed")

import heed  # noqa: E402

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
pytestmark = pytest.mark.parametrize("device", devices())


def tensors(device, type_name="f32", seed=0, **shape):
    return [torch.from_numpy(each).to(device, TYPES[type_name]) for each in Data(seed).qkv(**shape)]


@pytest.mark.parametrize("type_name", TYPES)
@pytest.mark.parametrize("d", [8, 64, 72, 128])
def test_every_type_is_judged_right(device, type_name, d):
    if type_name == "bf16":
        pytest.importorskip("ml_dtypes")
    q, k, v = tensors(device, type_name, s_q=100, s_k=130, d=d)
    o, lse = heed.attention(q, k, v, causal=True, return_lse=True)
    assert o.dtype == q.dtype and o.shape == q.shape and o.device == q.device
    assert lse.dtype == torch.float32 and lse.shape == (2, 4, 100) and lse.device == q.device
    judge = heed.Validator(q, k, v, causal=True)
    assert judge.check(o), judge.check(o)
    assert judge.check_lse(lse), judge.check_lse(lse)


@pytest.mark.parametrize(
    "name",
    [
        "window",
        "bool mask",
        "bias",
        "half bias",
        "alibi",
        "sink",
        "soft cap",
        "dropout",
        "lengths",
        "block mask",
        "d_v",
        "scale",
    ],
)
def test_every_feature(device, name):
    q, k, v = tensors(device, "f16", s_q=50, s_k=70, d=64, d_v=32 if name == "d_v" else 64)
    data = Data(2)
    to = lambda array: torch.from_numpy(np.asarray(array)).to(device)
    options = {
        "window": lambda: {"window": (20, 3)},
        "bool mask": lambda: {"mask": to(data.rng.random((2, 4, 50, 70)) < 0.7)},
        "bias": lambda: {"bias": to(data.normal(4, 50, 70))},
        "half bias": lambda: {"bias": to(data.normal(1, 1, 50, 70)).half()},
        "alibi": lambda: {"alibi_slopes": to(data.normal(4))},
        "sink": lambda: {"sink": to(data.normal(4))},
        "soft cap": lambda: {"softcap": 5.0},
        "dropout": lambda: {"dropout_p": 0.25, "seed": 3, "offset": 4},
        "lengths": lambda: {"seqlens_k": to(np.array([70, 11], np.int32))},
        "block mask": lambda: {"block_mask": (to(data.rng.random((1, 1, 4, 5)) < 0.7), 16, 16)},
        "d_v": dict,
        "scale": lambda: {"scale": 0.3},
    }[name]()
    judge = heed.Validator(q, k, v, **options)
    o = heed.attention(q, k, v, **options)
    assert o.shape == (*q.shape[:3], v.shape[3])
    assert judge.check(o), judge.check(o)


def test_a_result_has_the_layout_of_q(device):
    q, k, v = (each.transpose(1, 2) for each in tensors(device))
    o = heed.attention(q, k, v, layout="bhsd")
    assert o.shape == q.shape and o.stride() == q.stride()
    expected = heed.attention(*(each.contiguous() for each in (q, k, v)), layout="bhsd")
    torch.testing.assert_close(o, expected, rtol=1e-5, atol=1e-5)


def test_packed_sequences(device):
    data = Data(8)
    make = lambda *shape: torch.from_numpy(data.normal(*shape)).to(device)
    q, k, v = make(60, 4, 64), make(90, 2, 64), make(90, 2, 64)
    starts_q = torch.tensor([0, 20, 20, 60], dtype=torch.int32, device=device)
    starts_k = torch.tensor([0, 40, 45, 90], dtype=torch.int32, device=device)
    o, lse = heed.attention_varlen(q, k, v, starts_q, starts_k, 40, 45, causal=True, return_lse=True)
    judge = heed.Validator(q, k, v, cu_seqlens_q=starts_q, cu_seqlens_k=starts_k, causal=True)
    assert judge.check(o) and judge.check_lse(lse)
    untold = heed.attention_varlen(q, k, v, starts_q, starts_k, causal=True)
    torch.testing.assert_close(untold, o, rtol=1e-5, atol=1e-5)


def test_parameters_are_tensors(device):
    q, k, v = tensors(device)
    expected = heed.attention(q, k, v)
    with torch.no_grad():
        assert torch.equal(heed.attention(torch.nn.Parameter(q), k, v), expected)
    with torch.inference_mode():
        assert torch.equal(heed.attention(q * 1, k, v), expected)


def test_tensors_heed_cannot_read(device):
    q, k, v = tensors(device)
    out = torch.full_like(q, 7)
    with pytest.raises(TypeError, match="meta"):
        heed.attention(q.to("meta"), k, v, out=out)
    with pytest.raises(TypeError, match="meta"):
        heed.attention(q.to("meta"), k.to("meta"), v.to("meta"))

    class Mine(torch.Tensor):
        pass

    with pytest.raises(TypeError, match="Mine.*as_subclass"):
        heed.attention(q.as_subclass(Mine), k, v, out=out)
    with pytest.raises(TypeError, match="k .*sparse"):
        heed.attention(q, k.to_sparse(), v, out=out)
    with pytest.raises(TypeError, match="float64"):
        heed.attention(q.double(), k.double(), v.double())
    with pytest.raises(TypeError, match="complex64"):
        heed.attention(q.to(torch.complex64), k, v, out=out)
    with pytest.raises(ValueError, match="head dim"):
        heed.attention(q.transpose(1, 3).contiguous().transpose(1, 3), k, v, out=out)
    assert (out == 7).all()


def test_devices_are_not_mixed(device):
    q, k, v = tensors(device)
    if device == "cpu":
        other = "meta"
        with pytest.raises(TypeError, match="k .*meta"):
            heed.attention(q, k.to(other), v)
    else:
        for arguments in [(q, k.cpu(), v), (q.cpu(), k, v)]:
            with pytest.raises(ValueError, match="one place"):
                heed.attention(*arguments)
        with pytest.raises(ValueError, match="bias is on the CPU"):
            heed.attention(q, k, v, bias=torch.zeros(9, 13))


def test_torch_and_numpy_can_be_mixed_on_the_cpu(device):
    if device != "cpu":
        pytest.skip("NumPy arrays are in CPU memory")
    q, k, v = tensors(device)
    assert torch.equal(heed.attention(q, k.numpy(), v.numpy()), heed.attention(q, k, v))


def test_dropout_follows_torchs_generators(device):
    q, k, v = tensors(device)
    draw = lambda **options: heed.attention(q, k, v, dropout_p=0.5, **options)
    torch.manual_seed(4)
    first, second = draw(), draw()
    torch.manual_seed(4)
    assert torch.equal(draw(), first) and not torch.equal(first, second)
    twice = [draw(generator=torch.Generator().manual_seed(1)) for _ in range(2)]
    assert torch.equal(*twice)
    state = torch.tensor([6, 2], device=device)
    assert torch.equal(draw(dropout_state=state), draw(seed=6, offset=2))
    with pytest.raises(TypeError, match="torch.Generator"):
        draw(generator=np.random.default_rng())


def test_out_is_used_and_dlpack_objects_are_read_in_place(device):
    q, k, v = tensors(device)
    expected = heed.attention(q, k, v)

    class Speaks:
        """Knows DLPack and nothing else."""

        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, **options):
            return self.tensor.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    out = torch.full_like(q, torch.nan)
    assert heed.attention(q, Speaks(k), Speaks(v), out=out) is out
    assert torch.equal(out, expected)
    out.fill_(torch.nan)
    heed.attention(Speaks(q), Speaks(k), Speaks(v), out=Speaks(out))
    if device == "cuda":
        torch.cuda.synchronize()
        with pytest.raises(TypeError, match="out="):
            heed.attention(Speaks(q), Speaks(k), Speaks(v))
    else:
        np.testing.assert_array_equal(heed.attention(Speaks(q), Speaks(k), Speaks(v)), expected.numpy())
        np.testing.assert_array_equal(
            heed.attention(Speaks(q.half()), Speaks(k.half()), Speaks(v.half())).dtype, np.float16
        )
    assert torch.equal(out, expected)


def test_nothing_leaks(device):
    """References to tensors and what DLPack producers lend are given back."""
    import sys

    q, k, v = tensors(device)
    out = torch.empty_like(q)
    heed.attention(q, k, v, out=out)
    counts = [sys.getrefcount(each) for each in (q, k, v, out)]
    for _ in range(100):
        heed.attention(q, k, v, out=out, causal=True)
        with pytest.raises(ValueError):
            heed.attention(q, k[:1], v, out=out)
    gc.collect()
    assert [sys.getrefcount(each) for each in (q, k, v, out)] == counts


def test_a_plan_runs(device):
    q, k, v = tensors(device, "f16", d=64)
    plan = heed.plan(q, k, v, causal=True)
    assert plan.on_gpu == (device == "cuda")
    out = torch.empty_like(q)
    assert plan.run(q, k, v, causal=True, out=out) is out
    assert torch.equal(out, heed.attention(q, k, v, causal=True))


def test_a_captured_call_draws_in_memory(device, monkeypatch):
    """A CUDA graph would hold a seed that is a number, and repeat it at every replay: here somebody says that one is captured."""
    import heed._libraries.torch as library

    q, k, v = tensors(device)
    monkeypatch.setattr(library, "capturing", lambda tensor: True)
    monkeypatch.setattr(library, "draw_seed", lambda generator: pytest.fail("a number was drawn"))
    torch.manual_seed(4)
    got = heed.attention(q, k, v, dropout_p=0.5)
    torch.manual_seed(4)
    state = torch.randint(2**63 - 1, (2,), device=device)
    assert torch.equal(got, heed.attention(q, k, v, dropout_p=0.5, dropout_state=state))
    leaf = q.clone().requires_grad_()
    heed.attention(leaf, k, v, dropout_p=0.5).sum().backward()
    assert leaf.grad.abs().max() > 0


def test_views_that_torch_negates_are_not_read_with_the_wrong_sign(device):
    q, k, v = tensors(device)
    bias = torch.from_numpy(Data(2).normal(4, 9, 13)).to(device)
    with pytest.raises(ValueError, match="bias is a view that torch negates"):
        heed.attention(q, k, v, bias=torch.complex(bias, bias).conj().imag)
    negated = torch._neg_view(q)  # a dense one, which no slice of a complex tensor is
    assert negated.is_neg() and torch.equal(negated, -q)
    with pytest.raises(ValueError, match=r"q is a view that torch negates.*q\.resolve_neg\(\)"):
        heed.attention(negated, k, v)
    with pytest.raises(ValueError, match="o is a view that torch negates"):
        heed.attention(q, k, v, out=negated)
    assert torch.equal(heed.attention(negated.resolve_neg(), k, v), heed.attention(-q, k, v))
    compiled = torch.compile(lambda c, k, v: heed.attention(c.conj().imag.resolve_neg(), k, v), backend="aot_eager")
    assert torch.equal(compiled(torch.complex(q, q), k, v), heed.attention(-q, k, v))
