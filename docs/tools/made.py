#!/usr/bin/env python3
"""Prints tables that are not stored in the repository, as Markdown: made.py NAME [WORD]. docs/build inserts them into pages.

In a page, `<!-- made NAME WORD -->` on its own line is replaced by a table.

    golden               the number of golden cases for each family of instructions
    faults               the faults that tests/mutation plants in the chapters' kernels, and what notices them
    dialect              the CUDA that the simulator's tests accept, and the answers to the rest
    exercises            the exercises of all chapters
    wrong [NN]           plausible wrong answers to a chapter's exercises, or to those of all chapters, with their points
    timelines            the recorded steps, with the faults that their timelines show
    variants KIND        the masks (Mask) or score functions (Score) that a capstone's variant is drawn from
"""
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # so that python3 docs/tools/made.py finds the packages

from course import manifest, variant
from docs.tools import book, interactive, pages
from docs.tools.pages import FENCE, Refused, row

MARK = re.compile(r"<!-- made (.+?) -->")
GOLDEN = book.ROOT / "tests" / "simulator" / "golden_h200.txt"
MUTATION = book.ROOT / "tests" / "mutation"
DIALECT = book.ROOT / "tests" / "simulator" / "dialect"
FIGURES = book.ROOT / "docs" / "figures" / "interactive"


def golden() -> str:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    families: dict[str, list[str]] = {}
    for line in lines:
        if line and not line.startswith("#"):
            families.setdefault(re.sub(r"(?a)^([A-Za-z]+(?:\.async)?).*", r"\1", line), []).append(line)
    text = row("Family", "Cases", "With real numbers", "A line") + row("---", "--:", "--:", "---")
    for family, cases in families.items():
        text += row(family, str(len(cases)), str(sum(" real" in case for case in cases)), f"`{re.sub(' +', ' ', cases[-1])}`")
    origins: list[str] = []
    counts: list[int] = []
    for line in lines:
        if origin := re.match(r"# .*printed on (an? .*?), (\d{4}-\d\d-\d\d)", line):
            origins.append(f"{origin[1]} on {origin[2]}")
            counts.append(0)
        elif line and not line.startswith("#"):
            if not counts:
                raise Refused(f"{GOLDEN} does not say where it was printed")
            counts[-1] += 1
    printed = "; ".join(f"{count} were printed by {origin}" for count, origin in zip(counts, origins, strict=True))
    return text + f"\n{sum(counts)} cases: {printed}.\n"


def faults() -> str:
    sys.path.insert(0, str(MUTATION))
    plant = importlib.import_module("plant")
    tested = {name: fault for name, fault in plant.FAULTS.items() if fault.steps or fault.says}
    wrong, reported = (sum(bool(getattr(fault, word)) for fault in tested.values()) for word in ("steps", "says"))
    text = f"Of {len(tested)} faults, the default run must call {wrong} wrong, and the traced mode must report {reported}.\n"
    for number in sorted({name[-2:] for name in tested}):
        text += f"\n## Chapter {int(number)}\n\n" + row("File", "Change", "Noticed") + row("---", "---", "---")
        for name, fault in plant.of_chapter(number, tested).items():
            old, new = (re.sub(r"\s+", " ", re.sub(" *//.*", "", part)).replace("|", "\\|") for part in plant.shown(name, fault)[1:])
            seen = [f"wrong: {', '.join(fault.steps)}"] if fault.steps else []
            seen += ["report: `" + fault.says.replace("\\", "").replace("|", "\\|") + "`"] if fault.says else []
            text += row(f"[`{fault.path.rpartition('/')[2]}`](../../{fault.path})", f"`{old}`<br>becomes `{new}`" if new else f"without `{old}`",
                        "<br>".join(seen))
    return text


def dialect() -> str:
    sys.path.insert(0, str(DIALECT))
    text, section = "", ""
    for snippet in importlib.import_module("dialect").snippets():
        if snippet.section != section:
            section = snippet.section
            text += f"\n## {section}\n\n" + row("Code", "Gives" if snippet.value else "The answer") + row("---", "---")
        body = f"{{ {snippet.body}}}" if snippet.before else snippet.body
        code = " ".join(f"{snippet.before} {body}".replace("@", " ").split()).replace("|", "\\|")
        answer = "" if snippet.advice and snippet.sentence == "expected" else f"`{snippet.sentence.removeprefix('link: ')}`"
        text += row(f"`{code}`", snippet.value or ": ".join(filter(None, (answer, snippet.advice))))
    return text


def exercises_of(paths: Iterable[Path], page: Callable[[Path], str]) -> str:
    """Returns each exercise's task, its points, and about how long it takes. `page`: where the exercises of a manifest
    are described."""
    does = {"write": "write a piece of a kernel", "predict": "predict numbers on paper", "mend": "find and fix the fault",
            "capstone": "write a whole kernel"}
    text = row("Exercise", "You", "Points", "Minutes, about") + row("---", "---", "--:", "--:")
    for path in paths:
        for entry in json.loads(path.read_text(encoding="utf-8")):
            points = sum(test["points"] for test in entry["tests"])
            anchor = f"{entry['id']}-{entry['title'].replace(' ', '-').replace(',', '').lower()}"
            text += row(f"[{entry['id']}]({page(path)}#{anchor}): {entry['title']}", does[entry["kind"]], str(points), str(entry.get("minutes", "-")))
    return text


def exercises() -> str:
    manifests = sorted(book.ROOT.glob("chapters/*/exercises/exercises.json"))
    return exercises_of(manifests, lambda path: f"../../{manifest.page_of(book.ROOT, path.parts[-3])}")


def wrong(chapter: str = "[0-9][0-9]") -> str:
    text = ""
    for path in sorted(book.ROOT.glob(f"course/solutions/{chapter}_*/wrong.json")):
        manifest = book.ROOT / "chapters" / path.parent.name / "exercises" / "exercises.json"
        points = {entry["id"]: sum(test["points"] for test in entry["tests"]) for entry in json.loads(manifest.read_text(encoding="utf-8"))}
        text += f"\n### Chapter {int(path.parent.name[:2])}\n\n" + row("Exercise", "A wrong answer", "Points") + row("---", "---", "--:")
        for entry in json.loads(path.read_text(encoding="utf-8")):
            text += row(entry["exercise"], entry["what"], f"{entry['points']} of {points[entry['exercise']]}")
    if not text:
        raise Refused(f"there are no wrong answers to chapter {chapter}: give two digits, such as 04")
    return text


def timelines() -> str:
    text = row("Step", "The fault", "The report") + row("---", "---", "---")
    for slug, title in interactive.data_of(FIGURES, "timelines")["steps"]:
        step = interactive.data_of(FIGURES, f"fault_{slug[:4]}")["steps"][slug[5:]]
        change = f"`{step['line']}` becomes `{step['now']}`" if step["now"] else f"`{step['line']}` is left out"
        text += row(f"[{title}](#timelines?slug={slug})", change, step["report"])
    return text


def variants(kind: str) -> str:
    if kind not in variant.KINDS:
        raise Refused(f"there are no variants {kind}: there are {', '.join(variant.KINDS)}")
    text = row(f"`{kind}`", "What it is", "The formula") + row("---", "---", "---")
    return text + "".join(row(f"`{one.name}`", one.what, f"`{one.formula}`") for one in variant.choices(book.ROOT, kind))


TABLES: dict[str, Callable[..., str]] = {
    "golden": golden, "faults": faults, "dialect": dialect, "exercises": exercises, "wrong": wrong, "timelines": timelines,
    "variants": variants,
}


def table(name: str, *words: str) -> str:
    if name not in TABLES:
        raise Refused(f"there is no table {name}: there are {', '.join(TABLES)}")
    wanted, optional = TABLES[name].__code__.co_argcount, len(TABLES[name].__defaults__ or ())
    if not wanted - optional <= len(words) <= wanted:
        raise Refused(f"{' '.join([name, *words])}: the table {name} takes other words: docs/tools/made.py --help lists them")
    return TABLES[name](*words)


def expanded(lines: Iterable[str]) -> Iterator[str]:
    """Yields a page's lines with marks replaced by tables."""
    fenced = False
    for line in lines:
        fenced ^= bool(FENCE.fullmatch(line))
        found = None if fenced else MARK.fullmatch(line)
        yield from table(*found[1].split()).splitlines() if found else [line]


def main() -> None:
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print(__doc__)
        return
    try:
        print(table(*words), end="")
    except pages.Refused as reason:
        print(f"made.py: {reason}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
