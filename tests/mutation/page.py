#!/usr/bin/env python3
"""Puts the suite's reports into docs/pages/mutations.md and the chapters' pages, or checks that they are there: page.py [--check] REPORTS

REPORTS is the folder that the tests mutation.<kernel>.<fault> have written. On docs/pages/mutations.md, <!-- mutations KERNEL --> opens
a kernel's table and <!-- /mutations --> closes it; <!-- mutations --> is the sum of all. On a chapter's page, <!-- fault KERNEL NAME -->
opens what was changed and what was reported, and <!-- /fault --> closes it; <!-- fault chapter NAME --> is a fault of chapters.py, and what the
chapter's program says. Exit code 1 if a page differs or reports are missing.
"""
import argparse
import itertools
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fault import HERE, MODES, Refused, faults_of

import chapters
from docs.tools import pages
from docs.tools.pages import row

ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "pages" / "mutations.md"
KERNELS = sorted(path.stem for path in (HERE / "faults").glob("*.py"))
WRONG = "wrong result"


def reports_of(kernel, fault, folder):
    path = folder / f"{kernel}.{fault.name}.json"
    if not path.is_file():
        raise Refused(f"{path} is missing: run ctest -R mutation first")
    return json.loads(path.read_text(encoding="utf-8"))


def seen_by(reports):
    """Which modes said what is wrong, and which only came to a wrong result."""
    kinds: dict[str, list[str]] = {"report": [], "wrong": []}
    for mode in MODES:
        if reports[mode]:
            kinds["wrong" if reports[mode].startswith(WRONG) else "report"].append(mode)
    return "<br>".join(f"**{kind}:** {'all' if len(modes) == len(MODES) else ', '.join(modes)}" for kind, modes in kinds.items() if modes)


def first_line(report, expected):
    """A report's first line; of a deadlock also the thread that says most, of a race the two accesses. Addresses differ from run to run."""
    lines = [line.strip() for line in report.split("\n")]
    if lines[0].startswith("deadlock"):
        waiting = [line for line in lines[1:] if not line.endswith(": exited")]
        lines[0] += "; " + next((line for line in waiting if expected in line), waiting[0])
    if lines[0].startswith("data race"):
        lines[0] += ": " + "; ".join(lines[1:3])
    return re.sub(r"0x[0-9a-f]{9,}", "0x...", lines[0]).replace("|", "\\|")


def told(fault, reports):
    """What the page says is reported: a reason, if any mode has one."""
    said = {mode: reports[mode] for mode in ("lazy", "traced", "random", "eager") if reports[mode]}
    for mode, report in said.items():
        if not report.startswith(WRONG):
            return f"`{first_line(report, fault.reports.get(mode, ''))}`"
    return f"a {WRONG}" if said else "nothing"


def comparable(page):
    """The page without what another compiler may say otherwise: which of many races comes first, and numbers in reports."""
    page = re.sub(r"`data race [^`]*`", "`data race`", page)
    page = re.sub(r"```text\ndata race.*?```", "data race", page, flags=re.S)
    page = re.sub(r"```text\n.*?```", lambda report: re.sub(r"-?(nan|\d[\d.]*(e[-+]\d+)?)", "N", report[0]), page, flags=re.S)
    return re.sub(r"`[^`]* [^`]*` \|$", lambda report: re.sub(r"\d+", "N", report[0]), page, flags=re.M)


def shown_fault(kernel, name, folder):
    """What was done to the kernel, as a diff, and the first report of the mode that says most."""
    fault = next((fault for fault in faults_of(kernel) if fault.name == name), None)
    if fault is None:
        raise Refused(f"tests/mutation/faults/{kernel}.py has no fault {name}")
    reports = reports_of(kernel, fault, folder)
    mode, report = next(((mode, reports[mode]) for mode in ("traced", "lazy", "random", "eager") if reports[mode]), (None, ""))
    if not report or report.startswith(WRONG):
        raise Refused(f"{kernel}.{name} has no report to show: choose a fault that is explained")
    first, *others = re.sub(r"0x[0-9a-f]{9,}", "0x...", report).split("\n")
    said = [first, *itertools.takewhile(lambda line: line.startswith(" "), others)]
    old, new = difference(fault)
    diff = "".join(f"-{line}\n" for line in old) + "".join(f"+{line}\n" for line in new)
    report = "\n".join(said)
    return f"```diff\n{diff}```\n\nIn the {mode} mode the simulator says:\n\n```text\n{report}\n```\n"


def shown_chapter_fault(name, folder):
    """What was done to the chapter, as a diff, and how its program calls it wrong."""
    if name not in chapters.FAULTS:
        raise Refused(f"tests/mutation/chapters.py has no fault {name}")
    fault = chapters.FAULTS[name]
    path = folder / f"{name}.{'report' if fault.says else 'txt'}"
    if not path.is_file():
        raise Refused(f"{path} is missing: run ctest -R mutation first")
    text = (ROOT / chapters.path_of(fault)).read_text(encoding="utf-8")
    first = text.index(fault.line)
    at = first + fault.line.index(fault.old)  # whose lines are shown
    line = text[text.rindex("\n", 0, at) + 1:text.index("\n", at + len(fault.old))].strip()
    changed = line.replace(fault.old, fault.new).strip()
    changed = "" if changed.startswith("//") else changed  # of a statement that is gone its comment is, too
    environment = [f"{name}={value}" for name, value in fault.environment.items()]
    options = fault.traced if fault.says else fault.options
    command = " ".join([*environment, f"./flashbook {'profile' if fault.says else 'run'}", name[-2:], *(["--", *options] if options else [])])
    diff = f"```diff\n-{line}\n" + (f"+{changed}\n" if changed else "") + "```\n\n"
    asked = f"```sh\n{command}\n```\n\n" if fault.says else f"`{command}` says:\n\n"
    return f"{diff}{asked}```text\n{path.read_text(encoding='utf-8')}```\n"


def difference(fault):
    """The lines that a fault takes away, and those that it brings."""
    old, new = fault.old.splitlines(), fault.new.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


def table(kernel, folder):
    text = row("Fault", "Seen by", "What is reported") + row("---", "---", "---")
    for fault in faults_of(kernel):
        reports = reports_of(kernel, fault, folder)
        text += row(f"{fault.about}<br>`{fault.name}`", seen_by(reports), told(fault, reports))
    return text


def total(folder):
    """How many faults each mode reports."""
    counts, faults = dict.fromkeys(MODES, 0), 0
    for kernel in KERNELS:
        for fault in faults_of(kernel):
            faults += 1
            for mode, report in reports_of(kernel, fault, folder).items():
                counts[mode] += bool(report)
    return row("Faults", *MODES) + row("--:", *["--:"] * len(MODES)) + row(str(faults), *(str(counts[mode]) for mode in MODES))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", type=Path, metavar="REPORTS")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page differs")
    options = parser.parse_args()
    def tables(place):
        return table(place.words[0], options.reports) if place.words else total(options.reports)

    try:
        right = [pages.update(PAGE, {"mutations": tables}, options.check, ["mutations", *(f"mutations {kernel}" for kernel in KERNELS)], comparable)]
        faults = {"fault": lambda place: (shown_chapter_fault(place.words[1], options.reports) if place.words[0] == "chapter"
                                          else shown_fault(place.words[0], place.words[1], options.reports))}
        right += [pages.update(page, faults, options.check, same=comparable) for page in sorted(ROOT.glob("chapters/*/*.md"))]
    except Refused as reason:
        sys.exit(f"page.py: {reason}")
    if not all(right):
        sys.exit(f"python3 tests/mutation/page.py {options.reports} brings the pages up to date")


if __name__ == "__main__":
    main()
