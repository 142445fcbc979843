"""Attention of others, as functions of no argument over the same q, k, v [b, s, h, d]: what bench/compare.py runs beside heed.

A peer that is not installed, or refuses a problem, says why and is left out. peers() is open-ended: --peer=FILE.py adds the
peers(q, k, v, causal) of that file, whose functions return o. Triton's attention is a tutorial and no package: where
HEED_TRITON_TUTORIAL names its file (06-fused-attention.py), it takes part.
"""

import importlib
import importlib.util
import inspect
import os

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel


LONGEST_MATH = 2048


def heed_peer(q, k, v, causal):
    """o is allocated in every call, as everybody's is."""
    import heed

    return lambda: heed.attention(q, k, v, causal=causal)


def sdpa_peer(backend):
    def make(q, k, v, causal):
        if causal and q.shape[1] != k.shape[1]:
            raise NotImplementedError("its causal mask is top-left")
        if backend == SDPBackend.MATH and q.shape[1] > LONGEST_MATH:
            raise NotImplementedError(f"it keeps the whole matrix of scores: left out beyond s = {LONGEST_MATH}")
        turned = [each.transpose(1, 2) for each in (q, k, v)]
        gqa = {"enable_gqa": True} if q.shape[2] != k.shape[2] else {}  # torch 2.4 does not know the word

        def run():
            with sdpa_kernel(backend):
                return functional.scaled_dot_product_attention(*turned, is_causal=causal, **gqa).transpose(1, 2)

        return run

    return make


def flash_attn_peer(q, k, v, causal):
    function = importlib.import_module("flash_attn").flash_attn_func
    return lambda: function(q, k, v, causal=causal)


def flash_attn_3_peer(q, k, v, causal):
    function = importlib.import_module("flash_attn_interface").flash_attn_func

    def run():
        result = function(q, k, v, causal=causal)
        return result[0] if isinstance(result, tuple) else result

    return run


def flashinfer_peer(q, k, v, causal):
    function = importlib.import_module("flashinfer").single_prefill_with_kv_cache
    if q.requires_grad:
        raise NotImplementedError("it has no gradients")
    if q.shape[0] != 1:
        raise NotImplementedError("its plain function takes one sequence")
    return lambda: function(q[0], k[0], v[0], causal=causal)[None]


def xformers_peer(q, k, v, causal):
    ops = importlib.import_module("xformers.ops")
    if q.shape[2] != k.shape[2]:
        raise NotImplementedError("groups of heads need other shapes there")
    bias = ops.fmha.attn_bias.LowerTriangularFromBottomRightMask() if causal else None
    return lambda: ops.memory_efficient_attention(q, k, v, attn_bias=bias)


def module_of(file, name):
    specification = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def triton_peer(q, k, v, causal):
    """Of the tutorial's function the arguments have changed over the years, and their names have not."""
    file = os.environ.get("HEED_TRITON_TUTORIAL")
    if not file:
        raise ImportError("HEED_TRITON_TUTORIAL names no file")
    if q.shape[2] != k.shape[2]:
        raise NotImplementedError("it knows no groups of heads")
    function = module_of(file, "triton_tutorial")._attention
    turned = [each.transpose(1, 2).contiguous() for each in (q, k, v)]
    told = {"causal": causal, "sm_scale": q.shape[-1] ** -0.5, "warp_specialize": False, "USE_TMA": False}
    names = list(inspect.signature(function.forward).parameters)[4:]  # behind ctx, q, k, v
    return lambda: function.apply(*turned, *(told[name] for name in names)).transpose(1, 2)


PEERS = {
    "heed": heed_peer,
    "torch flash": sdpa_peer(SDPBackend.FLASH_ATTENTION),
    "torch efficient": sdpa_peer(SDPBackend.EFFICIENT_ATTENTION),
    "torch cuDNN": sdpa_peer(SDPBackend.CUDNN_ATTENTION),
    "torch math": sdpa_peer(SDPBackend.MATH),
    "flash_attn": flash_attn_peer,
    "flash_attn 3": flash_attn_3_peer,
    "flashinfer": flashinfer_peer,
    "xformers": xformers_peer,
    "triton tutorial": triton_peer,
}
#: What a CPU has.
ON_CPU = ("heed", "torch flash", "torch math")


def peers(q, k, v, causal, files=(), d_o=None):
    """({name: function}, {name: why it is left out}). Each has run once. With d_o the functions are backward passes, which
    return dq, dk and dv; their forward passes have run."""
    if d_o is not None:
        q, k, v = (each.detach().requires_grad_() for each in (q, k, v))
    found, missing, candidates = {}, {}, {}
    for name, make in PEERS.items():
        if not q.is_cuda and name not in ON_CPU:
            continue
        try:
            candidates[name] = make(q, k, v, causal)
        except Exception as error:
            missing[name] = reason(error)
    for file in files:
        candidates.update(module_of(file, "peer").peers(q, k, v, causal))
    for name, run in candidates.items():
        try:
            if d_o is not None:
                run = backward_of(run(), (q, k, v), d_o)
            run()
            if q.is_cuda:
                torch.cuda.synchronize()
            found[name] = run
        except Exception as error:
            missing[name] = reason(error)
    return found, missing


def backward_of(o, leaves, d_o):
    return lambda: torch.autograd.grad(o, leaves, d_o, retain_graph=True)


def reason(error):
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:200]
