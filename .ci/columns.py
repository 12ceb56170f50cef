#!/usr/bin/env python3
"""columns.py FILE...: lines of C++ and CUDA have at most 110 columns, lines of Markdown at most 120.

A longer line is allowed only where it cannot be broken: a row of a table, code in Markdown, and a line that is one word. Code spans, formulas,
HTML tags and addresses of links count as one word, and so does a mark of docs/tools/quote.py, which must not begin a line, with the word
before it. Prints a line for each fault; exit code 1 if there is one.
"""
import re
import sys
from collections.abc import Iterator
from pathlib import Path

MARKDOWN, CPP = 120, 110
FENCE = re.compile(r"[\s>]*(```|~~~)")
LEADING = re.compile(r"\s*(?:(?:///?<?|//\||>|[-*+]|\d+\.)\s+)*")
WORD = re.compile(r"\s*<!--.*?-->(?:[^<]*<!-- /\w+ -->)?|`[^`]+`|\$\$.+?\$\$|\$[^$]+\$|</?[a-z][^>]*>|\]\([^)]*\)")


def is_one_word(text: str) -> bool:
    return " " not in WORD.sub("x", text[LEADING.match(text).end():].rstrip())  # type: ignore[union-attr]


def too_long(text: str, is_markdown: bool) -> Iterator[tuple[int, int]]:
    """Yields (line, columns) of each line that is too long."""
    limit, fenced = (MARKDOWN if is_markdown else CPP), False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= is_markdown and bool(FENCE.match(line))
        code = is_markdown and (fenced or line.startswith("    "))
        table = re.match(r"[\s>]*\|" if is_markdown else r"\s*//\| \|", line)
        if len(line) > limit and not code and not table and not is_one_word(line):
            yield number, len(line)


def main() -> None:
    faults = 0
    for name in sys.argv[1:]:
        is_markdown = name.endswith(".md")
        for number, columns in too_long(Path(name).read_text(encoding="utf-8"), is_markdown):
            print(f"{name}:{number}: {columns} columns: at most {MARKDOWN if is_markdown else CPP} are allowed")
            faults += 1
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
