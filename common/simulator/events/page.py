#!/usr/bin/env python3
"""Turns the simulator's event log (FLASHBOOK_SIM_EVENTS) into a page to step through:

    python3 common/simulator/events/page.py EVENTS.json --html trace.html

The page is one file that needs no network. `./flashbook trace` runs a program and then this script. Exit code 2 means
that the input cannot be read."""
import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

TEMPLATE = Path(__file__).with_name("page.html")
KINDS = ("starts", "exits", "does", "waits", "passes", "arrives", "over", "copies", "lands", "memory", "fault")
GROUPS = ("starts and ends", "barriers", "copies", "products", "loads and stores", "within a warp", "fences", "registers", "faults")
# files that implement the language of kernels, as opposed to kernels
LANGUAGE = ("common/simulator/", "common/ptx/", "common/numeric/", "common/device/", "/include/c++/", "/lib/gcc/")
AT_ONCE = 1000  # addresses per call of addr2line: the length of a command is limited


class Problem(Exception):
    """An error that the user can fix, reported in one line."""


class Frame(NamedTuple):
    file: str
    line: int
    function: str


class Event(NamedTuple):
    kind: str
    group: str
    warp: int  # -1: none
    warps: int
    lanes: int
    what: str
    stack: tuple[Frame, ...]  # innermost call first
    object: str
    detail: str
    times: int = 1

    @property
    def who(self) -> str:
        if self.warp < 0:
            return "block"
        return f"warp {self.warp}" if self.warps == 1 else f"warps {self.warp}-{self.warp + self.warps - 1}"


def short_name(function: str) -> str:
    """Returns a name without parameters, return type, template arguments and namespaces."""
    name, depth = "", 0
    for character in function.replace("(anonymous namespace)", ""):
        depth += (character in "<({") - (character in ">)}")
        if depth == 0 and character not in ">)}":
            name += character
    short = re.split(r"::|\s", name.removesuffix(" const").split("[")[0].strip())[-1]
    return {"operator": "lambda", "_M_invoke": ""}.get(short, short)


def frames_of(program: str, code: Iterable[int]) -> dict[int, list[Frame]]:
    """Returns the source lines of code, innermost first. Empty without addr2line (from binutils) or debug
    information."""
    found: dict[int, list[Frame]] = {}
    offsets = sorted(set(code))
    for first in range(0, len(offsets), AT_ONCE):
        command = ["addr2line", "-a", "-i", "-f", "-C", "-e", program, *map(hex, offsets[first:first + AT_ONCE])]
        try:
            lines = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
        except (OSError, subprocess.CalledProcessError):
            return {}
        at, function = 0, ""
        for line in lines:
            if re.fullmatch(r"0x[0-9a-f]+", line):
                at, function = int(line, 16), ""
                found[at] = []
            elif not function:
                function = line
            else:
                place = re.fullmatch(r"(.*):(\d+)(?: \(discriminator \d+\))?", line)
                if place and int(place[2]):
                    found[at].append(Frame(place[1], int(place[2]), short_name(function)))
                function = ""
    return found


class Sources:
    """The files that contain a program's kernels."""

    def __init__(self, program: str) -> None:
        self.folders = [Path.cwd(), *Path(program).parents]  # used to resolve names relative to the build directory
        self.known: dict[str, Path | None] = {}

    def path(self, name: str) -> Path | None:
        if name not in self.known:
            candidates = [folder / name for folder in self.folders] if name else []
            self.known[name] = next((Path(os.path.normpath(file)) for file in candidates if file.is_file()), None)
        return self.known[name]

    def kernel_frames(self, frames: Iterable[Frame]) -> tuple[Frame, ...]:
        own = []
        for frame in frames:
            path = self.path(frame.file)
            if path and not any(part in str(path) for part in LANGUAGE):
                own.append(Frame(str(path), frame.line, frame.function))
        return tuple(own)


def group_of(kind: str, what: str) -> str:
    if kind == "fault":
        return "faults"
    if kind in ("starts", "exits"):
        return "starts and ends"
    if re.match(r"wgmma|mma|wmma", what):
        return "products"
    if kind in ("copies", "lands") or re.match(r"cp_async|tma_|bulk_", what):
        return "copies"
    if kind == "memory" or re.match(r"ldmatrix|stmatrix", what):
        return "loads and stores"
    if kind in ("waits", "passes", "arrives", "over"):
        return "barriers"
    if "fence" in what or what == "wait_for_launch_before":
        return "fences"
    return "registers" if what.startswith("setmaxnreg") else "within a warp"


def events_of(block: dict[str, Any], stacks: Sequence[tuple[Frame, ...]]) -> list[Event]:
    """Returns the events, with runs of equal ones merged. A fault without a place gets the last place that its
    text names."""
    events: list[Event] = []
    last: dict[int, int] = {}  # by warp
    for kind, warp, warps, lanes, what, place, thing, detail in block["events"]:
        name, text = KINDS[kind], block["texts"][what]
        event = Event(name, group_of(name, text), warp, warps, lanes, text, stacks[place], block["texts"][thing], block["texts"][detail])
        before = last.get(warp)
        if before is not None and name == "memory" and events[before].kind == "does" and events[before].what == text and not events[before].detail:
            events[before] = events[before]._replace(detail=event.detail)  # memory accesses of an instruction
            continue
        if before is not None and name in ("does", "copies", "memory") and events[before]._replace(times=1) == event:
            events[before] = events[before]._replace(times=events[before].times + 1)
            continue
        for one in range(warp, warp + warps):
            last[one] = len(events)
        events.append(event)
    return events


def read(file: str) -> dict[str, Any]:
    """Returns the simulator's output, with places resolved: {program, launches: [{..., blocks: [{block, warps, full,
    events}]}]}."""
    try:
        raw = json.loads(Path(file).read_text(encoding="utf-8", errors="replace"))
        program = raw["program"]
    except OSError as problem:
        raise Problem(f"{file}: {problem.strerror}. A program that runs kernels in the simulator writes it: FLASHBOOK_SIM_EVENTS={file}") from None
    except (ValueError, KeyError, TypeError):
        raise Problem(f"{file} was not written by FLASHBOOK_SIM_EVENTS: did the program launch a kernel in the simulator?") from None
    blocks = [block for launch in raw["launches"] for block in launch["blocks"]]
    code = [offset for block in blocks for place in block["places"] for offset in place[2]]
    frames = frames_of(program, code + [launch["kernel"] for launch in raw["launches"]])
    sources = Sources(program)
    launches = []
    for launch in raw["launches"]:
        resolved = []
        for block in launch["blocks"]:
            stacks = []
            for name, line, offsets in block["places"]:
                stack = sources.kernel_frames(frame for offset in offsets for frame in frames.get(offset, ()))
                stacks.append(stack or sources.kernel_frames([Frame(name, line, "")] if line else []))
            resolved.append({**block, "events": events_of(block, stacks)})
        kernel = frames.get(launch["kernel"]) if launch["kernel"] else None
        named = [frame.function for block in resolved for event in block["events"] for frame in event.stack if frame.function not in ("", "lambda")]
        launches.append({**launch, "kernel": kernel[-1].function if kernel else (named or ["kernel"])[0], "blocks": resolved})
    return {"program": program, "launches": launches}


def place_faults(trace: dict[str, Any], files: dict[str, str]) -> None:
    """Gives each fault without a place the first line that its report names, if it is in one of `files`."""
    names = {Path(path).name: path for path in files}
    for launch in trace["launches"]:
        for block in launch["blocks"]:
            for number, event in enumerate(block["events"]):
                named = re.search(r"at ([\w.-]+):(\d+)", event.detail) if event.kind == "fault" and not event.stack else None
                if named and named[1] in names:
                    block["events"][number] = event._replace(stack=(Frame(names[named[1]], int(named[2]), ""),))


def page_data(trace: dict[str, Any]) -> dict[str, Any]:
    """Returns the page's data: tables of texts, places and files, and each event as a row of indices into these
    tables."""
    paths = {frame.file for launch in trace["launches"] for block in launch["blocks"] for event in block["events"] for frame in event.stack}
    files = {path: Path(path).read_text(encoding="utf-8", errors="replace") for path in sorted(paths)}
    place_faults(trace, files)
    numbers: dict[Any, int] = {}
    tables: dict[str, list[Any]] = {"texts": [], "stacks": []}

    def number(table: str, value: Any) -> int:
        if (table, value) not in numbers:
            numbers[table, value] = len(tables[table])
            tables[table].append(value)
        return numbers[table, value]

    order = {path: i for i, path in enumerate(files)}
    launches = []
    for launch in trace["launches"]:
        blocks = []
        for block in launch["blocks"]:
            rows = [[KINDS.index(e.kind), GROUPS.index(e.group), e.warp, e.warps, e.lanes - (e.lanes >> 31 << 32), number("texts", e.what),
                     number("stacks", e.stack), number("texts", e.object), number("texts", e.detail), e.times] for e in block["events"]]
            blocks.append({"block": block["block"], "warps": block["warps"], "full": block["full"], "rows": [one for row in rows for one in row]})
        launches.append({**{key: launch[key] for key in ("kernel", "launch", "grid", "block", "shared", "error")}, "blocks": blocks})
    return {
        "program": Path(trace["program"]).name, "kinds": KINDS, "groups": GROUPS, "texts": tables["texts"],
        "stacks": [[[order[frame.file], frame.line, number("texts", frame.function)] for frame in stack] for stack in tables["stacks"]],
        "files": [{"name": Path(path).name, "text": text} for path, text in files.items()], "launches": launches,
    }


def html(trace: dict[str, Any]) -> str:
    data = json.dumps(page_data(trace), separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    return TEMPLATE.read_text(encoding="utf-8").replace("/*DATA*/null", data, 1)


def block_of(error: str, grid: Sequence[int]) -> int | None:
    """Returns the number of the block that a report names, by its number or by its coordinates: "in block 7", "in block
    (1,2,0)"."""
    named = re.search(r"block (?:(\d+)|\((\d+),(\d+),(\d+)\))", error)
    if not named:
        return None
    if named[1]:
        return int(named[1])
    x, y, z = map(int, named.group(2, 3, 4))
    return x + grid[0] * (y + grid[1] * z)


def say(trace: dict[str, Any]) -> None:
    """Prints notes that the user should see before opening the page."""
    for launch in trace["launches"]:
        for block in launch["blocks"]:
            if block["full"]:
                print(f"block {block['block']} of {launch['kernel']} has more than {block['full']} events, so the rest was left out: trace a "
                      "smaller shape or fewer rounds", file=sys.stderr)
        seen = ", ".join(str(block["block"]) for block in launch["blocks"])
        number = block_of(launch["error"], launch["grid"])
        if launch["error"] and not any(event.kind == "fault" for block in launch["blocks"] for event in block["events"]):
            other = f", and it is in block {number}: --blocks {number} shows it" if number is not None else ""
            print(f"{launch['kernel']} went wrong outside of the blocks that were traced ({seen}){other}", file=sys.stderr)


def write(file: str, text: str) -> None:
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as problem:
        raise Problem(f"{file} cannot be written: {problem.strerror}") from None


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events", help="the file that FLASHBOOK_SIM_EVENTS named")
    parser.add_argument("--html", required=True, help="the page to write")
    options = parser.parse_args(arguments)
    try:
        trace = read(options.events)
        if not trace["launches"]:
            raise Problem(f"{options.events} has no events: no kernel was launched")
        say(trace)
        write(options.html, html(trace))
    except Problem as problem:
        print(f"trace: {problem}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
