#!/usr/bin/env python3
"""Fills in the numbers, tables and excerpts of the Markdown pages, or checks them.

    quote.py [--check] [--results FOLDER] [FILE...]     default: every Markdown page of the book

A number    It takes <!-- num forward/ch01/register_tile/bf16/d128/full/n4096 ms .1f -->18.1<!-- /num --> ms.
    NAME FIELD and a Python format, or `3` for three digits. Several can be multiplied and divided, also with plain numbers, from left to right:
    `A ms / B ms .2f`, `100 * A of_product .0f`. CARD:NAME takes the results of another card, which the page must name. A list in brackets
    stands for each of its words; `mean`, `least`, `most`, `count` or `behind` (how many are below 1) in front reduces them to one number: `mean
    A/d[64,128] vs_cudnn .2f`. With such a word, a name with `*` stands for all results that match and whose step the Python package chose.
    `ch04/two_stages` alone is that step's number in its chapter. `fp8_ncu.csv/ch06/persistent clocks` is a row and a column of that file.
    A field is one of FIELDS below, or any counter of the result; FIELD@COUNTER takes the newest result that also has COUNTER.
A table     <!-- table chapter 05 --> ... <!-- /table -->
    Its template has that name in docs/tables.txt, which documents the format; TABLES below generates the others.
An excerpt  <!-- excerpt step1.cuh --> ... <!-- /excerpt -->    a fence with lines of that file, anywhere in it
            <!-- excerpt A.cuh "for (" to B.cuh "for (" --> ... <!-- /excerpt -->    what changes from one file to the other: docs/tools/diffs.py

Marks in code are left alone. A mark with "…" waits for its first measurement. --check writes nothing and exits with 1
if a page differs, quotes a result that was never measured or is older than its kernel (bench/older.py), or has a number that was typed in.

A number counts as typed in if it has a unit, such as 12 ms or 3 %, unless it is generated, code, or in a table or a link's text. It is allowed
  * in a sentence that calculates it, with `=`, or that says guess, estimate or predict;
  * in a paragraph that links to its source, on the web or in bench, or in the box's *Prediction*;
  * below a heading that says "tried", among trials that no program repeats;
  * anywhere, if CONSTANTS below has it.
"""

import argparse
import csv
import fnmatch
import functools
import itertools
import math
import pathlib
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))  # so that python3 docs/tools/quote.py finds the packages

from bench import older, results, steps
from bench.names import Name
from bench.results import Entry, Refused, Results, Unmeasured
from docs.tools import accepted, blackwell, diffs, made, pages
from docs.tools.pages import row

WAITS = "…"  # stands for a first measurement
CONSTANTS = {  # properties of hardware
    "1.7 GHz", "582 TFLOP/s", "919 TFLOP/s", "57.4 TFLOP/s",  # the clock of predictions; an H200's mma.sync, wgmma and CUDA cores at that clock
    "1.98 GHz", "1.83 GHz", "67 TFLOP/s", "989 TFLOP/s", "4.8 TB/s",  # an H200's highest clock, and its data sheet
    "3.78 TB/s", "4.3 TB/s", "4.30 TB/s", "4 TB/s",  # a copy in its memory: chapter 0's, an earlier session's, the one in chapter 10's predictions
    "1.41 GHz", "1.8 GHz", "2,039 GB/s", "2.0 TB/s", "1.5 TB/s", "19 TB/s", "19.5 TFLOP/s",  # an A100, and the card of a question
    "1,979 TFLOP/s", "3 GHz", "50 GB/s"}  # a data sheet's sparse rate; chapter 2's CPU; a network card
GENERATED = re.compile(r"<!-- (num|table|excerpt) .*?<!-- /\1 -->", re.DOTALL)
NOT_PROSE = re.compile(r"^\s*(```+|~~~+).*?^\s*\1|<!--.*?-->|^    [^\n]*$|(?<!`)(`+)(?!`).*?(?<!`)\2(?!`)|^[> ]*\|[^\n]*$", re.DOTALL | re.MULTILINE)
NUMBER_WITH_UNIT = re.compile(r"(?<![\w.,/^-])(\d[\d.,]*)(?:[ \u00a0]|\\,)?(ms|µs|ns|[TG]FLOP/s|[TG]B/s|GHz|\\?%)(?![\w/])")
TEMPLATES = results.ROOT / "docs" / "tables.txt"
RECORDED = ("split", "conflicts", "requested")  # tables that tests and simulated programs write



def over_best(entry: Entry) -> float:
    """Returns our rate relative to that of the fastest peer."""
    ratios = [value for key, value in entry.values.items() if key.startswith("vs_") and key != "vs_before"]
    if not ratios:
        raise KeyError("peer")
    return min(ratios)


FIELDS: dict[str, Callable[[Entry], float]] = {
    "ms": lambda entry: entry.milliseconds,
    "tflops": lambda entry: entry.values["FLOPS"] / 1e12,
    "gbps": lambda entry: entry.values["bytes_per_second"] / 1e9,
    "gbytes": lambda entry: entry.values.get("bytes", entry.values.get("bytes_per_second", 0) * entry.milliseconds / 1e3) / 1e9,
    "l2_gbytes": lambda entry: entry.values["l2_bytes"] / 1e9,
    "l2_model_gbytes": lambda entry: entry.values["l2_model_bytes"] / 1e9,
    "memory_times": lambda entry: 1 + entry.values["workspace_bytes"] / entry.values["tensor_bytes"],
    "multiplied_tflops": lambda entry: entry.values["FLOPS"] / entry.values["executed"] / 1e12,  # FLOPs of all pairs in executed tiles
    "vs_best": over_best,
    "model_gbytes": lambda entry: entry.values["model_bytes"] / 1e9,
    "kept": lambda entry: entry.values["kept_bytes"] / 1e9,  # for the backward pass, besides Q, K, V and O
    "peak": lambda entry: (entry.values["kept_bytes"] + entry.values["peak_bytes"]) / 1e9,
    "workspace": lambda entry: entry.values["workspace_bytes"] / 1e9,  # besides inputs and outputs
    **{f"{moment}_mean": functools.partial(Entry.mean_span, moment=moment)  # in clocks
       for moment in ("landed", "turn", "issued", "scores", "softmax", "values", "end", "tile")},
}
IN_TURN = {"turn_ours": "ours", "turn_fa3": "fa3", "turn_cudnn": "cudnn", "turn_better": "over_better"}  # TFLOP/s in one process; ratio to the faster
SUMMARIES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda values: math.exp(sum(map(math.log, values)) / len(values)), "least": min, "most": max, "count": len,
    "behind": lambda values: sum(value < 1 for value in values)}


@functools.cache
def other_card(folder: str) -> Results:
    """Returns the results of a card other than that of the book."""
    if not (results.RESULTS / folder).is_dir():
        raise Refused(f"there is no folder {folder} of results: there are {', '.join(sorted(path.name for path in results.RESULTS.iterdir()))}")
    return results.load(results.RESULTS / folder)


def expanded(text: str) -> list[str]:
    """Expands lists in brackets: `d[64,128] n[1,2]` gives four texts. Identical lists expand to the same word."""
    found = None if re.search(rf"\{{\??({'|'.join(SUMMARIES)}) ", text) else re.search(r"\[([^\[\]()]*,[^\[\]()]*)\](?!\()", text)
    if not found:
        return [text]
    return [one for word in found[1].split(",") for one in expanded(text.replace(found[0], word))]


def found_entry(measured: Results, name: str, field: str, counter: str) -> Entry:
    """Returns the entry from which a field is quoted."""
    if counter:
        entry = measured.raced(name, counter)
        if entry is None:
            raise Unmeasured(f"{name} was never measured with {counter}: bench/release measures it")
        return entry
    return measured.raced(name, field) or measured.measured(name)


def copied(file: str, row: str, column: str) -> float:
    """Returns a number of a table that was copied from Nsight Compute: its rows have a step's name in the first column."""
    path = results.RESULTS / results.BOOK_GPU / file
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            return next(float(found[column]) for found in csv.DictReader(lines) if found["step"] == row)
    except (OSError, KeyError, StopIteration):
        raise Refused(f"{path.name} has no {column} of {row}") from None


def value(term: str, measured: Results, used: list[Entry]) -> float:
    """Returns a plain number, or the field of a result: `NAME FIELD`."""
    words = term.split()
    if len(words) == 1:
        try:
            return float(term)
        except ValueError:
            raise Refused(f"{term!r} is neither a number nor NAME FIELD") from None
    if len(words) != 2:
        raise Refused(f"{term!r}: a number is `NAME FIELD FORMAT`, or several NAME FIELD with * and / between them")
    if ".csv/" in words[0]:
        file, _, row_name = words[0].partition("/")
        return copied(file, row_name, words[1])
    card, _, name = words[0].rpartition(":")
    measured = other_card(card) if card else measured
    field, _, counter = words[1].partition("@")
    if field.startswith("raced_"):  # measured next to cuDNN, since PyTorch has no FP8
        counter = "vs_cudnn_bf16" if "/e4m3/" in name else "vs_cudnn"
    if field in IN_TURN:
        cell = Name.parse(name)
        found = results.in_turn(measured, cell.who).get(cell) if cell else None
        if cell is None or found is None:
            raise Refused(f"{name} was not interleaved with peers of its type: forward/ch05/persistent/... and forward/ch06/row_sums/... were")
        used.append(measured.beside_peers[cell])
        measured.quoted.append(measured.beside_peers[cell])
        return float(getattr(found, IN_TURN[field]))
    entry = found_entry(measured, name, field, counter)
    used.append(entry)
    measured.quoted.append(entry)
    field = field.removeprefix("raced_")
    try:
        return FIELDS[field](entry) if field in FIELDS else entry.values[field]
    except KeyError as missing:
        kind, lacks = (Unmeasured, "was never measured with") if field.startswith("vs_") else (Refused, "has no")  # peers are measured separately
        raise kind(f"{name} {lacks} {missing.args[0]}: it has {', '.join([*FIELDS, *sorted(entry.values)])}") from None


def matching(term: str, measured: Results) -> list[str]:
    """Returns the term once for each result that matches its `*`."""
    name, _, field = term.partition(" ")
    if "*" not in name:
        return [term]
    found = [entry.name for entry in measured.newest.values() if entry.values.get("chosen") and fnmatch.fnmatchcase(entry.name, name)]
    if not found:
        raise Unmeasured(f"{name} was never measured: bench/release measures it")
    return [f"{one} {field}" for one in found]


def evaluated(text: str, measured: Results, used: list[Entry]) -> float:
    first, _, rest = text.partition(" ")
    if first in SUMMARIES:
        return SUMMARIES[first]([evaluated(one, measured, used) for term in expanded(rest) for one in matching(term, measured)])
    result, *factors = re.split(r" ([*/]) ", text)
    product = value(result, measured, used)
    for sign, factor in zip(factors[::2], factors[1::2]):
        product = product * value(factor, measured, used) if sign == "*" else product / value(factor, measured, used)
    return product


def number(words: Sequence[str], measured: Results, used: list[Entry] | None = None) -> str:
    """Returns a number, formatted for a page."""
    if len(words) == 1 and (step := re.fullmatch(r"ch(\d\d)/(\w+)", words[0])):
        if (found := steps.find(int(step[1]), step[2])) is None:
            raise Refused(f"{words[0]} is not a step: chapter {int(step[1])} has {', '.join(one.slug for one in steps.of(int(step[1])))}")
        return str(found.number)
    result = evaluated(" ".join(words[:-1]), measured, [] if used is None else used)
    if words[-1] == "3":
        result = result if result < 999.5 else float(f"{result:.3g}")
        return f"{result:.{2 if result < 9.995 else 1 if result < 99.95 else 0}f}"
    try:
        return format(result, words[-1])
    except ValueError:
        raise Refused(f"{words[-1]!r} is not a format: give one such as .1f") from None


# ---- Tables --------------------------------------------------------------------------------------------------------


@functools.cache
def templates(path: pathlib.Path) -> dict[str, str]:
    """Returns the templates of a file by their names."""
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {name.strip(): body.strip("\n") for name, body in re.findall(r"^\[([^\]\n]+)\]\n(.*?)(?=^\[|\Z)", text, flags=re.MULTILINE | re.DOTALL)}


def of_chapter(value: str) -> list[str]:
    """Returns a value of an `@` line; in place of a chapter, such as ch04, one for each of its steps."""
    chapter = re.fullmatch(r"ch(\d\d)", value)
    return [f"{step.name}={step.number}: {step.title}" for step in steps.of(int(chapter[1]))] if chapter else [value]


def repeated(lines: Sequence[str]) -> Iterator[str]:
    """Yields the rows of a template. Those below an `@` line are repeated for each of its values, of which ch04 stands for all
    steps of chapter 4; with several such lines the last varies fastest."""
    loops: list[tuple[str, list[str]]] = []
    for has_loop, group in itertools.groupby(lines, lambda line: line.startswith("@")):
        rows = list(group)
        if has_loop:
            loops = [(line.split()[1], [one for value in line.split(maxsplit=2)[2].split("; ") for one in of_chapter(value)])
                     for line in rows if line != "@"]
            continue
        for values in itertools.product(*(values for _, values in loops)):
            for line in rows:
                for (word, _), one in zip(loops, values):
                    said, _, label = one.partition("=")
                    line = line.replace(f"<{word}>", said).replace(f"<{word}.>", label or said)
                yield line


def from_template(template: str, measured: Results) -> str:
    """Returns a table and its notes."""
    used: list[Entry] = []

    def put(found: re.Match[str]) -> str:
        if found[1] == "origin":
            return measured.origin(used)
        try:
            return number(found[1].removeprefix("?").split(), measured, used)
        except Refused as reason:
            if found[1].startswith("?") or "was skipped" in str(reason):
                return "-"
            raise

    def filled(template: str) -> str:
        return re.sub(r"\{(\??[^{}]*/[^{}]*|origin)\}", put, template)

    text = ""
    for part in template.split("\n\n"):
        lines = part.splitlines()
        if lines[0].startswith(("|", "@")):
            cells = ([one for cell in re.split(r"(?<!\\)\|", line)[1:-1] for one in expanded(cell.strip())] for line in repeated(lines))
            text += "".join(row(*map(filled, line)) for line in cells) + "\n"
        else:
            text += filled(" ".join(lines)) + "\n\n"
    return text.rstrip("\n") + "\n"


def exercises_table(chapter: str) -> str:
    return made.exercises_of(results.ROOT.glob(f"chapters/{chapter}_*/exercises/exercises.json"),
                             lambda path: "exercises.md" if path.parent.with_suffix(".md").exists() else "")


TABLES: dict[str, Callable[..., str]] = {  # tables that are not made from results
    "exercises": exercises_table, "accepted": accepted.accepted, "foreign": accepted.foreign,
    "blackwell": lambda what: {"clocks": blackwell.clocks_table, "cubic": blackwell.cubic_table}[what]()}


def wrapped(line: str) -> str:
    """Returns a row of a table unchanged; a note below it wrapped to the width of a page's source."""
    return line if line.startswith("|") else textwrap.fill(line, 120, break_long_words=False, break_on_hyphens=False) + "\n"


def table(words: Sequence[str], measured: Results) -> str:
    known, name = templates(TEMPLATES), " ".join(words)
    if name in known:
        text = from_template(known[name], measured)
    elif words and words[0] in TABLES:
        try:
            text = TABLES[words[0]](*words[1:])
        except (TypeError, KeyError, ValueError):
            raise Refused(f"there is no table {name}: {words[0]} takes other words (TABLES in docs/tools/quote.py)") from None
    else:
        raise Refused(f"there is no table {name}: {TEMPLATES.name} has {', '.join(known)}; docs/tools/quote.py makes {', '.join(TABLES)}")
    return "".join(map(wrapped, text.splitlines(keepends=True)))


# ---- Pages ---------------------------------------------------------------------------------------------------------


def makers(measured: Results, folder: pathlib.Path = results.ROOT) -> dict[str, pages.Maker]:
    """Returns the makers of the marked texts of a page in that folder, by kind."""
    def maker(make: Callable[[Sequence[str], Results], str]) -> pages.Maker:
        def text_of(place: pages.Marked) -> str:
            if place.kind == "num" and "<" in place.text:
                raise pages.Refused("a num that is not closed, or holds more than its number")
            if place.kind == "table" and place.words[:1] and place.words[0] in RECORDED:
                return place.text
            try:
                return make(place.words, measured)
            except Refused as reason:
                if isinstance(reason, Unmeasured) and place.text.strip() == WAITS:
                    return place.text
                raise pages.Refused(str(reason)) from None
        return text_of

    return {"num": maker(number), "table": maker(table), "excerpt": lambda place: diffs.excerpt(place, folder)}


def quoted(text: str, measured: Results) -> tuple[str, list[pages.Fault]]:
    """Returns the page as it should be and its faults: [(line, message)]."""
    page, stale, refused = pages.filled(text, makers(measured))
    return page, sorted(stale + refused)


def typed_by_hand(page: str) -> Iterator[pages.Fault]:
    """Yields the numbers with units that have no source: see above."""
    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0])

    text = NOT_PROSE.sub(blank, GENERATED.sub(blank, page))
    text = re.sub(r"^> ?", " ", re.sub(r"(?<=\[)[^\]]*(?=\]\()", blank, text), flags=re.MULTILINE)
    among_trials = False
    for paragraph in re.finditer(r"(?:^[^\n]*\S[^\n]*\n?)+", text, flags=re.MULTILINE):
        if paragraph[0].startswith("#"):
            among_trials = "tried" in paragraph[0] or (among_trials and paragraph[0].startswith("###"))
            continue
        if among_trials or re.search(r"\]\((https:|[./]*bench/)|^ *\*\*Prediction\.", paragraph[0]):
            continue
        begin = paragraph.start()
        for sentence in re.split(r"(?<=[.;:?!)*])(?=\s+[A-Z$\[*(])", paragraph[0]):
            if not re.search(r"=|(?i:guess|estimate|predict)", sentence):
                for found in NUMBER_WITH_UNIT.finditer(sentence):
                    if f"{found[1]} {found[2]}" not in CONSTANTS:
                        line = text.count("\n", 0, begin + found.start()) + 1
                        yield pages.Fault(line, f"{' '.join(found[0].split())} was typed in: quote a result, calculate it, or cite its source")
            begin += len(sentence)


def hand_typed_in(path: pathlib.Path) -> int:
    """Reports and counts typed-in numbers. Pages whose numbers are not measurements are skipped: those for teachers, of
    manual trials, and the changelog."""
    if path.name == "CHANGELOG.md" or {"course", "peers"} & set(path.parts):
        return 0
    faults = list(typed_by_hand(path.read_text(encoding="utf-8")))
    for line, message in faults:
        print(f"{path}:{line}: {message}", file=sys.stderr)
    return len(faults)


def quoted_names(texts: Iterable[str]) -> set[str]:
    """Returns the results that pages quote by name, and those in the templates of tables."""
    marks = [place.words for text in texts for place in pages.marked(text, ["num"])]
    lines = (line for text in templates(TEMPLATES).values() for part in text.split("\n\n") for line in repeated(part.splitlines()))
    marks += [tuple(found.split()) for line in lines for found in re.findall(r"\{([^{}]*/[^{}]*)\}", line)]
    words = {word.removeprefix("?").rpartition(":")[2] for mark in marks for term in mark for word in expanded(term)}
    return {word for word in words if Name.parse(word)}


def book_pages() -> list[pathlib.Path]:
    """Returns every Markdown page of the book."""
    def is_built(path: pathlib.Path) -> bool:
        return any(part.startswith(("build", ".")) for part in path.relative_to(results.ROOT).parts)

    return [path for path in sorted(results.ROOT.rglob("*.md")) if not is_built(path)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page is wrong")
    parser.add_argument("--results", type=pathlib.Path, default=results.RESULTS / results.BOOK_GPU, metavar="FOLDER")
    options = parser.parse_args()
    try:
        measured = results.load(options.results)
        chosen = options.files or book_pages()
        right = [pages.update(page, makers(measured, page.parent), options.check) for page in chosen]
        if options.check:
            right += [not hand_typed_in(page) for page in chosen]
            too_old = older.refused(measured.quoted) if measured.folder == results.RESULTS / results.BOOK_GPU else []
            right += [not too_old]
            print(*too_old, sep="\n", end="\n" * bool(too_old), file=sys.stderr)
    except Refused as reason:
        print(f"quote.py: {reason}", file=sys.stderr)
        return 2
    if options.check and not all(right):
        print("python3 docs/tools/quote.py updates the pages; its --help says which numbers may be typed in", file=sys.stderr)
    return int(not all(right))


if __name__ == "__main__":
    sys.exit(main())
