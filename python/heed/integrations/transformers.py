"""heed as an attention implementation of Hugging Face transformers:

heed.integrations.transformers.register()
model = AutoModelForCausalLM.from_pretrained(..., attn_implementation="heed")
"""

from __future__ import annotations

from typing import Any

import torch

from .._attention import attention, attention_varlen
from .._errors import UnsupportedError
from .._libraries.torch_autocast import autocast
from .._mask import Mask

#: What layers hand over for the use of others, and what changes nothing in what is computed here.
HARMLESS = frozenset(
    {
        "cache_position",
        "logits_to_keep",
        "num_items_in_batch",
        "output_hidden_states",
        "output_router_logits",
        "position_embeddings",
        "position_ids",
        "return_dict",
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
    cu_seq_lens_q: Any = None,
    cu_seq_lens_k: Any = None,
    max_length_q: int | None = None,
    max_length_k: int | None = None,
    sliding_window: int | None = None,
    deterministic: bool | None = None,
    **others: Any,
) -> tuple[Any, None]:
    """query (b, h, s_q, d), key and value (b, h_k, s_k, d). Returns o (b, s_q, h, d_v).

    cu_seq_lens_q and cu_seq_lens_k (padding-free training) say where documents begin that lie one behind the other in a batch
    of 1, and do not see each other. A mask has the window already; without one sliding_window says it of documents.
    """
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
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    options: dict[str, Any] = {
        "dropout_p": dropout,
        "scale": scaling,
        "softcap": softcap or 0.0,
        "sink": None if s_aux is None else s_aux.float(),
        "deterministic": bool(deterministic),
    }
    if cu_seq_lens_q is not None or cu_seq_lens_k is not None:
        _check_packed(query, cu_seq_lens_q, cu_seq_lens_k, attention_mask, position_bias)
        if attention_mask is None:
            q, k, v = (each[0].transpose(0, 1) for each in autocast(query, key, value))
            o = attention_varlen(
                q,
                k,
                v,
                cu_seq_lens_q,
                cu_seq_lens_k,
                _longest(max_length_q, query),
                _longest(max_length_k, key),
                causal=causal,
                window=None if sliding_window is None else (sliding_window - 1, 0 if causal else sliding_window - 1),
                **options,
            )
            return o[None], None
        # It may have been made without a look at the documents, and it may have more in it than they.
        attention_mask = attention_mask & _same_document(query, key, cu_seq_lens_q, cu_seq_lens_k)
    mask, bias = _mask_and_bias(query, attention_mask, position_bias, causal)
    # Rotary embeddings may leave queries and keys in float32 beside values in autocast's type.
    query, key, value, bias = autocast(query, key, value, bias)
    # Results as [b, s, h, d], which is how the layers want them.
    o = attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        mask=mask,
        bias=bias,
        **options,
    )
    return o.contiguous(), None


def _mask_and_bias(query: Any, attention_mask: Any, position_bias: Any, causal: bool) -> tuple[Any, Any]:
    """Without a mask of theirs a causal layer is top-left: it is the first pass, maybe with room behind it in the cache."""
    if attention_mask is None:
        return (Mask.causal_top_left() if causal and query.shape[2] > 1 else None), position_bias
    if str(attention_mask.dtype) == "torch.bool":
        return attention_mask, position_bias
    return None, attention_mask if position_bias is None else attention_mask + position_bias


def _check_packed(query: Any, starts_q: Any, starts_k: Any, attention_mask: Any, position_bias: Any) -> None:
    if starts_q is None or starts_k is None:
        raise UnsupportedError("one of cu_seq_lens_q and cu_seq_lens_k: documents that do not see each other need both.")
    if query.shape[0] != 1:
        raise UnsupportedError(f"cu_seq_lens_q with a batch of {query.shape[0]}: documents lie in one row, a batch of 1.")
    if position_bias is not None:
        raise UnsupportedError("cu_seq_lens_q with a position_bias: it is of the whole row, and not of each document.")
    if attention_mask is not None and attention_mask.dtype is not torch.bool:
        raise UnsupportedError("cu_seq_lens_q with a mask of numbers: leave the mask out, or pass booleans (True: keep).")


def _longest(told: Any, tensor: Any) -> Any:
    """Callers tell any bound, the longest context for example; heed takes none above the rows there are."""
    if told is None:
        return None
    return min(int(told) if isinstance(told, torch.Tensor) else told, tensor.shape[2])


def _same_document(query: Any, key: Any, starts_q: Any, starts_k: Any) -> Any:
    """Boolean [s_q, s_k]."""
    of_q, of_k = (
        torch.bucketize(torch.arange(tensor.shape[2], device=tensor.device), starts[1:].to(torch.int64), right=True)
        for tensor, starts in ((query, starts_q), (key, starts_k))
    )
    return of_q[:, None] == of_k[None, :]
