"""The commands run, test, bench, accuracy, profile, trace, ramp, generate and docs."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from door import gpu, packages, tree
from door.build import background, build, configure, folder, has_target, program
from door.console import HERE, ROOT, answers, fail, say, show, watched

MACHINE = "00_"  # chapter 0 measures the machine, so it has no shape and no rung on the ladder


def run(a: argparse.Namespace) -> int:
    """Runs each chapter as soon as its program is built, while the others are compiled, then prints the ladder."""
    names = [tree.folder_of(number) for number in a.chapters] or [
        name for name in tree.folders() if not name.startswith(MACHINE)
    ]
    own_report = any(word.startswith("--json") for word in a.options)
    if own_report and len(names) > 1:
        fail(
            f"--json writes one file, but {len(names)} chapters were given: run one at a time, as in ./flashbook run 01 -- --json X"
        )
    packages.need("to build the chapters", packages.PROGRAMS)
    presets = {name: gpu.preset(name, a.cuda) for name in names}
    for preset in sorted(set(presets.values())):
        configure(preset)
    programs = {
        name: name + ("_quick" if not a.options and has_target(preset, name + "_quick") else "")
        for name, preset in presets.items()
    }
    targets: dict[str, list[str]] = {preset: [] for preset in presets.values()}
    for name, preset in presets.items():
        targets[preset].append(programs[name])
    last = presets[names[-1]]
    if len(names) > 1:
        targets[last].append("ladder")  # with a single chapter, everything is printed
    worst, written = 0, []
    first = presets[names[0]]
    if first == "sim":  # with few cores, the first rows appear sooner if nothing else is being compiled
        build(first, targets[first].pop(0))
    with contextlib.ExitStack() as stack:
        builds = {preset: stack.enter_context(background(preset, *some)) for preset, some in targets.items() if some}
        for number, name in enumerate(names, 1):
            preset = presets[name]
            if len(names) > 1:
                left = sum(each.left for each in builds.values())
                say(f"\n== {name}, {number} of {len(names)}" + (f": {left} build steps left" if left else ""))
            if programs[name] in targets[preset]:
                builds[preset].wait_for(programs[name])
            report = folder(preset) / "reports" / f"{name}.json"
            report.parent.mkdir(exist_ok=True)
            report.unlink(missing_ok=True)
            is_attention = not name.startswith(MACHINE)
            words = [
                *(["--json", str(report)] if is_attention and not own_report else []),
                *(a.options if is_attention or len(names) == 1 else []),
            ]
            print(flush=True)
            code = show(program(preset, programs[name]), *words, cwd=HERE)
            if code == 2 and number == 1 and a.options:  # the other chapters would reject the options as well
                return code
            worst = code or worst
            written += [report] if report.exists() else []
        if len(written) > 1:
            builds[last].wait_for("ladder")
            print(flush=True)
            subprocess.run([program(last, "ladder"), *written], check=False)
    return worst


def test(a: argparse.Namespace) -> int:
    everything = a.all or tree.STUDENT
    packages.need("to build the tests", packages.TESTS, ["benchmark", "numpy"] if everything else [])
    standard, tier = ([], "-all") if everything else (["standard_tests"], "")
    parts: list[tuple[str, str, list[str], list[str]]] = [
        (gpu.preset(cuda=a.cuda), tier, standard, [])
    ]  # preset, tier, targets, options
    if (
        parts[0][0] == "gpu" and gpu.architecture() != gpu.HOPPER
    ):  # chapters that the GPU can run, with all of their kernels; the others run in the simulator
        on_gpu = [name for name in tree.for_any_gpu() if (ROOT / "tests/chapters" / f"{name}_test.cpp").exists()]
        theirs = rf"^test_({'|'.join(on_gpu)})\."
        tests_on_gpu = ("gpu", "-all", [f"test_{name}" for name in on_gpu], ["-R", theirs, "-E", "NOT_BUILT"])
        parts = [*([tests_on_gpu] if on_gpu else []), ("sim", tier, standard, ["-E", theirs])]
    worst, some = 0, False
    for preset, tier, targets, chosen in parts:
        build(preset, *targets, tests=True)
        ctest = ("ctest", "--preset", preset + tier, *chosen)
        if a.options and "Total Tests: 0" in (answers(*ctest, "-N", *a.options) or ""):
            continue
        some = True
        jobs = ("-j", str(os.cpu_count()))
        worst = watched(*ctest, *jobs, *a.options, busy="tests are still running", out=sys.stdout) or worst
    if not some:
        fail(
            f"no test matches {shlex.join(a.options)}: ./flashbook test {'--all ' * everything}-- -N lists the tests"
            + ("" if everything else ", and test --all has more")
        )
    return worst


def measure(a: argparse.Namespace) -> int:
    """Measures chapters on a GPU, or CPU chapters without one (bench), or runs chapter 6's study (accuracy). Files the
    result."""
    name, selection, preset = a.command, [], gpu.preset(cuda=getattr(a, "cuda", True))
    if a.command == "bench":
        name, selection = (
            "forward",
            ["--chapter", ",".join(str(int(number)) for number in a.chapters)] if a.chapters else [],
        )
        on_cpu = [
            chapter[:2] for chapter in tree.folders() if (ROOT / "chapters" / chapter / "host/chapter.cpp").exists()
        ]
        if preset == "sim" and not {tree.folder_of(number)[:2] for number in a.chapters or ["01"]} <= set(on_cpu):
            reason = "the GPU cannot be used" if gpu.is_there() else "kernels are measured on a GPU, and there is none"
            fail(f"{reason}; CPU chapters can be measured with ./flashbook bench {' '.join(on_cpu)}", 77)
    packages.need("to build the bench", (*packages.PROGRAMS, "benchmark"))
    limits = ["00_the_machine"] if preset == "gpu" and name == "forward" else []  # measures the card's limits
    build(preset, name, *limits)
    result = folder(preset) / f"{name}.json"
    result.unlink(missing_ok=True)
    os.environ["FLASHBOOK_COMMIT"] = (
        os.environ.get("FLASHBOOK_COMMIT") or (answers("git", "describe", "--always", "--dirty") or "unknown").strip()
    )
    machine_files: list[str | Path] = [folder(preset) / "machine.json"] * len(limits)
    return (
        show(program(preset, name), *selection, "--out", result, *a.options)
        or any(show(program(preset, limit), "--json", file) for limit, file in zip(limits, machine_files))
        or (name == "forward" and show(sys.executable, "bench/results.py", "beside", result, *machine_files))
        or show(sys.executable, "bench/results.py", "add", result, *machine_files)
    )


def profile_exercise(id: str) -> int:
    if not (ROOT / "tests/exercises" / f"{id}.cu").exists():
        fail(f"{id} launches no kernel: there is nothing to profile")
    packages.need("to build the exercise", packages.TESTS)
    configure("sim", tests=True)
    twin = f"exercise.{id}_traced"
    name = twin if has_target("sim", twin) else f"exercise.{id}"  # an exercise is itself a traced program
    build("sim", name, tests=True)
    os.environ["FLASHBOOK_PROFILE"] = "1"
    return show(program("sim", name), cwd=HERE)


def profile(a: argparse.Namespace) -> int:
    if not a.chapter.isdigit():
        return profile_exercise(a.chapter)
    name, ncu = tree.folder_of(a.chapter), ROOT / "bench/ncu_profile.py"
    if not tree.has_kernels(name):
        fail(
            "chapter 00 does its own counting: ./flashbook run 00"
            if a.chapter == "00"
            else f"chapter {a.chapter} runs on the CPU: there is no kernel to profile"
        )
    packages.need("to build the chapter", packages.PROGRAMS)
    preset = gpu.preset(name, a.cuda and ncu.exists())
    target = program(preset, name if preset == "gpu" else f"{name}_traced")
    build(preset, target.name)
    counts: list[str | Path] = [sys.executable, ncu, "--run"] if preset == "gpu" else []
    return show(*counts, target, *a.options, cwd=HERE)


def trace(a: argparse.Namespace) -> int:
    if not re.fullmatch(r"\d+(-\d+)?", a.blocks):
        fail(f"--blocks {a.blocks} is not a range: use one block, or the first and the last, as in 0-1")
    traced, is_chapter = HERE / a.what, a.what.isdigit()
    if "/" in a.what:
        if traced.is_dir() or not os.access(traced, os.X_OK):
            fail(f"{a.what} is not an executable program: build it first")
    else:
        name = tree.folder_of(tree.number_of(a.what)) if is_chapter else f"exercise.{tree.known_exercise(a.what)}"
        if is_chapter and not tree.has_kernels(name):
            fail(f"chapter {tree.number_of(a.what)} has no kernel to trace: ./flashbook run {tree.number_of(a.what)}")
        if not is_chapter and not (ROOT / "tests/exercises" / f"{a.what}.cu").exists():
            fail(f"{a.what} launches no kernel: there is nothing to trace")
        packages.need("to build the program", packages.PROGRAMS if is_chapter else packages.TESTS)
        configure("sim", tests=not is_chapter)
        quick = "" if any(word.startswith(("--head-dim", "--dtype")) for word in a.options) else "_traced_quick"
        twin = next(
            (twin for twin in (quick, "_traced") if twin and has_target("sim", name + twin)), ""
        )  # unless the program is itself a traced one
        traced = program("sim", f"{name}{twin}")
        build("sim", traced.name, tests=not is_chapter)
    events = folder("sim") / "reports/events.json"
    events.parent.mkdir(parents=True, exist_ok=True)
    events.unlink(missing_ok=True)
    os.environ.update(FLASHBOOK_SIM_EVENTS=str(events), FLASHBOOK_SIM_EVENTS_BLOCKS=a.blocks)
    code = show(traced, *a.options, cwd=HERE, out=subprocess.DEVNULL if is_chapter else None)
    if not events.exists() or events.stat().st_size == 0:
        return code or fail(f"{a.what} launched no kernel: there is nothing to trace")
    page = ROOT / "common/simulator/events/page.py"
    if failed := show(sys.executable, page, events, "--html", a.out, cwd=HERE):
        return failed
    print(f"{a.out} is the page: open it in a browser")
    return code


PROGRAMS = {  # keyed by the command that runs them, which is also the program's name
    "ramp": "run four small kernels with an mbarrier, TMA and WGMMA (chapter 5)",
    "generate": "generate tokens with a toy decoder, with and without a cache (chapter 8)",
}


def small_program(name: str, options: Sequence[str]) -> int:
    chapter = "05_flash_attention_3" if name == "ramp" else "08_decoding"
    if not (ROOT / "chapters" / chapter).is_dir():
        fail(f"{name} belongs to chapter {int(chapter[:2])}, which this copy does not have")
    packages.need("to build the program", packages.PROGRAMS)
    preset = gpu.preset(chapter, "--no-cuda" not in options)
    build(preset, name)
    return show(program(preset, name), *(word for word in options if word not in ("--no-cuda", "--")), cwd=HERE)


def docs(a: argparse.Namespace) -> int:
    lacking = [
        name
        for name in (ROOT / "docs/packages").read_text(encoding="utf-8").split()
        if shutil.which("dpkg-query")
        and "install ok installed" not in (answers("dpkg-query", "-W", "-f", "${Status}", name) or "")
    ]
    if lacking and not packages.install("to build the site", *lacking):
        fail(f"the site needs {' '.join(lacking)}: apt-get install -y {' '.join(lacking)}")
    python = packages.python_with("markdown_it", "mdit_py_plugins", "pygments")
    if not python:
        names = "python3-markdown-it python3-mdit-py-plugins python3-pygments"
        fail(f"no Python has the site's modules: apt-get install -y {names}")
    return show(python, "docs/build", *a.options)
