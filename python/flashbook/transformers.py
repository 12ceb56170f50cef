"""Hugging Face transformers: `import flashbook.transformers`, then attn_implementation="flashbook".

The functions of this package have FlashAttention's signatures, so transformers' own code for FlashAttention (padding, packed sequences, sliding
windows) calls them. It takes every name with "flash" in it for a package that it should load; for ours it is told here that it is loaded.
"""

from typing import Any

from transformers import AttentionInterface, modeling_flash_attention_utils
from transformers.integrations.flash_attention import flash_attention_forward
from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask

import flashbook

NAME = "flashbook"
_load = modeling_flash_attention_utils._lazy_imports


def _load_or_flashbook(implementation: str | None, *others: Any, **options: Any) -> Any:
    if implementation != NAME:
        return _load(implementation, *others, **options)
    return (flashbook.flash_attn_func, flashbook.flash_attn_varlen_func, flashbook.flash_attn_with_kvcache,
            modeling_flash_attention_utils._pad_input, modeling_flash_attention_utils._unpad_input)


modeling_flash_attention_utils._lazy_imports = _load_or_flashbook
AttentionInterface.register(NAME, flash_attention_forward)
AttentionMaskInterface.register(NAME, flash_attention_mask)
