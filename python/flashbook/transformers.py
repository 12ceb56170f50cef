"""Hugging Face transformers: `import flashbook.transformers`, then attn_implementation="flashbook".

The functions of this package have FlashAttention's signatures, so transformers' own code for FlashAttention (padding, packed sequences, sliding
windows) calls them. It takes every name with "flash" in it for a package that it should load; for ours it is told here that it is loaded. It
leaves out in silence what a function has no argument for, so that is refused here.
"""

from typing import Any

try:
    from transformers import AttentionInterface, modeling_flash_attention_utils
    from transformers.integrations.flash_attention import flash_attention_forward
    from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask

    _load, _pad, _unpad = (getattr(modeling_flash_attention_utils, name) for name in ("_lazy_imports", "_pad_input", "_unpad_input"))
except (ImportError, AttributeError) as error:
    raise ImportError(f"flashbook.transformers was tested with transformers 5.17, and this one is another ({error}): "
                      "pip install 'transformers==5.17.*'") from error

import flashbook

NAME = "flashbook"


def _load_or_flashbook(implementation: str | None, *others: Any, **options: Any) -> Any:
    if implementation != NAME:
        return _load(implementation, *others, **options)
    return flashbook.flash_attn_func, flashbook.flash_attn_varlen_func, flashbook.flash_attn_with_kvcache, _pad, _unpad


def _forward(*arguments: Any, **options: Any) -> Any:
    if options.get("s_aux") is not None:
        raise NotImplementedError('the model has learned sinks (s_aux), which attn_implementation="flashbook" does not take: give "eager"')
    return flash_attention_forward(*arguments, **options)


modeling_flash_attention_utils._lazy_imports = _load_or_flashbook
AttentionInterface.register(NAME, _forward)
AttentionMaskInterface.register(NAME, flash_attention_mask)
