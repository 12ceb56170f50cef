#!/usr/bin/env python3
"""Which result files can go: those without which every page, figure and plot says the same, to the last byte.

    superseded.py [--delete] [FILE...]     default: every file in bench/results of the book's card and of the simulator
    superseded.py --merge                  what is not of a release, of the book's card, becomes one file, earlier.json

Says which can go together, the oldest first; --delete removes them, and puts what they said of the steps at the ladder's shape into
history.csv beside them before. --merge leaves out every result that is not the newest of its name and says nothing that a newer one does not; each
result keeps the context of the file that it was in. Needs matplotlib, as plot.py does: a plot that cannot be drawn could not be held.
"""

import argparse
import contextlib
import csv
import io
import json
import pathlib
import runpy
import sys
import tempfile
from collections.abc import Iterator
from typing import Any
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "figures")]  # the packages, for python3 docs/tools/superseded.py; and what figures are drawn with

from bench import results
from bench.parts import FILES
from docs.tools import pages, quote

HISTORY = ("date", "commit", "name", "step", "milliseconds", "tflops")
FOLDERS = (results.BOOK_GPU, "simulator")


def files_of(folder: str) -> list[pathlib.Path]:
    return sorted((results.RESULTS / folder).glob("*.json"))


def figures() -> list[pathlib.Path]:
    """The scripts that draw from results."""
    return sorted(path for path in (ROOT / "docs" / "figures").glob("*.py") if "from bench import results" in path.read_text(encoding="utf-8"))


def orderless(data: str) -> str:
    """What an interactive figure's data say: the order of their keys is that in which they were measured."""
    head, _, value = data.partition(" = ")
    return head + json.dumps(json.loads(value.rstrip().rstrip(";")), sort_keys=True)


class Said:
    """What the book says of a choice of result files."""

    def __init__(self) -> None:
        every = [path for folder in FOLDERS for path in files_of(folder)]
        self.entries = {path: results.read(path) for path in every}
        self.pages = {page: page.read_text(encoding="utf-8") for page in quote.book_pages()}
        self.figures = figures()
        self.extra: list[pathlib.Path] = []  # files of the book's card that lie elsewhere

    def load(self, kept: set[pathlib.Path], folder: str | pathlib.Path = results.RESULTS / results.BOOK_GPU) -> results.Results:
        name = pathlib.Path(folder).name
        paths = [path for path in [*files_of(name), *(self.extra if name == results.BOOK_GPU else [])] if path in kept]
        with mock.patch.object(results, "read", lambda path: self.entries[path]):
            return results.Results(paths)

    @contextlib.contextmanager
    def only(self, kept: set[pathlib.Path]) -> Iterator[results.Results]:
        as_it_is = results.load

        def load(folder: str | pathlib.Path = results.RESULTS / results.BOOK_GPU) -> results.Results:
            return self.load(kept, folder) if pathlib.Path(folder).name in FOLDERS else as_it_is(folder)

        with mock.patch.object(results, "load", load):
            yield load()

    def in_pages(self, kept: set[pathlib.Path]) -> dict[str, str]:
        with self.only(kept) as measured:
            makers = quote.makers(measured)
            filled = {page: pages.filled(text, makers) for page, text in self.pages.items()}
        return {str(page): found.page + "".join(map(str, found.refused)) for page, found in filled.items()}

    def drawn(self, kept: set[pathlib.Path]) -> dict[str, str]:
        """The figures and plots."""
        from docs.tools import plot  # which ends the program where there is no matplotlib

        found: dict[str, str] = {}

        def write(path: pathlib.Path, text: str, *_: Any, **__: Any) -> int:
            found[str(path)] = text
            return len(text)

        with self.only(kept) as measured, contextlib.redirect_stdout(io.StringIO()):
            with mock.patch.object(pathlib.Path, "write_text", write):
                for script in self.figures:
                    runpy.run_path(str(script), run_name="__main__")
                with tempfile.TemporaryDirectory() as folder:
                    plot.draw_wide(measured, pathlib.Path(folder))
        return {pathlib.Path(path).name: orderless(text) if path.endswith(".js") else text for path, text in found.items()}

    def same(self, kept: set[pathlib.Path], as_it_is: tuple[dict[str, str], dict[str, str]]) -> bool:
        try:
            return self.in_pages(kept) == as_it_is[0] and self.drawn(kept) == as_it_is[1]
        except (results.Refused, KeyError, StopIteration, ValueError):
            return False  # something is missing without it


def superseded(asked: list[pathlib.Path]) -> list[pathlib.Path]:
    """Those of `asked` that can go together."""
    said = Said()
    kept = set(said.entries)
    as_it_is = said.in_pages(kept), said.drawn(kept)
    gone = []
    for path in asked or sorted(said.entries, key=lambda path: min(entry.when for entry in said.entries[path])):
        if said.same(kept - {path}, as_it_is):
            kept.discard(path)
            gone.append(path)
            print(path.relative_to(results.ROOT), flush=True)
    return gone


def remember(gone: list[pathlib.Path], file: pathlib.Path = results.RESULTS / results.BOOK_GPU / "history.csv") -> None:
    """Adds what the files say of our steps at the ladder's shape, a row a measurement, in the order of time."""
    rows = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8")))) if file.exists() else []
    for entry in (entry for path in gone for entry in results.read(path)):
        if results.is_history(entry):
            rows.append({"date": f"{entry.when:%Y-%m-%dT%H:%M:%S}", "commit": entry.context["commit"], "name": entry.name, "step": entry.label,
                         "milliseconds": f"{entry.milliseconds:.4f}", "tflops": f"{entry.values['FLOPS'] / 1e12:.2f}"})
    unique = {json.dumps(row): row for row in rows}
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, HISTORY, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(unique.values(), key=lambda row: (row["date"], row["name"])))


def merged(paths: list[pathlib.Path], needed: set[tuple[str, str]]) -> dict[str, Any]:
    """One result file of several; each result is of the call that its file was. `needed`: (file, name) of the results that stay."""
    calls: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    for path in paths:
        whole = json.loads(path.read_text(encoding="utf-8"))
        first = len(calls)
        of_file = whole["context"].get("calls", [whole["context"]])
        calls += [{"file": path.name} | call for call in of_file]
        for run in whole["benchmarks"]:
            call = first + run.get("call", 0)
            if (calls[call]["file"], run["name"]) in needed:
                found.append({"cpu_time": 0.0} | run | {"call": call})  # Google Benchmark's compare.py asks for it
    used = sorted({run["call"] for run in found})
    newest = max((calls[call] for call in used), key=lambda call: str(call["date"]))
    context = {key: value for key, value in newest.items() if key not in ("file", "calls")}
    return {"context": context | {"calls": [calls[call] for call in used]}, "benchmarks": [run | {"call": used.index(run["call"])} for run in found]}


def says_more(entries: list[results.Entry]) -> list[results.Entry]:
    """Of a name's entries, oldest first: the newest, the newest that was not skipped, and those with a counter that no newer one has."""
    found, known = entries[-1:], {key for entry in entries[-1:] if not entry.skipped for key in entry.values}
    for entry in reversed(entries[:-1]):
        if not entry.skipped and not set(entry.values) <= known:
            found.append(entry)
            known |= set(entry.values)
    return found


def merge() -> int:
    """Writes earlier.json in place of the files that it is made of, if the book says the same with it."""
    said = Said()
    old = [path for path in files_of(results.BOOK_GPU) if path.stem not in FILES]
    kept = set(said.entries)
    as_it_is = said.in_pages(kept), said.drawn(kept)
    measured = said.load(kept)

    def short(entry: results.Entry) -> str:
        return pathlib.Path(entry.file).name

    most = {(short(entry), entry.name) for entries in measured.named.values() for entry in says_more(entries)}
    # A table of one process is drawn whole from the file that it was in.
    whole_files = {short(entry) for entry in measured.beside_peers.values()}
    whole_files |= {short(entry) for entry in measured.history if entry.cell.kind == "backward" and "vs_eager" in entry.values}
    every = {(short(entry), entry.name) for entry in measured.history}
    for needed in (most | {pair for pair in every if pair[0] in whole_files}, every):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "earlier.json"
            results.write(file, merged(old, needed))
            said.entries = {path: entries for path, entries in said.entries.items() if path not in old} | {file: results.read(file)}
            said.extra = [file]
            if said.same(set(said.entries), as_it_is):
                target = results.RESULTS / results.BOOK_GPU / "earlier.json"
                remember(old)
                text = file.read_text(encoding="utf-8")
                for path in old:
                    path.unlink()
                target.write_text(text, encoding="utf-8")
                print(f"{target.relative_to(results.ROOT)}: {len(said.entries[file])} results of {len(old)} files")
                return 0
    print("superseded.py: the book would not say the same with one file: nothing was merged", file=sys.stderr)
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--delete", action="store_true", help="remove them; without it they are named")
    parser.add_argument("--merge", action="store_true", help="make one file of those that are not of a release")
    options = parser.parse_args()
    if options.merge:
        return merge()
    gone = superseded([path.resolve() for path in options.files])
    if options.delete:
        remember(gone)
        for path in gone:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
