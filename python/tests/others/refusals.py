"""The errors that other packages' own tests may end in; any other error is a failure.

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
    Refusal("dropout with a softcap", ("dropout_p",), r"^dropout_p is .* with softcap"),
    Refusal("new keys in 16 bits for a float8_e4m3fn cache", ("k_cache",), r"^k is .* and a float8_e4m3fn cache has scales"),
    Refusal("a cache of keys and values of different head dimensions", ("q",), r"^k is .* and v is .*: pass one shape", ValueError),
    Refusal("pages of other sizes with qv", ("qv",), r"[Pp]ages have 64 rows", ValueError),
    Refusal("a gradient through pages", ("block_table",), r"^(block_table is given, pages have no gradient|a cache has no gradient)"),
    Refusal("head dimensions above 256", ("q",), r"^head_dim is \d+: pass a multiple", ValueError),
    Refusal("rotary embedding of all keys in the kernel", (), r"^pos_encoding_mode is not in this package$"),
    Refusal("masks given pair by pair", (), r"^custom_mask is not in this package$"),
    Refusal("FP4, CUDA graphs of wrappers, and other options that only FlashInfer has", (), r"is not in this package$"),
    Refusal("more than 256 columns of q and qv", ("qv",), r"^q has \d+ columns and qv \d+, and kernels"),
)


def refusal_of(error: BaseException) -> Refusal | None:
    return next((refusal for refusal in REFUSALS if refusal.is_for(error)), None)
