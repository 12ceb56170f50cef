"""What the package refuses of the calls in others' tests: nothing else may be refused there.

Each has the arguments, or functions, that the tables of docs/pages/in_pytorch.md or the lines beside them name, and what the error says. python/tests/test_others.py holds the names
against the page.
"""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Refusal:
    name: str
    arguments: tuple[str, ...]  # as the tables of the page have them
    says: str  # a regular expression that the error's message matches
    kind: type[Exception] = NotImplementedError

    def is_for(self, error: BaseException) -> bool:
        return isinstance(error, self.kind) and re.search(self.says, str(error)) is not None


REFUSALS = (
    Refusal("dropout", ("dropout_p",), r"^dropout_p is .*has no gradient of that"),
    Refusal("a head dimension that is no multiple of 8", ("q",), r"^head_dim is \d+: give a multiple of 8 up to 256", ValueError),
    Refusal("a head dimension that chapter 8 does not pad", ("k_cache",), r"^head_dim is \d+, and chapter 8 has 64, 128, 256 against a cache"),
    Refusal("keys and values of different head dimensions", ("q",), r"^k is .* and v is .*: give one shape", ValueError),
    Refusal("slopes by batch entry", ("alibi_slopes",), r"slopes by batch entry are FlashAttention's", ValueError),
    Refusal("float8_e4m3fn under a mask, or packed", ("q",), r"chapter 9 does not take e4m3", ValueError),
    Refusal("float8_e4m3fn of a head dimension that chapter 6 does not pad", ("q",), r"^head dimensions between 64, 128 and 256 are for chapters", ValueError),
    Refusal("pages of other sizes", ("k_cache",), r"[Pp]ages? .*(16|rows)", ValueError),
    Refusal("a gradient through pages", ("block_table",), r"^no gradient goes through (pages|a cache)"),
    Refusal("a second product in the scores", ("qv",), r"^qv is .* and only None is taken here"),
    Refusal("chunks", ("attention_chunk",), r"^attention_chunk is .* and only 0 is taken here"),
    Refusal("sequences that end before their place does", ("seqused_q", "seqused_k"), r"^seqused_[qk] is .* and only None is taken here"),
    Refusal("packed new keys, or packed queries beside new keys", ("cu_seqlens_k_new",),
            r"^cu_seqlens_k_new is .* and only None is taken here|^cu_seqlens_q packs queries, and only"),
    Refusal("a plan made beforehand", ("scheduler_metadata",), r"^scheduler_metadata is .* and only None is taken here"),
    Refusal("functions that are not here", ("flash_attn_combine", "get_scheduler_metadata"), r"^(flash_attn_combine|get_scheduler_metadata) is not here"),
    Refusal("multiprocessors left free", ("sm_margin",), r"^sm_margin is .* and only 0 is taken here"),
    Refusal("scales of packed sequences and caches", ("q_descale",), r"^[qkv]_descale is .* and only None is taken here"),
)


def refusal_of(error: BaseException) -> Refusal | None:
    return next((refusal for refusal in REFUSALS if refusal.is_for(error)), None)
