"""What the examples share: how one says that it cannot run here."""

import sys

SKIPPED = 77


def skip(reason):
    """Ends the program: it needs something that is not here."""
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def need_torch():
    try:
        import torch
    except ImportError:
        skip("it needs torch")
    return torch


def need_cuda():
    torch = need_torch()
    if not torch.cuda.is_available():
        skip("it needs a CUDA GPU that torch can use")
    return torch
