"""Which keys a query sees: two causal alignments, windows, sink keys, boolean and block masks."""

import numpy as np

import heed


def seen(s_q, s_k, **options):
    """What attention lets through: with equal scores and V = identity, o is positive where a key was visible."""
    q, k = np.zeros((1, s_q, 1, 8), np.float32), np.zeros((1, s_k, 1, 8), np.float32)
    v = np.eye(s_k, dtype=np.float32)[None, :, None, :]
    return heed.attention(q, k, v, **options)[0, :, 0] > 0


def draw(title, visible):
    print(title)
    for row in visible:
        print("   ", "".join("1" if each else "." for each in row))


draw("causal=True: the last query sees every key", seen(3, 6, causal=True))
draw('mask="t": query 0 sees key 0, as in torch\'s is_causal', seen(3, 6, mask="t"))
draw("window=(2, 0): two keys before the diagonal", seen(6, 6, window=(2, 0)))
draw("window=(1, 0, 2): and the first two keys always", seen(6, 6, window=(1, 0, 2)))

for text in ("b", "t", "b:2,0", "t:1,1", "b:1,0,2", "g:3,2"):
    assert np.array_equal(seen(5, 7, mask=text), heed.Mask.parse(text).visible(5, 7)), text

# A boolean mask is a further condition: True keeps.
keep = np.random.default_rng(0).random((6, 6)) < 0.5
assert np.array_equal(seen(6, 6, mask=keep, causal=True), keep & heed.Mask.causal().visible(6, 6))

# One boolean for each block of 2 queries by 3 keys.
blocks = np.array([[True, False], [False, True], [True, True]])
assert np.array_equal(seen(6, 6, block_mask=(blocks, 2, 3)), blocks.repeat(2, 0).repeat(3, 1))

# A row that sees nothing is 0, and its LSE is -inf.
q = np.ones((1, 4, 1, 8), np.float32)
o, lse = heed.attention(q, q[:, :2], q[:, :2], causal=True, return_lse=True)
assert (o[0, :2] == 0).all() and np.isneginf(lse[0, 0, :2]).all() and np.isfinite(lse[0, 0, 2:]).all()
