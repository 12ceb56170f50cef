"""The errors that FlashAttention's own tests may end in; any other error is a failure.

Each refusal lists arguments or functions, as named in the tables of docs/pages/in_pytorch.md or the text next to them, and a pattern of the error
message.
"""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Refusal:
    name: str
    arguments: tuple[str, ...]  # as in the page's tables
    says: str  # a regular expression for the error message
    kind: type[Exception] | tuple[type[Exception], ...] = NotImplementedError

    def is_for(self, error: BaseException) -> bool:
        return isinstance(error, self.kind) and re.search(self.says, str(error)) is not None


REFUSALS = (
    Refusal("probabilities after dropout", ("return_attn_probs",), r"^return_attn_probs is True with dropout_p"),
    Refusal("dropout with a score function", ("dropout_p",), r"^dropout_p is .* with (softcap|alibi_slopes)"),
    Refusal("a float8_e4m3fn cache with a head dimension that chapter 8 does not pad", ("k_cache",), r"^head_dim is \d+, and a cache in float8_e4m3fn"),
    Refusal("new keys for a float8_e4m3fn cache", ("k_cache",), r"^k and v cannot be appended to a float8_e4m3fn cache"),
    Refusal("a cache of keys and values of different head dimensions", ("q",), r"^k is .* and v is .*: pass one shape", ValueError),
    Refusal("float8_e4m3fn under a mask, or packed", ("q",), r"chapter 9 does not support e4m3", ValueError),
    Refusal("float8_e4m3fn with a head dimension that chapter 6 does not pad", ("q",), r"does not support head dimensions other than", ValueError),
    Refusal("tensors in float8_e4m3fn that require a gradient", ("q",), r"^q is torch.float8_e4m3fn and requires a gradient", TypeError),
    Refusal("pages of other sizes", ("k_cache",), r"[Pp]ages? .*(16|rows)", ValueError),
    Refusal("a gradient through pages", ("block_table",), r"^(block_table is given, pages have no gradient|a cache has no gradient)"),
    Refusal("a second product in the scores", ("qv",), r"^qv is .* and only None is supported here"),
    Refusal("chunks in float8_e4m3fn", ("attention_chunk",), r"^attention_chunk is .* with float8_e4m3fn"),
    Refusal("chunks, packed queries or packed new keys with a float8_e4m3fn cache", ("attention_chunk", "cu_seqlens_q", "cu_seqlens_k_new"),
            r"^(attention_chunk|cu_seqlens_q|cu_seqlens_k_new) cannot be combined"),
    Refusal("queries in float8_e4m3fn against a cache", ("q",), r"^chapter 8 does not support e4m3", ValueError),
    Refusal("scales for packed sequences and caches", ("q_descale",), r"^[qkv]_descale is .* and only None is supported here"),
)


def refusal_of(error: BaseException) -> Refusal | None:
    return next((refusal for refusal in REFUSALS if refusal.is_for(error)), None)
