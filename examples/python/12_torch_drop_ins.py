"""Replace one import: flash_attn's functions, torch's scaled_dot_product_attention, or SDPA calls of code that you do not own."""

from example import need_torch

torch = need_torch()

import heed  # noqa: E402
from heed.compat.flash_attn import flash_attn_func, flash_attn_varlen_func  # noqa: E402
from heed.compat.sdpa import scaled_dot_product_attention  # noqa: E402
from heed.integrations.torch import use  # noqa: E402

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
q = torch.randn(2, 9, 4, 32, device=device)  # flash_attn: [b, s, h, d]
k, v = torch.randn(2, 2, 30, 2, 32, device=device)

# flash_attn is bottom-right causal, SDPA top-left: the same words mean different rows when the lengths differ.
by_flash = flash_attn_func(q, k, v, causal=True)
by_sdpa = scaled_dot_product_attention(
    q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True
).transpose(1, 2)
for result, mask in ((by_flash, "b"), (by_sdpa, "t")):
    report = heed.Validator(q, k, v, mask=mask).check(result)
    print(f"mask {mask}: {report}")
    assert report

starts = torch.tensor([0, 4, 18], dtype=torch.int32, device=device)
flat = q.reshape(18, 4, 32)
packed = flash_attn_varlen_func(flat, flat, flat, starts, starts, 14, 14, causal=True)
assert packed.shape == flat.shape

# A layer of torch's own, computed by heed inside the block.
layer = torch.nn.TransformerEncoderLayer(64, 4, batch_first=True, dropout=0.0).to(device)
x = torch.randn(2, 11, 64, device=device)
with torch.no_grad():
    expected = layer(x)
    with use():
        assert torch.nn.functional.scaled_dot_product_attention is scaled_dot_product_attention
        torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-4)
print("a TransformerEncoderLayer on heed: the same output")
