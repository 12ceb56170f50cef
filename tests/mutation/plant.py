#!/usr/bin/env python3
"""Plants the faults of faults.py in the chapters' kernels, and expects them to be noticed.

plant.py lists                   prints, for CMake, each chapter's files with faults and the names of its faults: `wrong`,
                                 which `check` expects to be noticed, `shown`, which `report` does, and `ramp`, the
                                 latter in the kernels before chapter 5's first step
plant.py plant CHAPTER FOLDER    writes the files of chapters/CHAPTER that have faults below FOLDER, where an include
                                 finds them first. They contain all faults; FLASHBOOK_FAULT selects one by its index
                                 in FAULTS (planted.cpp)
plant.py check NAME PROGRAM REPORTS
                                 runs the program built with those files, with that fault, and expects it to call the
                                 steps wrong; what it prints about them is written to a file in the folder REPORTS
plant.py report NAME PROGRAM REPORTS
                                 the same, but the traced mode (`flashbook profile`) must report the fault, and its
                                 report is written to the file
plant.py page [--check] REPORTS
                                 writes the faults that chapters' pages show, with what was reported, into the pages,
                                 or checks them. <!-- excerpt fault NAME --> marks their places

The exit code is 1, with a message, if a fault's text is not in its file any more, if a fault goes unnoticed, or if a
page differs.
"""
import itertools
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from faults import ALL, FAULTS, ROOT, Fault

from docs.tools import pages

SHOWN = 2  # lines shown of a program that calls its results wrong


class Refused(Exception):
    """The list of faults does not match the kernels, or a fault goes unnoticed. The message says what to fix."""


def run_with(program: str | Path, words: list[str], fault: int, environment: dict[str, str], seconds: float | None = None) -> "subprocess.CompletedProcess[str]":
    """Runs a program of planted faults with one of them, or with none if `fault` is -1. Blocks run one after another,
    so that the result does not depend on which of two is faster."""
    settings = {**os.environ, "FLASHBOOK_FAULT": str(fault), "FLASHBOOK_SIM_THREADS": "1", **environment}
    return subprocess.run([program, *words], capture_output=True, text=True, env=settings, cwd=ROOT, timeout=seconds)


def place_of(name: str, fault: Fault) -> tuple[str, int]:
    """Returns the file's text, and where the replaced part of it begins."""
    text = (ROOT / fault.path).read_text(encoding="utf-8")
    for whole, part, where in ((text, fault.line, fault.path), (fault.line, fault.old, "its line")):
        if whole.count(part) != 1:
            raise Refused(f"{name}: the fault's text occurs {whole.count(part)} times in {where}, not once: update it.\n{part}")
    return text, text.index(fault.line) + fault.line.index(fault.old)


def shown(name: str, fault: Fault) -> tuple[int, str, str]:
    """Returns where it is and what a page shows: (line number, the lines without the fault, the lines with it)."""
    text, begin = place_of(name, fault)
    start, end = text.rindex("\n", 0, begin) + 1, text.index("\n", begin + len(fault.old))
    line = text[start:end]
    changed = line[:begin - start] + fault.new + line[begin - start + len(fault.old):]
    changed = "" if changed.strip().startswith("//") else changed  # the comment of a removed statement is removed, too
    return text.count("\n", 0, begin) + 1, textwrap.dedent(line).strip(), textwrap.dedent(changed).strip()


def chosen(old, others):
    """Returns a choice between `old` and its replacements, {fault number: text}, that keeps line numbers."""
    others = {f"flashbook_fault == {index}": " ".join(new.split()) for index, new in others.items()}
    if old.rstrip().endswith((";", "}")):
        return "".join(f"if ({asked}) {{ {new} }} else " for asked, new in others.items()) + f"{{ {old} }}"
    return f"({''.join(f'{asked} ? ({new}) : ' for asked, new in others.items())}({old}))"


@dataclass
class Place:
    """A part of a file with faults."""
    begin: int
    end: int
    others: dict[int, str]  # {fault number: replacement}


def with_all(text, places, begin, end):
    """Returns a part of a file, with choices at those of these places that are in it. Places may be nested."""
    rest = sorted((place for place in places if begin <= place.begin and place.end <= end), key=lambda place: (place.begin, -place.end))
    parts, at = [], begin
    for place in rest:
        if place.begin < at:
            continue  # this place is within the previous one
        inner = with_all(text, [other for other in rest if other is not place], place.begin, place.end)
        parts += [text[at:place.begin], chosen(inner, place.others)]
        at = place.end
    return "".join([*parts, text[at:end]])


def of_chapter(chapter, faults=FAULTS):
    """Returns the faults whose names end in the chapter's number."""
    return {name: fault for name, fault in faults.items() if name.rpartition("_")[2] == chapter[:2]}


def lists():
    for number in sorted({name[-2:] for name in FAULTS}):
        faults = of_chapter(number)
        of = {"files": [fault.path for fault in faults.values()],
              "wrong": [name for name, fault in faults.items() if fault.steps],
              "shown": [name for name, fault in faults.items() if fault.says and not fault.command],
              "ramp": [name for name, fault in faults.items() if fault.command]}
        for word, values in of.items():
            print(f"set({word}_{number} {' '.join(dict.fromkeys(values))})")


def plant(folder, faults, all_faults=FAULTS):
    """Writes the files that have these faults. A fault is identified by its index in the list of all."""
    files: dict[str, dict[tuple[int, int], Place]] = {}
    for name, fault in faults.items():
        _, begin = place_of(name, fault)
        span = (begin, begin + len(fault.old))
        files.setdefault(fault.path, {}).setdefault(span, Place(*span, {})).others[list(all_faults).index(name)] = fault.new
    for file, places in files.items():
        target = Path(folder) / file
        target.parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / file).read_text(encoding="utf-8")
        head, pragma, rest = with_all(text, list(places.values()), 0, len(text)).partition("#pragma once\n")
        line = f'#line {head.count(chr(10)) + 2} "{ROOT / file}"\n'  # gives the following lines the name of the chapter's own file
        text = f"{head}{pragma}extern const int flashbook_fault;\n{line}{rest}"
        if not target.exists() or target.read_text(encoding="utf-8") != text:  # files that include it need not be recompiled
            target.write_text(text, encoding="utf-8")
    # A file left over without a fault would be found before the chapter's own.
    paths = {fault.path for fault in all_faults.values()}
    for left in Path(folder).rglob("*.*h"):
        if str(left.relative_to(folder)) not in paths:
            left.unlink(missing_ok=True)


def check(name, program, reports):
    fault = FAULTS[name]
    run = run_with(program, [*fault.options, "--reps", "1"], list(FAULTS).index(name), fault.environment)
    found = re.findall(r"^WRONG: step (\d+), (?:O|d[QKV]) against the oracle", run.stdout, re.M)
    wrong = tuple(ALL[int(name[-2:])][number - 1] for number in sorted({int(step) for step in found}))
    if run.returncode != 1 or wrong != fault.steps:
        raise Refused(f"{name}: {program} should call steps {fault.steps} wrong and exit with 1. It called {wrong} wrong and exited with "
                      f"{run.returncode}:\n{run.stdout}{run.stderr}")
    said = re.findall(r"^(WRONG: .* against the oracle.*)", run.stdout, re.M)
    (Path(reports) / f"{name}.txt").write_text("".join(line + "\n" for line in said), encoding="utf-8")


def said_of(run, expected):
    """Returns the first report that contains `expected`, without addresses, or the rows of the table of accesses that
    contain it."""
    lines = re.sub(r"0x[0-9a-f]{9,}", "0x...", re.sub(r"^\w+: launch <<<.*?>>>: ", "", run.stderr, flags=re.M)).splitlines()
    for number, line in enumerate(lines):
        if re.search(expected, line):
            details = itertools.takewhile(lambda text: text.startswith(" "), lines[number + 1:])
            return "".join(f"{text}\n" for text in [line, *details])
    rows = [line for line in run.stdout.splitlines() if re.search(expected, line) or line.startswith("  line ")]
    return "".join(f"{row.strip()}\n" for row in rows) if len(rows) > 1 else ""


def report(name, program, reports):
    fault = FAULTS[name]
    if run_with(program, fault.traced, -1, fault.environment).returncode != 0:
        raise Refused(f"{name}: {program} {' '.join(fault.traced)} goes wrong without the fault")
    run = run_with(program, fault.traced, list(FAULTS).index(name), fault.environment)
    said = said_of(run, fault.says)
    if not said:
        raise Refused(f"{name}: {program} should say {fault.says!r}. It exited with {run.returncode}:\n{run.stdout}{run.stderr}")
    (Path(reports) / f"{name}.report").write_text(said, encoding="utf-8")


def comparable(page):
    """Returns the page without what depends on the compiler: which of several races is reported first, and numbers in
    reports."""
    page = re.sub(r"```text\ndata race.*?```", "data race", page, flags=re.S)
    return re.sub(r"```text\n.*?```", lambda report: re.sub(r"-?(nan|\d[\d.]*(e[-+]\d+)?)", "N", report[0]), page, flags=re.S)


def shown_on_page(name, folder):
    """Returns the change to the chapter, as a diff, and what its program reports."""
    if name not in FAULTS:
        raise Refused(f"tests/mutation/faults.py has no fault {name}")
    fault = FAULTS[name]
    path = Path(folder) / f"{name}.{'report' if fault.says else 'txt'}"
    if not path.is_file():
        raise Refused(f"{path} is missing: run ctest -R mutation first")
    _, line, changed = shown(name, fault)
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


def page(*words):
    reports, is_check = words[-1], words[0] == "--check"
    makers = {"excerpt": lambda place: shown_on_page(place.words[1], reports) if place.words[0] == "fault" else place.text}
    right = [pages.update(file, makers, is_check, same=comparable) for file in sorted(ROOT.glob("chapters/*/*.md"))]
    if not all(right):
        raise Refused(f"plant.py page {reports} updates the pages")


def main():
    command, *words = sys.argv[1:]
    try:
        if command == "plant":
            chapter, folder = words
            plant(folder, of_chapter(chapter))
        else:
            commands: dict[str, Callable[..., None]] = {"lists": lists, "check": check, "report": report, "page": page}
            commands[command](*words)
    except Refused as reason:
        sys.exit(f"plant.py: {reason}")


if __name__ == "__main__":
    main()
