#!/usr/bin/env python3
"""Compares the site's modules with FP64 and with the same programs on this machine: compare.py MODULES PROGRAMS
[CHAPTER...]

Every step must be right in the module, with every mask that it supports according to docs/web/page_chapters.py, in both head dimensions, all modes
and several lengths, and must reject the other masks. Any fault on the page that the native program detects in some mode must also be
detected in the module, and every fault must be detected in the mode that the page sets, except those listed as unseen. Prints the answers that
differ and the number of identical ones. Exits with 1, and prints a line per error, if a check fails.
"""
import gzip
import json
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "mutation"))

from plant import run_with

MODES = ("eager", "lazy", "random")
LENGTHS = (5, 64, 130, 300)  # less than a tile, one tile, several with a partial last one
MOST_BYTES = 700_000  # the most that a compressed module may have
DEFAULTS = {"n": 256, "d": 64, "mask": "full", "mode": "lazy", "seed": 0, "more": ""}  # the same as in panel.js

Answer = dict[str, Any]


def job(settings: dict[str, Any], fault: int = -1, seconds: int = 60) -> dict[str, Any]:
    environment = {"FLASHBOOK_SIM_ASYNC": settings["mode"], "FLASHBOOK_SIM_SEED": str(settings["seed"]), "FLASHBOOK_FAULT": str(fault)}
    return {"settings": settings, "environment": environment, "seconds": seconds}


def in_module(module: Path, jobs: list[dict[str, Any]]) -> list[Answer]:
    run = subprocess.run(["node", str(HERE / "run_in_node.js"), str(module)], input=json.dumps(jobs), capture_output=True, text=True, check=True)
    answers: list[Answer] = json.loads(run.stdout)
    return answers


def in_program(program: Path, words: list[str], environment: dict[str, str], seconds: int) -> Answer:
    try:
        run = run_with(program.resolve(), words, -1, environment, seconds)
        answer: Answer = json.loads(run.stdout)
    except subprocess.TimeoutExpired:
        return {"endless": True}
    except json.JSONDecodeError:
        return {"broken": f"exit code {run.returncode}: {run.stdout}{run.stderr}"}
    return answer


def kind(answer: Answer) -> str:
    """Returns right, wrong, report, refused, endless or broken"""
    if "tensors" in answer:
        return "right" if all(tensor["ok"] for tensor in answer["tensors"]) else "wrong"
    return next(kind for kind in ("report", "refused", "endless", "broken") if kind in answer)


def said(answer: Answer) -> str:
    """Returns a report without the parts that depend on memory addresses."""
    return re.sub(r"0x[0-9a-f]+", "0x...", str(answer.get("report", answer.get("refused", answer.get("broken", "")))))


def steps(module: Path, about: dict[str, Any], wrong: list[str]) -> int:
    """Runs every step without faults; returns the number of runs."""
    runs: list[tuple[dict[str, Any], bool]] = []
    for step in range(1, len(about["steps"]) + 1):
        for name, mask in about["masks"].items():
            for i, n in enumerate(LENGTHS):
                turn = len(runs) // len(LENGTHS) + i
                mode = MODES[turn % 3]
                settings = {**DEFAULTS, "step": step, "n": n, "mask": name, "d": (64, 128)[turn % 2], "mode": mode,
                            "seed": turn if mode == "random" else 0}
                runs.append((settings, not mask["steps"] or step in mask["steps"]))
    for (settings, takes), answer in zip(runs, in_module(module, [job(settings) for settings, _ in runs]), strict=True):
        if kind(answer) != ("right" if takes else "refused"):
            wrong.append(f"chapter {module.name}: {' '.join(answer.get('words', map(str, settings.values())))} ({settings['mode']}) is not "
                         f"{'right' if takes else 'refused'}: {said(answer) or answer}")
    return len(runs)


def faults(module: Path, program: Path, about: dict[str, Any], wrong: list[str], counts: Counter[str]) -> None:
    runs = []
    for index, fault in enumerate(about["faults"]):
        settings = {**DEFAULTS, "step": fault["steps"][0], **fault["settings"]}
        for mode in MODES:
            seed = settings["seed"] or (1 if mode == "random" else 0)
            runs.append((fault, mode == settings["mode"], job({**settings, "mode": mode, "seed": seed}, index, 30)))
    answers = in_module(module, [job for _, _, job in runs])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        natives = pool.map(lambda run, answer: in_program(program, answer["words"], run[2]["environment"], 30), runs, answers)
    for (fault, is_shown, asked), here, native in zip(runs, answers, natives, strict=True):
        name, mode = fault["name"], asked["settings"]["mode"]
        if kind(here) in ("refused", "broken"):
            wrong.append(f"{name}, {mode}: the module cannot run it: {said(here)}")
        if is_shown and (kind(here) == "right") != bool(fault["unseen"]):
            wrong.append(f"{name}: with the page's settings it is {kind(here)}, and should be {'unseen' if fault['unseen'] else 'seen'}")
        counts["faults"] += 1
        counts["same"] += kind(native) == kind(here) and said(native) == said(here)
        counts["noticed"] += kind(native) != "right"
        if kind(native) in ("refused", "broken"):
            wrong.append(f"{name}, {mode}: the program cannot run it: {said(native)}")
        if kind(here) == "right" and kind(native) != "right":
            wrong.append(f"{name}, {mode}: the module reports nothing, but the program says {said(native) or 'a wrong result'}")
        if kind(native) != kind(here) or said(native) != said(here):
            print(f"{name}, {mode}:\n  program: {kind(native)} {said(native)}\n  module:  {kind(here)} {said(here)}")


def main() -> int:
    modules, programs, chapters = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    chapters = chapters or sorted(file.stem for file in modules.glob("[0-9][0-9].json"))
    wrong: list[str] = []
    counts: Counter[str] = Counter()
    for chapter in chapters:
        module = modules / chapter
        about = json.loads(module.with_suffix(".json").read_text(encoding="utf-8"))
        size = len(gzip.compress(module.with_suffix(".wasm").read_bytes()))
        print(f"chapter {chapter}: {size // 1000} kB")
        if size > MOST_BYTES:
            wrong.append(f"chapter {chapter}: the module has {size} bytes, compressed; at most {MOST_BYTES} are allowed")
        counts["runs"] += steps(module, about, wrong)
        faults(module, programs / f"web_{chapter}", about, wrong, counts)
    print(f"{counts['runs']} runs, {counts['faults']} with a fault in one of three modes: {counts['noticed']} noticed by the program, "
          f"{counts['same']} answers the same")
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
