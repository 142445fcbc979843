"""A small transformer learns to copy, once with heed and once with attention written out: the loss curves are one curve.

    python 19_train_a_transformer.py                              # on the CPU, or a GPU where torch has one
    python 19_train_a_transformer.py --device=cuda --type=bf16    # attention computes in bfloat16, the rest in float32
    python 19_train_a_transformer.py --plots=FOLDER               # training-cpu.json, .svg, and .png where matplotlib is

A sequence is random tokens, and then the same tokens again. The second half can be told from the first; a model that looks back
the right number of places has a loss near 0, one that guesses has ln(number of tokens) = 2.77. Every run of one
machine has the same bits (deterministic=True).
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import sys
import time

from example import need_torch

torch = need_torch()

import heed  # noqa: E402

STEPS, BATCH, TOKENS, HALF = 200, 16, 16, 24
WIDTH, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 64, 2, 4, 2, 32
#: Largest distance of the two curves. Rounding differs from the first step on, and training magnifies it.
SAME = {"f32": 1e-3, "bf16": 2e-2, "f16": 5e-3}
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def by_heed(q, k, v):
    return heed.attention(q, k, v, causal=True, deterministic=True)


def eager(q, k, v):
    """The formula, step by step, with autograd's own gradients."""
    group = q.shape[2] // k.shape[2]
    k, v = (each.repeat_interleave(group, 2) for each in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q, k).float() / math.sqrt(q.shape[-1])
    later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    weights = torch.softmax(scores.masked_fill(later, -math.inf), -1).to(v.dtype)
    return torch.einsum("bhij,bjhd->bihd", weights, v)


ATTENTIONS = {"heed": by_heed, "eager": eager}


class Block(torch.nn.Module):
    def __init__(self, attention, dtype):
        super().__init__()
        self.attention, self.dtype = attention, dtype
        self.before_attention, self.before_feed = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv = torch.nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * HEAD_DIM, bias=False)
        self.out = torch.nn.Linear(HEADS * HEAD_DIM, WIDTH, bias=False)
        self.feed = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.GELU(), torch.nn.Linear(2 * WIDTH, WIDTH)
        )

    def forward(self, x):
        heads = self.qkv(self.before_attention(x)).unflatten(-1, (-1, HEAD_DIM)).to(self.dtype)
        q, k, v = heads.split([HEADS, KV_HEADS, KV_HEADS], 2)  # views of one tensor: nothing is copied
        x = x + self.out(self.attention(q, k, v).flatten(2).to(x.dtype))
        return x + self.feed(self.before_feed(x))


class Model(torch.nn.Module):
    def __init__(self, attention, dtype):
        super().__init__()
        self.token, self.place = torch.nn.Embedding(TOKENS, WIDTH), torch.nn.Embedding(2 * HALF, WIDTH)
        self.blocks = torch.nn.Sequential(*(Block(attention, dtype) for _ in range(LAYERS)))
        self.head = torch.nn.Sequential(torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, TOKENS))

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.blocks(self.token(tokens) + self.place(places)))


def train(attention, device="cpu", type_name="f32", steps=STEPS):
    """The loss of each step. Everything random comes from one seed, and is drawn on the CPU."""
    torch.manual_seed(1)
    model = Model(attention, TYPES[type_name]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / 20, max(1 - step / steps, 0.05))
    )
    losses = []
    for _ in range(steps):
        half = torch.randint(TOKENS, (BATCH, HALF))
        tokens = torch.cat([half, half], 1).to(device)
        guesses = model(tokens[:, :-1])[:, HALF - 1 :]
        loss = torch.nn.functional.cross_entropy(guesses.flatten(0, 1), tokens[:, HALF:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    return torch.stack(losses).tolist()


@contextlib.contextmanager
def reproducible():
    """The same bits in every run, on every number of cores: tensors this small gain nothing from threads."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what torch asks for on a GPU
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1])


def compare(device, type_name):
    """{"heed": losses, "eager": losses}, and seconds of each."""
    curves, seconds = {}, {}
    for name, attention in ATTENTIONS.items():
        begin = time.perf_counter()
        curves[name] = train(attention, device, type_name)
        seconds[name] = time.perf_counter() - begin
    return curves, seconds


def distance(curves):
    return max(abs(ours - theirs) for ours, theirs in zip(curves["heed"], curves["eager"]))


def check(curves, type_name):
    """Both learn, and learn the same."""
    for name, losses in curves.items():
        assert losses[0] > 2.5, f"{name} knows the answer before it has learnt anything: loss {losses[0]}"
        assert losses[-1] < 0.1, f"{name} has not learnt to copy: loss {losses[-1]}"
    assert distance(curves) <= SAME[type_name], f"the curves are {distance(curves):.1e} apart"


def save(folder, device, type_name, curves, seconds):
    """The record and its picture."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
    import plots
    from machine import machine

    stem = f"training-{device}" + ("" if type_name == "f32" else f"-{type_name}")
    record = {"machine": machine(device), "type": type_name, "distance": distance(curves), "seconds": seconds}
    file = folder / f"{stem}.json"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**record, "curves": curves}) + "\n")
    plots.say([file, *plots.draw(file, folder)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--type", choices=TYPES, default="f32")
    parser.add_argument("--plots", type=pathlib.Path, help="folder for the curves, as JSON and as pictures")
    options = parser.parse_args()
    with reproducible():
        curves, seconds = compare(options.device, options.type)
        again = train(by_heed, options.device, options.type)
        if options.plots:
            save(options.plots, options.device, options.type, curves, seconds)
    for step in (*range(0, STEPS, 20), STEPS - 1):
        print(f"step {step:>3}: " + ", ".join(f"{name} {losses[step]:.5f}" for name, losses in curves.items()))
    for name, each in seconds.items():
        print(f"{name:>5}: {each:.1f} s for {STEPS} steps")
    print(f"the curves are at most {distance(curves):.1e} apart")
    check(curves, options.type)
    assert again == curves["heed"], "the same bits in every run"


if __name__ == "__main__":
    main()
