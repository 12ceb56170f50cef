#!/usr/bin/env python3
"""Writes the effects of planted faults into the chapters' pages, or checks them: page.py [--check] REPORTS

REPORTS is the folder that the tests mutation.default.<fault> and mutation.shown.<fault> write. In a
page, <!-- excerpt fault NAME --> begins a quotation of what a fault of chapters.py changes and what the chapter's
program prints. Exit code 1 if a page differs or reports are missing.
"""
import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fault import HERE, Refused

import chapters
from docs.tools import pages

ROOT = HERE.parents[1]
SHOWN = 2  # lines shown of a program that calls its results wrong


def comparable(page):
    """Returns the page without what depends on the compiler: which of several races is reported first, and numbers in
    reports."""
    page = re.sub(r"```text\ndata race.*?```", "data race", page, flags=re.S)
    return re.sub(r"```text\n.*?```", lambda report: re.sub(r"-?(nan|\d[\d.]*(e[-+]\d+)?)", "N", report[0]), page, flags=re.S)


def shown_chapter_fault(name, folder):
    """Returns the change to the chapter, as a diff, and what its program reports."""
    if name not in chapters.FAULTS:
        raise Refused(f"tests/mutation/chapters.py has no fault {name}")
    fault = chapters.FAULTS[name]
    path = folder / f"{name}.{'report' if fault.says else 'txt'}"
    if not path.is_file():
        raise Refused(f"{path} is missing: run ctest -R mutation first")
    _, line, changed = chapters.shown(fault)
    environment = [f"{name}={value}" for name, value in fault.environment.items()]
    options = fault.traced if fault.says else fault.options
    command = " ".join([*environment, f"./flashbook {'profile' if fault.says else 'run'}", name[-2:], *(["--", *options] if options else [])])
    diff = f"```diff\n-{line}\n" + (f"+{changed}\n" if changed else "") + "```\n\n"
    command = fault.command or command
    gap = " " if len(command) <= 112 else "\n"  # a line of a page has at most 120 columns
    asked = f"```sh\n{command}\n```\n\n" if fault.says else f"`{command}`{gap}says:\n\n"
    said = path.read_text(encoding="utf-8").splitlines()
    if not fault.says and len(said) > SHOWN:
        said = [*said[:SHOWN], f"... and {len(said) - SHOWN} more lines"]
    return f"{diff}{asked}```text\n" + "\n".join(said) + "\n```\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", type=Path, metavar="REPORTS")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a page differs")
    options = parser.parse_args()
    makers = {"excerpt": lambda place: shown_chapter_fault(place.words[1], options.reports) if place.words[0] == "fault" else place.text}
    try:
        right = [pages.update(page, makers, options.check, same=comparable) for page in sorted(ROOT.glob("chapters/*/*.md"))]
    except Refused as reason:
        sys.exit(f"page.py: {reason}")
    if not all(right):
        sys.exit(f"python3 tests/mutation/page.py {options.reports} updates the pages")


if __name__ == "__main__":
    main()
