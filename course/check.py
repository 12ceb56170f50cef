#!/usr/bin/env python3
"""Proves the course, in the simulator: every exercise fails as it is handed out and passes when it is solved, and the hand-out has
what it should and nothing else. Exit code 1, and a line for each fault, if not."""
import html
import json
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import handout
import manifest
import regions
from regions import Fault, code

PER_CHAPTER = range(3, 6)
SECONDS = 60  # that an exercise's tests may take
DETAILS = re.compile(r"<details>\s*<summary>Hint</summary>(.*?)</details>", re.DOTALL)


# ---- what can be read --------------------------------------------------------------------------------------------------------------


def region_faults(root, exercises):
    """Every exercise has its region, in its file; every region has its exercise."""
    found = {}
    for path in sorted(root.glob("chapters/**/*.*")):
        if path.suffix in (".cuh", ".cu", ".h", ".cpp"):
            name = str(path.relative_to(root))
            for region in regions.regions(path.read_text(encoding="utf-8"), name):
                if region.id in found:
                    yield f"{name}:{region.line}: {region.id} is already in {found[region.id]}"
                found.setdefault(region.id, name)
    for exercise in exercises:
        if exercise.id not in found:
            yield f"{exercise.id}: no region in {exercise.file}: mark it with // BEGIN SOLUTION {exercise.id}"
        elif found[exercise.id] != exercise.file:
            yield f"{exercise.id}: its region is in {found[exercise.id]}, not in {exercise.file}"
    for unknown in sorted(set(found) - {e.id for e in exercises}):
        yield f"{found[unknown]}: {unknown} belongs to no exercise: add it to exercises.json"


def plain(text):
    return " ".join(html.unescape(text).split())


def page_faults(root, exercises):
    """The chapter's page has a section for each exercise: what it is called, the file, the command, the one hint."""
    for chapter in dict.fromkeys(e.chapter for e in exercises):
        own = [e for e in exercises if e.chapter == chapter]
        if len(own) not in PER_CHAPTER:
            yield f"{chapter}: {len(own)} exercises; a chapter has {PER_CHAPTER[0]} to {PER_CHAPTER[-1]}"
        if not any(e.kind == "mend" for e in own):
            yield f"{chapter}: no exercise is a kernel to mend"
        page = f"chapters/{chapter}/README.md"
        text = (root / page).read_text(encoding="utf-8").partition("\n## Exercises\n")[2].partition("\n## ")[0]
        sections = {part.partition("\n")[0]: part for part in re.split(r"^### ", text, flags=re.MULTILINE)[1:]}
        for e in own:
            section = sections.pop(f"{e.id}: {e.title}", None)
            if section is None:
                yield f"{page}: there is no '### {e.id}: {e.title}' under '## Exercises'"
                continue
            hints = DETAILS.findall(section)
            if [plain(hint) for hint in hints] != [plain(e.hint)]:
                yield f"{page}: {e.id}: its <details> is not the one hint in exercises.json"
            if Path(e.file).name not in section:
                yield f"{page}: {e.id}: it does not name the file to edit, {Path(e.file).name}"
            if f"./flashbook course try {e.id}" not in section:
                yield f"{page}: {e.id}: it does not say how to know: ./flashbook course try {e.id}"
        for other in sections:
            yield f"{page}: '### {other}' is no exercise of this chapter"


def stray_faults(root, exercises):
    """Files in the folders of exercises that belong to none; files that would be handed out and are not in git."""
    own = {e.file for e in exercises} | {f"chapters/{e.chapter}/exercises/exercises.json" for e in exercises}
    for name in handout.files_of_tree(root):
        if name.startswith("chapters/") and "/exercises/" in name and name not in own:
            yield f"{name} belongs to no exercise: delete it, or name it in exercises.json"
        if re.fullmatch(r"tests/exercises/.*\.(cu|cpp)", name) and Path(name).stem not in {e.id for e in exercises}:
            yield f"{name} tests no exercise: delete it, or name it in exercises.json"
    if (root / ".git").exists():
        tracked = subprocess.run(["git", "-C", root, "ls-files", "-z"], stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")
        for name in sorted(set(handout.handed_out_files(root)) - set(tracked)):
            yield f"{name} would be handed out and is not in git: add it, or delete it"


# ---- what is handed out ------------------------------------------------------------------------------------------------------------


def holds(lines, run):
    return any(lines[i:i + len(run)] == run for i in range(len(lines) - len(run) + 1))


def handout_faults(root, tree, exercises):
    """Nothing but what belongs there, no solution, and every link of its pages leads somewhere."""
    wanted = set(handout.handed_out_files(root)) | {"README.md"}
    texts = {}
    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        if path.is_file():
            texts[name] = path.read_text(encoding="utf-8")
            if name not in wanted:
                yield f"hand-out: {name} is a stray file"
    for name in sorted(wanted - set(texts)):
        yield f"hand-out: {name} is missing"

    solved = [r for file in {e.file for e in exercises} for r in regions.regions((root / file).read_text(encoding="utf-8"), file)]
    for name, text in texts.items():
        lines = code(text.splitlines())
        for region in solved:
            if holds(lines, code(region.solution)):
                yield f"hand-out: {name} has the solution of {region.id}"
            if name.endswith(".md"):  # which may not even quote a line of it
                for line in sorted(region.telling() & set(lines)):
                    yield f"hand-out: {name} quotes the solution of {region.id}: {line}"
        for link in re.finditer(r"\]\(([^)\s#]+)[^)]*\)", re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)):
            if name.endswith(".md") and not re.match(r"[a-z]+:", link[1]) and not (tree / name).parent.joinpath(link[1]).exists():
                yield f"hand-out: {name} links to {link[1]}, which is not handed out"



# ---- what can be run ---------------------------------------------------------------------------------------------------------------


class Build:
    """The hand-out, built in the simulator."""

    def __init__(self, tree):
        self.tree, self.folder = tree, tree / "build" / "sim"

    def run(self, *command):
        done = subprocess.run(command, cwd=self.tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        text = done.stdout.decode(errors="replace")
        if done.returncode:
            raise Fault(f"in the hand-out, {' '.join(map(str, command[:4]))} ... failed:\n{text[-6000:]}")
        return text

    def configure(self):
        self.run("cmake", "--preset", "sim")
        return set(re.findall(r"Test +#\d+: (exercise\.\S+)", self.run("ctest", "--preset", "sim", "-N")))

    def compile(self, *targets):
        return self.run("cmake", "--build", "--preset", "sim", "--target", *targets)

    def test(self, exercise):
        """(whether it passes, what happened)"""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            program = self.folder / "bin" / exercise.program
            try:
                done = subprocess.run([program, f"--gtest_output=json:{report}"], cwd=self.tree, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, timeout=SECONDS, check=False)
            except subprocess.TimeoutExpired:
                return False, f"still runs after {SECONDS} s"
            if not report.exists():
                return False, f"crashes ({signal.Signals(-done.returncode).name})" if done.returncode < 0 else "crashes"
            result = json.loads(report.read_text(encoding="utf-8"))
        passed = result["tests"] - result["failures"] - result["disabled"]
        return done.returncode == 0 and passed > 0, f"{passed} of {result['tests']} pass"


def solve(root, tree, exercises, file, solved):
    (tree / file).write_text(handout.contents(root, file, exercises, solved), encoding="utf-8")


def prove(root, tree, exercises):
    """Builds and runs every exercise: as handed out, and with its own region solved and no other than those it needs."""
    build = Build(tree)
    programs = {e.program for e in exercises}
    registered = build.configure()
    if registered != programs:
        yield f"ctest and exercises.json differ: {', '.join(sorted(registered ^ programs))}"
        return
    by_id = {e.id: e for e in exercises}
    log = build.compile("all")
    for warning in sorted(set(re.findall(r"^.*warning: .*", log, re.MULTILINE))):
        yield f"hand-out: {warning}"
    before = {e.id: build.test(e) for e in exercises}

    print(f"{'exercise':<22} {'kind':<8} {'as handed out':<22} solved", flush=True)
    for e in exercises:
        files = sorted({by_id[id].file for id in [e.id, *e.needs]})
        passes, outcome = before[e.id]
        if passes:
            yield f"{e.id} passes as handed out"
        if e.needs:  # what it needs is not yet its own solution
            for file in files:
                solve(root, tree, exercises, file, e.needs)
            build.compile(e.program)
            if build.test(e)[0]:
                yield f"{e.id} passes with nothing but {', '.join(e.needs)} solved"
        for file in files:
            solve(root, tree, exercises, file, [e.id, *e.needs])
        build.compile(e.program)
        passes, solved_outcome = build.test(e)
        if not passes:
            yield f"{e.id} does not pass with its solution: {solved_outcome}"
        for file in files:
            solve(root, tree, exercises, file, [])
        print(f"{e.id:<22} {e.kind:<8} {outcome:<22} {solved_outcome}", flush=True)


def check(root):
    exercises = manifest.load(root)
    if not exercises:
        raise Fault("there is no exercise: chapters/NN_name/exercises/exercises.json lists them")
    yield from region_faults(root, exercises)
    yield from page_faults(root, exercises)
    yield from stray_faults(root, exercises)
    with tempfile.TemporaryDirectory(prefix="flashbook-course-") as folder:
        tree = Path(folder).resolve() / "student"
        handout.make(root, tree)
        yield from handout_faults(root, tree, exercises)
        print(f"building the hand-out of {len(exercises)} exercises in the simulator, this takes minutes", file=sys.stderr)
        yield from prove(root, tree, exercises)


def main():
    start, faults = time.monotonic(), []
    try:
        for fault in check(manifest.ROOT):
            faults.append(fault)
            print(f"course check: {fault}", file=sys.stderr)
    except Fault as fault:
        faults.append(fault)
        print(f"course check: {fault}", file=sys.stderr)
    print(f"{len(faults) or 'no'} fault{'s' * (len(faults) != 1)}, {time.monotonic() - start:.0f} s")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
