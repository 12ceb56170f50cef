"""Kernel files: code, and prose in lines that begin with //|.

    //| # Step 1: one thread per score        the page's title
    //| Each kernel is the formula for ...     Markdown; it is shown next to the code that follows
"""
import re
from pathlib import Path

PROSE = re.compile(r"\s*//\| ?(.*)")
TITLE = re.compile(r"# +(.+)")

Row = tuple[list[tuple[int, str]], list[int]]


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def prose_of(line: str) -> str | None:
    """Returns the Markdown in a line of prose; None for a line of code."""
    found = PROSE.fullmatch(line)
    return found[1] if found else None


def is_annotated(path: Path) -> bool:
    if path.suffix == ".cuh" or (path.stem == "chapter" and path.suffix != ".h"):
        return True
    return any(prose_of(line) is not None for line in lines_of(path))


def title_of(path: Path) -> str:
    """Returns the title from `//| # Title`, otherwise the beginning of the file's comment, otherwise its name."""
    lines = lines_of(path)
    for line in lines:
        found = TITLE.fullmatch(prose_of(line) or "")
        if found:
            return found[1]
    if lines[0].strip() == r"/// \file":
        found = re.match(r"/// ([^.:]+)", lines[1])
        return found[1] if found else path.name
    return path.name


def rows_of(path: Path) -> list[Row]:
    """Returns the file as rows of prose, as (line number, Markdown), and the numbers of the code lines next to it.

    Every line of code is in exactly one row. Blank lines at the edges of a row's code are omitted."""
    lines = lines_of(path)
    rows: list[Row] = [([], [])]
    for number, line in enumerate(lines, 1):
        prose = prose_of(line)
        if prose is not None:
            if rows[-1][1]:
                rows.append(([], []))
            if not TITLE.fullmatch(prose):
                rows[-1][0].append((number, prose))
        else:
            rows[-1][1].append(number)
    for _, code in rows:
        while code and not lines[code[0] - 1].strip():
            del code[0]
        while code and not lines[code[-1] - 1].strip():
            del code[-1]
    joined: list[Row] = []
    for texts, code in rows:
        if joined and not joined[-1][1]:  # two pieces of prose separated only by blank lines
            joined[-1] = ([*joined[-1][0], (0, ""), *texts], code)
        else:
            joined.append((texts, code))
    return [row for row in joined if row[0] or row[1]]
