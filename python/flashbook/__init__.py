"""Flashbook's kernels as PyTorch operators, with FlashAttention's call signatures.

    from flashbook import flash_attn_func
    o = flash_attn_func(q, k, v, causal=True)  # [batch, seqlen, heads, head_dim]

`attention` runs any step of any chapter, on CPU tensors too.
"""

from flashbook.interface import (
    attention,
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_with_kvcache,
)

__version__ = "0.1.0"
__all__ = ["attention", "flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "flash_attn_with_kvcache"]
