#!/usr/bin/env python3
"""Holds the modules of the site against the same programs of this machine: compare.py MODULES PROGRAMS [CHAPTER...]

Every step must be right in the module, for both head dimensions, without a mask and with the causal one; and no fault of docs/web/page_faults.py
that the program reports, or gets a wrong result of, may go unnoticed in the module, in no mode. Prints the answers that differ, and how many are
the same, word for word. Exit code 1, and a line each, if something is not so.
"""
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODES = ("eager", "lazy", "random")


def ask(program, words, environment, seconds):
    """What a program or a module answers."""
    try:
        run = subprocess.run([*program, *words], env={**os.environ, "FLASHBOOK_SIM_THREADS": "1", **environment}, capture_output=True, text=True,
                             timeout=seconds)
        return json.loads(run.stdout)
    except subprocess.TimeoutExpired:
        return {"report": "a thread runs for ever"}  # as the page says after five seconds
    except json.JSONDecodeError:
        return {"report": f"exit code {run.returncode}: {run.stdout}{run.stderr}", "broken": True}


def kind(answer):
    if "report" in answer or "refused" in answer:
        return "report"
    return "right" if all(tensor["ok"] for tensor in answer["tensors"]) else "wrong"


def said(answer):
    """A report, without what depends on where things lie in memory."""
    return re.sub(r"0x[0-9a-f]+", "0x...", answer.get("report", answer.get("refused", "")))


def main():
    modules, programs, chapters = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    chapters = chapters or sorted(file.stem for file in modules.glob("[0-9][0-9].json"))
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    for chapter in chapters:
        about = json.loads((modules / f"{chapter}.json").read_text(encoding="utf-8"))
        module, program = ["node", str(HERE / "run_in_node.js"), str(modules / chapter)], [str(programs / f"web_{chapter}")]
        for step in range(1, len(about["steps"]) + 1):
            for head_dim, mask in (("64", "full"), ("128", "causal")):
                words = [f"step={step}", "n=200", f"d={head_dim}", f"mask={mask}"]
                answer = ask(module, words, {}, 120)
                counts["runs"] += 1
                native = ask(program, words, {}, 120)
                if kind(answer) != kind(native) or "report" in answer or (kind(answer) != "right" and "refused" not in answer):
                    wrong.append(f"chapter {chapter}, {' '.join(words)}: {said(answer) or answer['tensors']}")
        for index, fault in enumerate(about["faults"]):
            settings = {"n": 256, "mask": "full", "seed": 0, **fault["settings"]}
            words = [f"step={fault['steps'][0]}", f"n={settings['n']}", f"mask={settings['mask']}"]
            shown = False
            for mode in MODES:
                seed = settings["seed"] or (1 if mode == "random" else 0)
                environment = {"FLASHBOOK_FAULT": str(index), "FLASHBOOK_SIM_ASYNC": mode, "FLASHBOOK_SIM_SEED": str(seed)}
                native, here = ask(program, words, environment, 30), ask(module, words, environment, 20)
                counts["faults"] += 1
                counts["same"] += kind(native) == kind(here) and said(native) == said(here)
                counts["noticed"] += kind(native) != "right"
                shown |= kind(here) != "right" and mode == settings.get("mode", "lazy")
                if (kind(here) == "right" and kind(native) != "right") or "broken" in here:
                    wrong.append(f"{fault['name']}, {mode}: the module is silent, and the program says {said(native) or 'a wrong result'}")
                if kind(native) != kind(here) or said(native) != said(here):
                    print(f"{fault['name']}, {mode}:\n  program: {kind(native)} {said(native)}\n  module:  {kind(here)} {said(here)}")
            if not shown:
                wrong.append(f"{fault['name']}: the page's settings do not show it")
    print(f"{counts['runs']} runs, {counts['faults']} with a fault in one of three modes: {counts['noticed']} noticed by the program, "
          f"{counts['same']} answers the same")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
