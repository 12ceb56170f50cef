"""Updates generated text in Markdown pages: the text between a mark and its end.

    The second step takes <!-- num forward/ch01/register_tile/bf16/d128/full/n4096 ms .1f -->18.0<!-- /num --> ms.

    <!-- table split -->
    | KB of shared memory per tile | ...
    <!-- /table -->

A mark has a kind (`num`, `table` or `excerpt`: docs/tools/quote.py says how they are written) and words. A table begins
on the line below its mark. Marks in code are examples and are left alone. So are marks inside another marked text,
which is written as a whole."""
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"(\s*)(```+|~~~+)\s*(\w*).*")
CODE = re.compile(r"^(```|~~~).*?^\1|(?<!`)(`+)(?!`).*?(?<!`)\2(?!`)", re.S | re.M)


class Refused(Exception):
    """The reason why a marked text cannot be written. The text stays unchanged."""


@dataclass(frozen=True)
class Marked:
    """A mark and its text."""

    kind: str
    words: tuple[str, ...]
    text: str
    begin: int  # offset of the text in the page
    line: int  # line of the mark
    closed: bool

    @property
    def name(self) -> str:
        return " ".join([self.kind, *self.words])


class Fault(NamedTuple):
    line: int
    message: str


class Filled(NamedTuple):
    page: str  # the page as it should be
    stale: list[Fault]  # where the page was out of date
    refused: list[Fault]  # marks whose text cannot be written


Maker = Callable[[Marked], str]  # returns a mark's text, or raises Refused


def row(*cells: str) -> str:
    """Returns a line of a table."""
    return "| " + " | ".join(cells) + " |\n"


def marked(page: str, kinds: Sequence[str]) -> Iterator[Marked]:
    """Yields the marks of these kinds that a page has, in order."""
    code = [found.span() for found in CODE.finditer(page)]
    past = 0
    for opening in re.finditer(rf"<!--\s*({'|'.join(kinds)})\b((?:(?!-->).)*?)\s*-->\n?", page):
        if opening.start() < past or any(begin <= opening.start() < end for begin, end in code):
            continue
        kind, begin = opening[1], opening.end()
        end = re.compile(rf"<!--\s*(/?){kind}\b(?:(?!-->).)*-->").search(page, begin)
        closed = end is not None and end[1] == "/"
        text = page[begin:end.start()] if end and closed else ""
        past = end.end() if end and closed else begin
        yield Marked(kind, tuple(opening[2].split()), text, begin, page.count("\n", 0, opening.start()) + 1, closed)


def difference(place: Marked, wanted: str, same: Callable[[str], str]) -> Fault | None:
    """Returns the first line in which a marked text is out of date."""
    has, should_have = same(place.text).split("\n"), same(wanted).split("\n")
    if len(has) == 1 == len(should_have) and has != should_have:
        return Fault(place.line, f"says {has[0].strip()!r}, and should say {should_have[0].strip()!r}")
    for number, (is_, should_be) in enumerate(zip(has, should_have), place.line + 1):
        if is_ != should_be:
            return Fault(number, f"{place.name}: says\n  {is_}\nand should say\n  {should_be}")
    return None


def filled(page: str, makers: Mapping[str, Maker], expected: Sequence[str] = (), same: Callable[[str], str] = str) -> Filled:
    """Returns the page with the texts from `makers`, which are keyed by the marks' kinds. `expected`, if not empty,
    lists the marks that it must have exactly once, such as "table split"; other marks of their kinds are left alone.
    Texts that are equal after `same` are up to date."""
    stale, refused, pieces, past = [], [], [], 0
    places = list(marked(page, list(makers)))
    for place in places:
        pieces.append(page[past:place.begin])
        past = place.begin
        if not place.closed:
            refused.append(Fault(place.line, f"a {place.kind} that is not closed: write <!-- /{place.kind} --> after it"))
            continue
        if expected and place.name not in expected:  # belongs to another program
            continue
        try:
            wanted = makers[place.kind](place)
        except Refused as reason:
            refused.append(Fault(place.line, str(reason)))
            continue
        fault = difference(place, wanted, same)
        if fault:
            stale.append(fault)
        pieces.append(wanted if "\n" not in wanted or page[place.begin - 1] == "\n" else "\n" + wanted)
        past = place.begin + len(place.text)
    names = [place.name for place in places]
    refused += [Fault(1, f"should have <!-- {name} --> once, and has it {names.count(name)} times") for name in expected if names.count(name) != 1]
    return Filled("".join(pieces) + page[past:], stale, refused)


def update(path: Path, makers: Mapping[str, Maker], check: bool, expected: Sequence[str] = (), same: Callable[[str], str] = str) -> bool:
    """Updates a page or, with `check`, reports where it is out of date. Either way, it reports texts that cannot be
    written. Returns whether there was nothing to report."""
    page = path.read_text(encoding="utf-8")
    wanted, stale, refused = filled(page, makers, expected, same)
    if not check and wanted != page:
        path.write_text(wanted, encoding="utf-8")
        print(f"{path}: updated")
    faults = sorted(stale + refused if check else refused)
    for line, message in faults:
        print(f"{path}:{line}: {message}", file=sys.stderr)
    return not faults
