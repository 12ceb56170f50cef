"""What the package refuses of the calls in others' tests: nothing else may be refused there.

Each has the arguments, or functions, that the tables of docs/pages/in_pytorch.md or the lines beside them name, and what the error says.
"""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Refusal:
    name: str
    arguments: tuple[str, ...]  # as the tables of the page have them
    says: str  # a regular expression that the error's message matches
    kind: type[Exception] | tuple[type[Exception], ...] = NotImplementedError

    def is_for(self, error: BaseException) -> bool:
        return isinstance(error, self.kind) and re.search(self.says, str(error)) is not None


REFUSALS = (
    Refusal("the probabilities that dropout left", ("return_attn_probs",), r"^return_attn_probs is True beside dropout_p"),
    Refusal("dropout beside a function on scores", ("dropout_p",), r"^dropout_p is .* beside (softcap|alibi_slopes)"),
    Refusal("a cache in float8_e4m3fn of a head dimension that chapter 8 does not pad", ("k_cache",), r"^head_dim is \d+, and a cache in float8_e4m3fn"),
    Refusal("new keys beside a cache in float8_e4m3fn", ("k_cache",), r"^k and v are given beside a cache in float8_e4m3fn"),
    Refusal("keys and values of different head dimensions", ("q",), r"^k is .* and v is .*: give one shape", ValueError),
    Refusal("float8_e4m3fn under a mask, or packed", ("q",), r"chapter 9 does not take e4m3", ValueError),
    Refusal("float8_e4m3fn of a head dimension that chapter 6 does not pad", ("q",), r"does not support head dimensions other than", ValueError),
    Refusal("pages of other sizes", ("k_cache",), r"[Pp]ages? .*(16|rows)", ValueError),
    Refusal("a gradient through pages", ("block_table",), r"^no gradient goes through (pages|a cache)"),
    Refusal("a second product in the scores", ("qv",), r"^qv is .* and only None is taken here"),
    Refusal("chunks", ("attention_chunk",), r"^attention_chunk is .* and only 0 is taken here"),
    Refusal("sequences that end before their place does", ("seqused_q", "seqused_k"), r"^seqused_[qk] is .* and only None is taken here"),
    Refusal("packed new keys, or packed queries beside new keys", ("cu_seqlens_k_new",),
            r"^cu_seqlens_k_new is .* and only None is taken here|^cu_seqlens_q packs queries, and only"),
    Refusal("functions that are not here", ("flash_attn_combine",), r"^flash_attn_combine is not here"),
    Refusal("multiprocessors left free", ("sm_margin",), r"^sm_margin is .* and only 0 is taken here"),
    Refusal("paddings beside pages", ("cache_leftpad",), r"^cache_leftpad is for caches without pages", ValueError),
    Refusal("packed queries against a cache without pages", ("cu_seqlens_q",), r"^cu_seqlens_q packs queries against pages", ValueError),
    Refusal("queries in float8_e4m3fn against a cache", ("q",), r"^chapter 8 does not take e4m3", ValueError),
    Refusal("scales of packed sequences and caches", ("q_descale",), r"^[qkv]_descale is .* and only None is taken here"),
)


def refusal_of(error: BaseException) -> Refusal | None:
    return next((refusal for refusal in REFUSALS if refusal.is_for(error)), None)
