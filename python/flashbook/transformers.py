"""Hugging Face transformers: `import flashbook.transformers`, then attn_implementation="flashbook".

Prefill and training take flash_attn_func's kernels, windows and softcaps too; one new token against a cache takes chapter 8's. Padded batches
are refused: give sequences of one length, or packed ones without padding.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask

from flashbook import ops
from flashbook.interface import _attend, _is_direct, _refuse_dropout, _scale

NAME = "flashbook"


def attention(module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None = None, *, dropout: float = 0.0,
              scaling: float | None = None, sliding_window: int | None = None, softcap: float | None = None, is_causal: bool | None = None,
              **others: Any) -> tuple[Tensor, None]:
    """What transformers calls in a layer. query is [batch, heads, seqlen, head_dim], the result [batch, seqlen, heads, head_dim]."""
    if attention_mask is not None:
        raise NotImplementedError("the batch is padded, or has a mask of its own: flashbook takes full, causal and windowed attention of sequences "
                                  'of one length. Use attn_implementation="sdpa"')
    if others.get("s_aux") is not None:
        raise NotImplementedError('this model has attention sinks with weights, which flashbook has not: use attn_implementation="eager"')
    _refuse_dropout(dropout if module.training else 0.0)
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    scale = _scale(scaling, query.shape[-1])
    queries, keys = query.shape[2], key.shape[2]
    left = sliding_window - 1 if sliding_window is not None and sliding_window <= keys else -1  # transformers counts a query's own key
    if queries == 1 and left < 0 and not softcap and not (torch.is_grad_enabled() and query.requires_grad):
        decode = ops.decode if _is_direct(query, key, value) else torch.ops.flashbook.decode
        o, _ = decode(query, key, value, None, None, scale, False)
    else:
        o, _ = _attend(query, key, value, scale, left, 0 if causal else -1, softcap or 0.0, None, None, None, False)
    return o.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, flash_attention_mask)  # None, or which tokens are padding
