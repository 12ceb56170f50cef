"""What a chapter's pages offer in addition to steps and faults: masks, and options that some steps require. A mask lists the steps that support
it; the others must reject it (compare.py)."""
from dataclasses import dataclass, field


@dataclass
class Mask:
    words: str
    options: str  # options of the chapter's program, or --made (run.cpp)
    steps: tuple[int, ...] = ()  # steps that support it; empty means all


@dataclass
class Chapter:
    masks: dict[str, Mask]
    keys: str = "--seqlen"  # the option that N sets
    of_step: dict[int, str] = field(default_factory=dict)  # options that a step requires


FULL = {"full": Mask("full", "")}
PLAIN = FULL | {"causal": Mask("causal", "--causal")}
GRADIENT = (6, 7)

CHAPTERS = {
    **{number: Chapter(PLAIN) for number in ("01", "02", "03", "04", "05", "06", "07")},
    "08": Chapter(FULL | {
        "window": Mask("a window of 20 keys", "--window 20 --causal", (4, 5, 6)),
        "softcap": Mask("softcap", "--softcap 5", (4, 5, 6)),
        "alibi": Mask("slopes (ALiBi)", "--alibi", (4, 5, 6)),
        "sinks": Mask("sinks", "--sinks 13", (4, 5, 6)),
        "pages": Mask("pages of 16 keys", "--page-rows 16", (5, 6, 8)),
    }, "--seqlen-k", {7: "--head-dim 576 --heads 8 --kv-heads 1", 8: "--cache e4m3"}),
    "09": Chapter(PLAIN | {
        "window": Mask("a window of 40 keys", "--window 40 --causal"),
        "prefix": Mask("causal with a prefix", "--causal --prefix 40"),
        "documents": Mask("three documents", "--documents 3 --causal"),
        "pairs": Mask("pair by pair", "--made pairs", (1, *GRADIENT)),
        "intervals": Mask("intervals by key", "--made intervals", (4, *GRADIENT)),
        "blocks": Mask("listed blocks", "--made blocks", (5, *GRADIENT)),
        "softcap": Mask("softcap", "--softcap 2", (5, *GRADIENT)),
        "alibi": Mask("slopes (ALiBi)", "--alibi", (5, *GRADIENT)),
        "both": Mask("softcap and slopes", "--softcap 2 --alibi", (5, *GRADIENT)),
    }),
}
