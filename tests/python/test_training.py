"""A small transformer trained for 200 steps: with heed its loss curve is that of the same model with attention written out.
(The model is that of examples/python/19_train_a_transformer.py.)"""

import importlib.util
import pathlib

import pytest
from conftest import devices

torch = pytest.importorskip("torch", reason="torch is not installed")

import heed  # noqa: E402

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"
RUNS = [(device, kind) for device in devices() for kind in (["f32"] if device == "cpu" else ["f32", "bf16", "f16"])]


@pytest.fixture(scope="module")
def example():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        specification = importlib.util.spec_from_file_location("training", EXAMPLES / "19_train_a_transformer.py")
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
    with module.reproducible():
        yield module


@pytest.mark.parametrize("device, kind", RUNS)
def test_the_loss_curve_is_that_of_eager_attention(example, device, kind):
    curves, _ = example.compare(device, kind)
    assert all(len(losses) == 200 for losses in curves.values())
    example.check(curves, kind)


@pytest.mark.parametrize("device, kind", RUNS)
def test_training_repeats_to_the_bit(example, device, kind):
    assert example.train(example.by_heed, device, kind, 40) == example.train(example.by_heed, device, kind, 40)


@pytest.mark.parametrize("device", devices())
def test_a_small_mistake_in_the_gradients_shows(example, device):
    """What the comparison above is worth: one key/value head in two learns a little less, and the curve is another."""

    def nearly(q, k, v):
        halves = torch.tensor([1.0, 0.9], device=k.device)[:, None]
        return heed.attention(q, k * halves + (k * (1 - halves)).detach(), v, causal=True, deterministic=True)

    losses = {"heed": example.train(nearly, device), "eager": example.train(example.eager, device)}
    with pytest.raises(AssertionError, match="apart"):
        example.check(losses, "f32")
