#!/usr/bin/env python3
"""What chapter 1's kernels ask of device memory, as the traced mode counts it: docs/figures/interactive/sectors_data.js, which sectors.js shows.

    sectors_data.py [--check] 01_NAIVE_ATTENTION_TRACED      with --check nothing is written: exit code 1 if the file differs
"""
import json
import pathlib
import subprocess
import sys
import tempfile

FILE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "figures" / "interactive" / "sectors_data.js"
KERNELS = ("textbook_scores", "textbook_softmax", "coalesced_scores", "tiled_scores")
SHAPE = {"head_dim": 64, "seqlen": 64}


def text(program):
    """The text of the file: of each kernel the lines that load from device memory, the costliest first."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SHAPE.items()]
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "profile.json"
        subprocess.run([program, "--heads", "1", "--kv-heads", "1", "--dtype", "bf16", *options, "--json", report], check=True, stdout=subprocess.DEVNULL)
        launches = [launch for step in json.loads(report.read_text())["steps"] for launch in step["launches"]]
    lines = [{"kernel": launch["kernel"].split("<")[0], **{key: line[key] for key in ("place", "requests", "sectors")}}
             for launch in launches for line in launch["lines"] if line["memory"] == "global" and line["access"] == "load"]
    lines = sorted((line for line in lines if line["kernel"] in KERNELS), key=lambda line: (KERNELS.index(line["kernel"]), -line["sectors"], line["place"]))
    return ("// Loads of chapter 1's kernels as the traced mode counts them: docs/figures/recorded/sectors_data.py writes this.\n"
            f"(window.flashbookData ??= {{}}).sectors = {json.dumps({**SHAPE, 'lines': lines}, indent=1)};\n")


def main():
    *check, program = sys.argv[1:]
    now = text(program)
    if not check:
        FILE.write_text(now)
    elif FILE.read_text() != now:
        sys.exit(f"{FILE.name} is not what the traced mode counts: {sys.argv[0]} {program} writes it")


if __name__ == "__main__":
    main()
