"""Excerpts of compiled files: lines of one file, or the changes from one step to the next.

    <!-- excerpt step4_register_tile.cuh -->
    ```cuda
    row_max = warp_max(row_max);
    ```
    <!-- /excerpt -->

    <!-- excerpt step1_single_warpgroup.cuh "for (int tile" to step2_specialised.cuh "for (int tile" -wgmma_pin -->
    ```diff
    ...
    ```
    <!-- /excerpt -->

The lines of one file are written by hand, with any indentation, and must be in that file. A difference is generated:
each side is a file next to the page and a selection from it. A text in quotes narrows the selection to the statement
that begins in the first line with that text and ends with its braces; more texts narrow it further. `kName=0` or `=1`
sets a switch: `if constexpr`, and `?:` between two words, keep the branch that is compiled. `-TEXT` omits the lines
with TEXT. Comments and blank lines are ignored and omitted. The last word may be `context=N`, the number of common
lines shown around a change (default: 1). docs/tools/quote.py writes and checks excerpts, except `fault`, which
`tests/mutation/plant.py page` handles.
"""
import difflib
import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from docs.tools import kernel_source, pages


@dataclass
class Side:
    """One side of a difference, as the mark names it."""

    file: str
    anchors: list[str] = field(default_factory=list)
    switches: dict[str, bool] = field(default_factory=dict)
    without: list[str] = field(default_factory=list)


def sides(words: Sequence[str]) -> tuple[Side, Side, int]:
    """Returns both sides and the lines of context that a mark's words request. Raises Refused if the words are
    invalid."""
    try:
        parts = shlex.split(" ".join(words))
    except ValueError as fault:
        raise pages.Refused(f"excerpt: {fault}") from None
    context = 1
    if parts and (found := re.fullmatch(r"context=(\d+)", parts[-1])):
        context, parts = int(found[1]), parts[:-1]
    if parts.count("to") != 1:
        raise pages.Refused("a difference is `excerpt FILE [\"TEXT\" kSwitch=1 -TEXT ...] to FILE [...] [context=N]`")
    made = []
    at = parts.index("to")
    for side in (parts[:at], parts[at + 1:]):
        if not side:
            raise pages.Refused("excerpt: a side names no file")
        made.append(Side(side[0]))
        for word in side[1:]:
            if found := re.fullmatch(r"(k\w+)=([01])", word):
                made[-1].switches[found[1]] = found[2] == "1"
            elif word.startswith("-"):
                made[-1].without.append(word[1:])
            else:
                made[-1].anchors.append(word)
    return made[0], made[1], context


def without_comments(lines: Sequence[str]) -> list[str]:
    """Returns only the code: no prose, comments or blank lines."""
    code = (line for line in lines if kernel_source.prose_of(line) is None)
    return [line for line in (re.sub(r"\s*//.*", "", line) for line in code) if line.strip()]


def end_of_statement(text: str, at: int) -> int:
    """Returns the end of the statement that begins at `at`, after its closing brace or semicolon. Raises Refused if it
    has none."""
    depth, braces = 0, False
    for i in range(at, len(text)):
        if text[i] in "({[":
            depth += 1
            braces |= text[i] == "{" and depth == 1
        elif text[i] in ")}]":
            depth -= 1
        if depth == 0 and (text[i] == ";" or (text[i] == "}" and braces)):
            return i + 1
    raise pages.Refused("excerpt: a statement has no end")


def moved(block: str, indent: str) -> str:
    """Returns the lines of a block, reindented. Preprocessor lines stay in the first column."""
    lines = block.split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in lines if not line.startswith("#")), default=0)
    return "\n".join(line if line.startswith("#") else indent + line[margin:] for line in lines)


def decided(text: str, switches: Mapping[str, bool]) -> str:
    """Returns the text without the branches that these switches remove."""
    for name, value in switches.items():
        text = re.sub(rf"\b(?:\w+::)?{name} \? ([\w:.]+) : ([\w:.]+)", r"\1" if value else r"\2", text)
        condition = re.compile(rf"^( *)if constexpr \((!?)(?:\w+::)?{name}\)\s*", re.MULTILINE)
        while found := condition.search(text):
            end = end_of_statement(text, found.end())
            chosen = text[found.end():end]
            if other := re.match(r"\s*else\s*", text[end:]):
                begin, end = end + other.end(), end_of_statement(text, end + other.end())
                chosen = chosen if value != bool(found[2]) else text[begin:end]
            elif value == bool(found[2]):
                chosen = ""
            if chosen.startswith("{"):
                chosen = moved(chosen[1:-1].strip("\n").rstrip(), found[1])
            else:  # the branch's other lines were indented by two more columns
                chosen = found[1] + chosen.replace("\n  ", "\n")
            text = text[:found.start()] + chosen + text[end:]
    return text


def taken(side: Side, folder: Path) -> list[str]:
    """Returns the lines of code that a side selects. Raises Refused if the file has no such statement."""
    path = folder / side.file
    if not path.is_file():
        raise pages.Refused(f"excerpt: there is no {side.file}")
    text = "\n".join(without_comments(kernel_source.lines_of(path)))
    for anchor in side.anchors:
        at = text.find(anchor)
        if at < 0:
            raise pages.Refused(f"excerpt: {side.file} has no {anchor!r}")
        begin = text.rfind("\n", 0, at) + 1
        text = text[begin:end_of_statement(text, begin)]
    text = decided(textwrap.dedent(text), side.switches)
    return [line for line in text.splitlines() if line.strip() and not any(word in line for word in side.without)]


def difference(words: Sequence[str], folder: Path) -> str:
    """Returns a fence with the removed and added lines."""
    before, after, context = sides(words)
    lines = list(difflib.unified_diff(taken(before, folder), taken(after, folder), n=context, lineterm=""))[2:]
    if not lines:
        raise pages.Refused("excerpt: both sides are the same")
    shown = ["" if line.startswith("@@") else line for line in lines]
    return "```diff\n" + "\n".join(shown).strip("\n") + "\n```\n"


def is_in(text: str, path: Path) -> bool:
    """Returns whether a file has these consecutive lines of code."""
    code = [line for line in kernel_source.lines_of(path) if kernel_source.prose_of(line) is None]
    count, wanted = len(text.splitlines()), textwrap.dedent(text)
    return bool(text) and any(textwrap.dedent("\n".join(code[i:i + count])) == wanted for i in range(len(code) - count + 1))


def excerpt(mark: pages.Marked, folder: Path) -> str:
    """Returns the text of an `excerpt`. Raises Refused if it cannot be generated or is not in its file."""
    if mark.words[:1] == ("fault",):
        return mark.text
    if len(mark.words) != 1:
        return difference(mark.words, folder)
    fence = re.fullmatch(r"(```+|~~~+).*?\n(.*)\n\1\n", mark.text, re.S)
    if not fence or not (folder / mark.words[0]).is_file() or not is_in(fence[2], folder / mark.words[0]):
        raise pages.Refused(f"excerpt: {mark.words[0]} has no such lines")
    return mark.text
