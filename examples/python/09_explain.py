"""Which kernel runs, why, and why not the others; before there is any memory, too."""

import numpy as np

import heed

q = np.zeros((1, 512, 8, 64), np.float32)
explanation = heed.explain(q, q, q, causal=True)
print(explanation)
assert explanation.kernel in {each["name"] for each in heed.kernels() if each["runs_here"]}
assert all(each.reason for each in explanation.candidates)

# One query against a long cache asks for another kernel.
decoding = heed.Problem(type="bf16", batch=4, heads=(32, 8), lengths=(1, 8192), head_dims=128)
chosen = heed.explain(decoding, engine="cpu").kernel
print(f"decoding runs {chosen}")
assert chosen is not None and chosen != explanation.kernel

# A plan can be held to a kernel: the same answer from another one.
q, k, v = (np.random.default_rng(each).standard_normal((1, 64, 4, 64), dtype=np.float32) for each in range(3))
answers = {}
for each in heed.explain(q, k, v).candidates:
    if each.rule in ("", "outranked") and each.name.startswith("cpu/"):
        answers[each.name] = heed.plan(q, k, v, kernel=each.name).run(q, k, v)
spread = max(np.abs(a - b).max() for a in answers.values() for b in answers.values())
print(f"{len(answers)} kernels agree within {spread:.1e}")
assert len(answers) > 1 and spread < 1e-5
