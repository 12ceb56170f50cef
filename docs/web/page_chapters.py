"""What a chapter's pages offer in addition to steps and faults: masks, and options that some steps require. A mask lists the steps that support
it; the others must reject it (compare.py)."""
from dataclasses import dataclass, field


@dataclass
class Mask:
    words: str
    options: str  # options of the chapter's program, or --made (run.cpp)
    steps: tuple[str, ...] = ()  # steps that support it; empty means all


@dataclass
class Chapter:
    masks: dict[str, Mask]
    keys: str = "--seqlen"  # the option that N sets
    of_step: dict[str, str] = field(default_factory=dict)  # options that a step requires


FULL = {"full": Mask("full", "")}
PLAIN = FULL | {"causal": Mask("causal", "--causal")}
GRADIENT = ("backward", "deterministic")
RULES = ("ring", "paged", "equal_work")

CHAPTERS = {
    **{number: Chapter(PLAIN) for number in ("01", "02", "03", "04", "05", "06", "07")},
    "08": Chapter(FULL | {
        "window": Mask("a window of 20 keys", "--window 20 --causal", RULES),
        "softcap": Mask("softcap", "--softcap 5", RULES),
        "alibi": Mask("slopes (ALiBi)", "--alibi", RULES),
        "sinks": Mask("sinks", "--sinks 13", RULES),
        "pages": Mask("pages of 16 keys", "--page-rows 16", ("paged", "equal_work", "e4m3_cache")),
    }, "--seqlen-k", {"latent": "--head-dim 576 --heads 8 --kv-heads 1", "e4m3_cache": "--cache e4m3"}),
    "09": Chapter(PLAIN | {
        "window": Mask("a window of 40 keys", "--window 40 --causal"),
        "prefix": Mask("causal with a prefix", "--causal --prefix 40"),
        "documents": Mask("three documents", "--documents 3 --causal"),
        "pairs": Mask("pair by pair", "--made pairs", ("dense", *GRADIENT)),
        "intervals": Mask("intervals by key", "--made intervals", ("flashmask", *GRADIENT)),
        "blocks": Mask("listed blocks", "--made blocks", ("mask_functions", *GRADIENT)),
        "softcap": Mask("softcap", "--softcap 2", ("mask_functions", *GRADIENT)),
        "alibi": Mask("slopes (ALiBi)", "--alibi", ("mask_functions", *GRADIENT)),
        "both": Mask("softcap and slopes", "--softcap 2 --alibi", ("mask_functions", *GRADIENT)),
    }),
}
