"""What a call costs the caller's thread: heed.attention on small arrays beside torch's own attention.

    python bench/host_cost.py [--device=cpu|cuda] [--json=FILE] [--markdown=FILE] [--seconds=0.5]

Calls follow each other without waiting for the GPU, in batches that its queue holds; the best of many batches counts. Arrays are so
small that on a GPU the kernel is done before the next call; on the CPU the time holds the computation too, and the row "computation
alone" says how much that is: the same problem through heed.plan, which decides and checks nothing twice.
"""

import argparse
import json
import math
import pathlib
import sys
import time

from machine import machine

GOALS = {"heed.attention(q, k, v), torch on a GPU": 15.0, "heed.attention(q, k, v), NumPy": 10.0}
BATCH = 100  # calls; less than what a GPU's queue holds


def torch_calls(device):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    import heed

    on_gpu = device == "cuda"
    q = torch.randn(1, 8, 2, 64, device=device, dtype=torch.float16 if on_gpu else torch.float32)
    turned, out = q.transpose(1, 2), torch.empty_like(q)
    leaf = q.clone().requires_grad_()
    where = "torch on a GPU" if on_gpu else "torch on the CPU"
    sdpa = torch.nn.functional.scaled_dot_product_attention
    plan = heed.plan(q, q, q)
    starts = torch.tensor([0, 8], dtype=torch.int32, device=device)
    calls = {
        f"heed.attention(q, k, v), {where}": lambda: heed.attention(q, q, q),
        f"heed.attention(q, k, v, causal=True, return_lse=True), {where}": lambda: heed.attention(
            q, q, q, causal=True, return_lse=True
        ),
        f"heed.attention(q, k, v, out=out), {where}": lambda: heed.attention(q, q, q, out=out),
        f"heed.attention_varlen(...), {where}": lambda: heed.attention_varlen(q[0], q[0], q[0], starts, starts, 8, 8),
        f"plan.run(q, k, v, out=out), {where}": lambda: plan.run(q, q, q, out=out),
    }

    def backend(which):
        def call():
            return sdpa(turned, turned, turned)

        return call, which

    backends = {"flash": SDPBackend.FLASH_ATTENTION}
    if on_gpu:
        backends["cuDNN"] = SDPBackend.CUDNN_ATTENTION
    calls |= {f"torch SDPA, {name}, {where}": backend(which) for name, which in backends.items()}

    def train_heed():
        heed.attention(leaf, leaf, leaf).backward(q)

    def train_torch():
        seen = leaf.transpose(1, 2)
        sdpa(seen, seen, seen).backward(turned)

    with_gradient = {
        f"heed.attention(q, k, v).backward(d_o), {where}": train_heed,
        f"torch SDPA, flash, .backward(d_o), {where}": (train_torch, SDPBackend.FLASH_ATTENTION),
    }
    return calls, with_gradient, sdpa_kernel
