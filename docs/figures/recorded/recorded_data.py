#!/usr/bin/env python3
"""Records the behaviour of kernels and the library for figures: a program prints it, and a file next to the figures
stores it.

    recorded_data.py [--check] PROGRAM      With --check nothing is written, and the exit code is 1 if the file differs.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "docs" / "figures"))

from svg import data_text

FIGURES = ROOT / "docs" / "figures"
WHAT = {"rank_errors": "Errors of chapter 10's ring over its ranks, in the simulator",
        "sectors": "Loads of chapter 1's kernels as the traced mode counts them"}


def answer(program, *words):
    """Returns the contents that a program writes into the file named by its last argument."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "answer.json"
        subprocess.run([program, *words, file], check=True, stdout=subprocess.DEVNULL)
        return json.loads(file.read_text())


def sectors(program):
    """Returns, for each kernel of chapter 1, the lines that load from device memory, the most expensive first."""
    kernels, shape = ("textbook_scores", "textbook_softmax", "coalesced_scores", "tiled_scores"), {"head_dim": 64, "seqlen": 64}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in shape.items()]
    steps = answer(program, "--heads", "1", "--kv-heads", "1", "--dtype", "bf16", *options, "--json")["steps"]
    lines = [{"kernel": launch["kernel"].split("<")[0], **{key: line[key] for key in ("place", "requests", "sectors")}}
             for step in steps for launch in step["launches"] for line in launch["lines"] if line["memory"] == "global" and line["access"] == "load"]
    lines = sorted((line for line in lines if line["kernel"] in kernels), key=lambda line: (kernels.index(line["kernel"]), -line["sectors"], line["place"]))
    return {**shape, "lines": lines}


def main():
    *check, program = sys.argv[1:]
    name = pathlib.Path(program).name.replace("01_naive_attention_traced", "sectors")
    data = sectors(program) if name == "sectors" else json.loads(subprocess.run([program], check=True, stdout=subprocess.PIPE, text=True).stdout)
    file, now = FIGURES / "interactive" / f"{name}_data.js", data_text(name, WHAT[name], "recorded/recorded_data.py", data)
    if not check:
        file.write_text(now)
    elif file.read_text() != now:
        sys.exit(f"{file.name} differs from what the program prints: {sys.argv[0]} {program} writes it, docs/figures/{name}.py draws it")


if __name__ == "__main__":
    main()
