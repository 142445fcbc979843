"""Tensors that require a gradient, and the comparison of one with fp64."""

import numpy as np
import pytest
import torch
from conftest import Data

import heed

TOLERANCE = {torch.float32: 3e-5, torch.float16: 2e-2, torch.bfloat16: 1.2e-1}  # of the largest element


def leaf(array, device, dtype=torch.float32):
    return torch.from_numpy(array).to(device, dtype).requires_grad_()


def qkv(device, dtype=torch.float32, seed=0, **shape):
    return [leaf(each, device, dtype) for each in Data(seed).qkv(**{"d": 32, **shape})]


def gradients(loss, inputs):
    try:
        return torch.autograd.grad(loss, inputs)
    except heed.UnsupportedError as refusal:
        pytest.skip(f"no backward pass here: {str(refusal).splitlines()[0]}")


def numpy(tensor):
    return tensor.detach().float().cpu().numpy()


def close(got, expected, dtype, name):
    """NaN in the oracle's result: rows of no sequence, whose gradient is 0."""
    expected = np.nan_to_num(expected)
    error = np.abs(numpy(got) - expected).max() / max(np.abs(expected).max(), 1e-3)
    assert error <= TOLERANCE[dtype], f"{name}: {error:.1e} of the largest element"
