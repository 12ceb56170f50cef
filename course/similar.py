"""Measures how similar two pieces of code are, ignoring names, numbers, comments and layout: the fraction of the shorter one's token sequences that
the other also contains. It is a hint for a teacher, not a verdict: short answers to one question are similar anyway."""
from collections.abc import Iterable
from pathlib import Path

from course import gate

RUN = 12  # tokens
LEAST = 25  # runs; shorter texts are not compared
ALIKE = 0.8  # pairs at least this similar are listed
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
    """Returns a text's runs of tokens, without the `known` ones."""
    every = tokens(lines)
    return frozenset(tuple(every[i:i + RUN]) for i in range(len(every) - RUN + 1)) - known


def likeness(one: Runs, other: Runs) -> float:
    """Returns the similarity, from 0 to 1; 0 if a text is too short."""
    least = min(len(one), len(other))
    return len(one & other) / least if least >= LEAST else 0.0


def book_runs(root: Path) -> Runs:
    """Returns the runs of the book's kernels and shared headers, which authors of a capstone have read, and of its
    capstones."""
    files = [*root.glob("chapters/*/*.cuh"), *root.glob("common/hopper/*.h"), *root.glob("course/solutions/capstones/*.cuh")]
    return frozenset().union(*(runs(file.read_text(encoding="utf-8").splitlines()) for file in files))
