"""heed as an attention implementation of Hugging Face transformers:

heed.integrations.transformers.register()
model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="heed")
"""

from __future__ import annotations

from typing import Any

from .._attention import attention
from .._errors import UnsupportedError
from .._mask import Mask

#: What layers hand over for the use of others, and what changes nothing in what is computed here.
HARMLESS = frozenset(
    {
        "cache_position",
        "cu_seq_lens_k",
        "cu_seq_lens_q",
        "logits_to_keep",
        "max_length_k",
        "max_length_q",
        "num_items_in_batch",
        "position_embeddings",
        "position_ids",
        "return_dict",
        "sliding_window",  # the mask has it already
        "use_cache",
    }
)


def register(name: str = "heed") -> None:
    """Makes attn_implementation=name known to transformers. Masks are made as for its "sdpa": booleans, or none."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(name, heed_attention_forward)
    AttentionMaskInterface.register(name, sdpa_mask)


def heed_attention_forward(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Any = None,
    position_bias: Any = None,
    cache: Any = None,
    output_attentions: bool | None = None,
    **others: Any,
) -> tuple[Any, None]:
    """query (b, h, s_q, d), key and value (b, h_k, s_k, d). Returns o (b, s_q, h, d_v)."""
    if output_attentions:
        raise UnsupportedError(
            "output_attentions=True: heed never has the probabilities in memory; use 'eager' for them."
        )
    if cache is not None:
        raise UnsupportedError("a paged cache (continuous batching): heed has none yet.")
    unknown = [
        name for name, value in others.items() if name not in HARMLESS and value is not None and value is not False
    ]
    if unknown:
        raise UnsupportedError(f"{', '.join(unknown)}: heed does not know what it would mean for attention.")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    mask, bias = _mask_and_bias(query, attention_mask, position_bias, bool(causal))
    # Results as [b, s, h, d], which is how the layers want them.
    o = attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        mask=mask,
        bias=bias,
        dropout_p=dropout,
        scale=scaling,
        softcap=softcap or 0.0,
        sink=None if s_aux is None else s_aux.float(),
    )
    return o.contiguous(), None


def _mask_and_bias(query: Any, attention_mask: Any, position_bias: Any, causal: bool) -> tuple[Any, Any]:
    """Without a mask of theirs a causal layer is top-left: it is the first pass, maybe with room behind it in the cache."""
    if attention_mask is None:
        return (Mask.causal_top_left() if causal and query.shape[2] > 1 else None), position_bias
    if str(attention_mask.dtype) == "torch.bool":
        return attention_mask, position_bias
    return None, attention_mask if position_bias is None else attention_mask + position_bias
