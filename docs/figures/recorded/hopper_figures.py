#!/usr/bin/env python3
"""Records the data for chapter 5's drawings of layouts and of a ring's phases from a program's output, or checks them.

    hopper_figures.py [--check] HOPPER_LAYOUTS

docs/figures/hopper_layouts.json                  the program's output, for wgmma_tiles.py, wgmma_fragments.py and ring_phases.py
docs/figures/interactive/ring_phases_data.js      its output for `rings`: the pipelines that ring_phases.js plays
With --check nothing is written, and the exit code is 1 if something differs.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
FIGURES = ROOT / "docs" / "figures"
LAYOUTS = FIGURES / "hopper_layouts.json"
INTERACTIVE = FIGURES / "interactive"
WRITER = "recorded/hopper_figures.py"
DRAWN = ("wgmma_tiles", "wgmma_fragments", "ring_phases")
sys.path.insert(0, str(FIGURES))

from svg import data_text

# Where producer and consumers are: the file, and how the lines begin.
CODE = {
    "producer": (ROOT / "chapters" / "05_flash_attention_3" / "specialised.cuh",
                 ("for (int tile = tiles - 1", "fill(pipeline, state, k_map, k_tile", "fill(pipeline, state, v_map")),
    "consumer": (ROOT / "docs" / "figures" / "recorded" / "hopper_layouts.cu",
                 ("for (int i = 0; i < 2 * kTiles", "wait_full(", "__syncwarp();", "if (!forgets) release(", "state.advance();")),
}


def code_lines(file, beginnings):
    lines = file.read_text(encoding="utf-8").splitlines()
    found = [next(number for number, line in enumerate(lines) if line.lstrip().startswith(text)) for text in beginnings]
    indentation = min(len(lines[number]) - len(lines[number].lstrip()) for number in found)
    return [[number + 1, lines[number][indentation:]] for number in found]


def played(text):
    """Returns what ring_phases.js plays. An event has seven letters: who, what, which barrier, and its state after the
    event: phase, missing arrivals and missing KB."""
    kinds = {"passes": "P", "announces": "A", "copies": "C", "gives back": "G"}
    runs: list[dict[str, Any]] = []
    tiles: list[str] = []
    reports: list[str] = []
    for run in text.split("run: ")[1:]:
        run, _, report = run.partition("report:\n")
        report = report.rstrip()
        head, *lines = run.splitlines()
        stages, consumers, landing, fault = head.split(", ")
        events = []
        for line in lines:
            found = re.fullmatch(r"(?:(over)|(?:warp )?(\w+) (.+)), (full|empty)\[(\d)\] (\d+) (\d+) (\d+) (\w*)", line)
            if not found:
                sys.exit(f"{head}: no event: {line}")
            over, who, what, barrier, stage, phase, pending, missing, tile = found.groups()
            events.append(f'{"-" if over else who[0]}{"O" if over else kinds[what]}{barrier[0]}{stage}{phase}{pending}{int(missing) // 1024}')
            if not runs and over and barrier == "full":
                tiles.append(tile)
        if report and report not in reports:
            reports.append(report)
        runs.append({"stages": stages, "consumers": consumers, "landing": landing, "fault": fault, "events": "".join(events),
                     "report": reports.index(report) if report else None})
    code = {who: {"file": file.name, "lines": code_lines(file, beginnings)} for who, (file, beginnings) in CODE.items()}
    return data_text("ring_phases", "Pipelines as the simulator ran them", WRITER, {"tiles": tiles, "code": code, "reports": reports, "runs": runs})


def brought_up_to_date(file, said, check):
    """Returns whether the file has this text or has been updated to it."""
    if file.exists() and file.read_text(encoding="utf-8") == said:
        return True
    if check:
        print(f"{file}: not what the program prints", file=sys.stderr)
        return False
    file.write_text(said, encoding="utf-8")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if something differs")
    parser.add_argument("program", metavar="HOPPER_LAYOUTS")
    options = parser.parse_args()
    said, rings = (subprocess.run([options.program, *words], stdout=subprocess.PIPE, check=True, text=True).stdout for words in ([], ["rings"]))
    right = brought_up_to_date(LAYOUTS, said, options.check)
    right &= brought_up_to_date(INTERACTIVE / "ring_phases_data.js", played(rings), options.check)
    if not options.check:
        for name in DRAWN:  # docs/check.py compares these with their sources
            subprocess.run([sys.executable, FIGURES / f"{name}.py"], check=True)
    if not right:
        sys.exit(f"python3 docs/figures/recorded/hopper_figures.py {options.program} updates these")


if __name__ == "__main__":
    main()
