"""A Hugging Face model on heed: attn_implementation="heed". A small random Llama, logits and text against eager attention."""

from example import need_torch, skip

torch = need_torch()
try:
    import transformers
except ImportError:
    skip("it needs transformers")

import heed.integrations.transformers  # noqa: E402

heed.integrations.transformers.register()
transformers.logging.set_verbosity_error()

torch.manual_seed(0)
config = transformers.LlamaConfig(
    vocab_size=101,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = (
    transformers.LlamaForCausalLM(config).to(device).eval()
)  # from_pretrained(..., attn_implementation="heed") works too
ids = torch.randint(3, 101, (2, 20), device=device)
logits, texts = {}, {}
for how in ("eager", "heed"):
    model.set_attn_implementation(how)
    with torch.no_grad():
        logits[how] = model(ids).logits
        texts[how] = model.generate(ids, max_new_tokens=20, do_sample=False, pad_token_id=0, eos_token_id=None)
error = (logits["heed"] - logits["eager"]).abs().max().item()
print(f"logits differ by {error:.1e}; the text is {'the same' if torch.equal(*texts.values()) else 'another'}")
assert error < 1e-4 and torch.equal(*texts.values())
