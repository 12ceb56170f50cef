"""Flashbook's kernels as PyTorch operators, with FlashAttention's call signatures.

    from flashbook import flash_attn_func
    o = flash_attn_func(q, k, v, causal=True)  # [batch, seqlen, heads, head_dim]

The functions here follow FlashAttention-2; those in `flashbook.flash_attn_3` follow FlashAttention-3, and
`flashbook.flash_mla` has FlashMLA's sparse attention. `attention` runs any step of any chapter,
also on CPU tensors, and `explain` shows what a call would run. `context_parallel` computes attention over a sequence that is split across
processes.
"""

from flashbook.explain import Explanation, explain
from flashbook.flash_mla import sparse_latent_attention
from flashbook.interface import (
    attention,
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
    scaled_dot_product_attention,
)
from flashbook.ranks import context_parallel, shard, unshard

try:
    from flashbook._version import __version__  # written by the build; ends in +sim or +cu13
except ModuleNotFoundError:  # a checkout
    __version__ = "0+checkout"
__all__ = ["Explanation", "attention", "context_parallel", "explain", "flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func",
           "flash_attn_varlen_func", "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache",
           "scaled_dot_product_attention", "shard", "sparse_latent_attention", "unshard"]
