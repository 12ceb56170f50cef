"""Hugging Face transformers: `import flashbook.transformers`, then attn_implementation="flashbook".

This package has FlashAttention's signatures, so transformers' own FlashAttention code (padding, packed sequences, sliding windows) can call it.
transformers treats every name containing "flash" as a package to import; `_load_or_flashbook` returns our functions instead. transformers also
drops options that a function has no argument for, without an error, so `_forward` rejects them.
"""

from typing import Any

try:
    from transformers import AttentionInterface, modeling_flash_attention_utils
    from transformers.integrations.flash_attention import flash_attention_forward
    from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask

    _load, _pad, _unpad = (getattr(modeling_flash_attention_utils, name) for name in ("_lazy_imports", "_pad_input", "_unpad_input"))
except (ImportError, AttributeError) as error:
    raise ImportError(f"flashbook.transformers supports transformers 5.17, and another version is installed ({error}): "
                      "pip install 'transformers==5.17.*'") from error

import flashbook

NAME = "flashbook"


def _load_or_flashbook(implementation: str | None, *others: Any, **options: Any) -> Any:
    if implementation != NAME:
        return _load(implementation, *others, **options)
    return flashbook.flash_attn_func, flashbook.flash_attn_varlen_func, flashbook.flash_attn_with_kvcache, _pad, _unpad


def _forward(*arguments: Any, **options: Any) -> Any:
    if options.get("s_aux") is not None:
        raise NotImplementedError('the model has learned sinks (s_aux), which attn_implementation="flashbook" does not support: use "eager"')
    return flash_attention_forward(*arguments, **options)


modeling_flash_attention_utils._lazy_imports = _load_or_flashbook
AttentionInterface.register(NAME, _forward)
AttentionMaskInterface.register(NAME, flash_attention_mask)
