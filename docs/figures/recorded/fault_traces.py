#!/usr/bin/env python3
"""Records what a block does without and with a planted fault, event by event:
docs/figures/interactive/fault_chNN_data.js.

    fault_traces.py [--check] PROGRAM...     PROGRAMs are build/sim/bin/planted_NN_traced. With --check nothing is
    written, and the exit code is 1 if a file differs.
"""
import importlib
import os
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / folder) for folder in ("common/simulator/events", "tests/mutation", "docs/figures")]

from fault import run_with
from svg import data_text

import chapters

page = importlib.import_module("page")  # common/simulator/events/page.py; tests/mutation has another page.py

# For each chapter, the one of its two faults that a trace shows.
SHOWN = {"01": "no_barrier_01", "03": "no_barrier_03", "04": "no_barrier_04", "05": "wrong_parity_05", "06": "one_does_not_arrive_06",
         "07": "no_wait_for_reading_07", "08": "keys_behind_the_last_08"}
VERBS = {"waits": " waits at", "passes": " passes", "lands": " has landed in", "over": " at"}


def words(event):
    """Returns what happens, without the parts that change when a line is added to a file."""
    if event.kind == "fault":
        return "the simulator reports: " + re.split(r" in block | at \S+:\d| by ", event.detail or event.what)[0]
    times = f" \u00d7{event.times}" if event.times > 1 else ""
    thing = "" if event.object.startswith("products") else event.object.removeprefix("mbarrier ")
    return f"{event.what}{times}{VERBS.get(event.kind, '')} {thing}".strip()


def source(event, texts):
    """Returns the line of the kernel that an event comes from."""
    if not event.stack:
        return ""
    frame = event.stack[0]
    lines = texts.setdefault(frame.file, pathlib.Path(frame.file).read_text(encoding="utf-8").splitlines())
    return f"{pathlib.Path(frame.file).name}: {lines[frame.line - 1].strip()[:90]}"


def run_of(program, name, asked):
    """Returns the launch that contains the fault, or the same launch without it, as rows."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "events.json")
        run_with(program, chapters.FAULTS[name].traced, asked, {"FLASHBOOK_SIM_EVENTS": file})
        trace = page.read(file)
    return trace["launches"]


def texts_of(program, name):
    good, broken = (run_of(program, name, asked) for asked in (-1, list(chapters.FAULTS).index(name)))
    wrong = next(launch for launch in broken if launch["error"])
    right = next(launch for launch in good if launch["kernel"] == wrong["kernel"])
    known: dict[str, int] = {}
    files: dict[str, list[str]] = {}
    runs = {}
    for key, launch in (("good", right), ("broken", wrong)):
        rows = []
        for event in launch["blocks"][0]["events"]:
            says, line = (known.setdefault(text, len(known)) for text in (words(event), source(event, files)))
            rows += [page.GROUPS.index(event.group), event.warp, event.warps, says, line]
        runs[key] = rows
    fault = chapters.FAULTS[name]
    return {"kernel": right["kernel"], "warps": right["blocks"][0]["warps"], "line": " ".join(fault.old.split()), "now": " ".join(fault.new.split()),
            "groups": page.GROUPS, "texts": list(known), **runs}


def main():
    *check, = [word for word in sys.argv[1:] if word == "--check"]
    stale = []
    for program in sys.argv[1 + len(check):]:
        number = program.removesuffix("_traced")[-2:]
        name = f"fault_ch{number}"
        file = ROOT / "docs" / "figures" / "interactive" / f"{name}_data.js"
        text = data_text(name, f"A block of chapter {int(number)} without a fault and with it", "recorded/fault_traces.py",
                         texts_of(os.path.abspath(program), SHOWN[number]))
        if not check:
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            stale.append(program)
    if stale:
        sys.exit(f"the kernels' events have changed: {sys.argv[0]} {' '.join(stale)} records them, docs/figures/fault_traces.py draws them")


if __name__ == "__main__":
    main()
