#!/usr/bin/env python3
"""In which order the simulator's warpgroups pass the moments of chapter 5's loop: docs/figures/pingpong_order.json.

    pingpong_order.py [--check] TIMELINE      TIMELINE is build/sim/bin/timeline; with --check nothing is written: exit code 1 if the
                                              file differs
"""
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))

from bench.names import Name

FILE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "figures" / "pingpong_order.json"
STEPS = (2, 3)  # without turns, and with them


def order(program):
    """The text of the file."""
    with tempfile.TemporaryDirectory() as folder:
        result = pathlib.Path(folder) / "timeline.json"
        subprocess.run([program, result], check=True, stdout=subprocess.DEVNULL)
        runs = {run["name"]: run["stamps"] for run in json.loads(result.read_text())["benchmarks"]}
    return json.dumps({f"step{step}": runs[str(Name("timeline", f"ch05/step{step}", "bf16", 64, "full", 1024))] for step in STEPS}, indent=1) + "\n"


def main():
    *check, program = sys.argv[1:]
    text = order(program)
    if not check:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        sys.exit(f"{FILE.name} is not what the simulator does: {sys.argv[0]} {program} writes it, docs/figures/pingpong_order.py draws it")


if __name__ == "__main__":
    main()
