"""How alike two texts of code are, whatever their names, numbers, comments and layout: the share of the shorter one's runs of tokens that the
other has too. A column for a teacher to look at, and no verdict: short answers to one question are alike."""
from collections.abc import Iterable
from pathlib import Path

from course import gate

RUN = 12  # tokens
LEAST = 25  # runs; a text with fewer says nothing
ALIKE = 0.8  # from here on two texts are named
KEYWORDS = frozenset("alignas auto bool break case char const constexpr continue default do double else enum false float for if inline int long "
                     "namespace operator return short signed sizeof static struct switch template this true typename unsigned using void "
                     "volatile while".split())

Runs = frozenset[tuple[str, ...]]


def tokens(lines: Iterable[str]) -> list[str]:
    found = []
    for token in gate.TOKEN.finditer("\n".join(lines)):
        kind, text = token.lastgroup or "", token[0]
        if kind not in ("space", "comment", "open_comment"):
            found.append(text if kind in ("other", "digraph") or text in KEYWORDS else kind)
    return found


def runs(lines: Iterable[str], known: Runs = frozenset()) -> Runs:
    """The runs of tokens of a text, without those that everybody has."""
    every = tokens(lines)
    return frozenset(tuple(every[i:i + RUN]) for i in range(len(every) - RUN + 1)) - known


def likeness(one: Runs, other: Runs) -> float:
    """From 0 to 1; 0 where there is too little to tell."""
    least = min(len(one), len(other))
    return len(one & other) / least if least >= LEAST else 0.0


def of_the_book(root: Path) -> Runs:
    """The runs of all its kernels and of what they share: whoever writes a capstone has read them."""
    files = [*root.glob("chapters/*/*.cuh"), *root.glob("common/hopper/*.h"), *root.glob("course/solutions/capstones/*.cuh")]
    return frozenset().union(*(runs(file.read_text(encoding="utf-8").splitlines()) for file in files))
