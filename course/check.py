#!/usr/bin/env python3
"""Proves that the course works, in the simulator. The hand-out is complete, contains nothing else and builds on its own; every exercise scores zero
as handed out, full marks when solved, and the listed points for wrong solutions (proof.py); cheats gain nothing (cheats.py). Uses the book's
build in build/sim. Given chapters or exercises, it compiles only these, but checks the files of all. Prints a line for each fault and exits with
1
if there are any."""
import html
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that python3 course/check.py finds the packages

from course import attempt, cheats, digests, handout, manifest, modes, proof, regions
from course.grade import chosen
from course.regions import Fault, code
from course.solution import answer, solved

Exercises = Sequence[manifest.Exercise]

PER_CHAPTER = range(3, 9)
# Unity builds, since most of the time goes into headers that each source reads again.
QUICK = ("-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O0")
DETAILS = re.compile(r"<details>\s*<summary>Hint</summary>(.*?)</details>", re.DOTALL)


# ---- files -------------------------------------------------------------------------------------------------------------------------


def region_faults(root: Path, exercises: Exercises) -> Iterator[str]:
    """Checks that every exercise has its own file with an unsolved region, and a solution; no other file has a
    region."""
    files = [e.file for e in exercises]
    for e in exercises:
        if not e.file.startswith(f"chapters/{e.chapter}/exercises/") or files.count(e.file) > 1:
            yield f"{e.id}: {e.file} is shared or misplaced: an exercise needs its own file in chapters/{e.chapter}/exercises"
            continue
        text = (root / e.file).read_text(encoding="utf-8")
        found, faults = regions.written(text, e.file)
        yield from faults.values()
        for other in sorted(set(found) - {e.id}):
            yield f"{e.file}: {other} is another exercise: it belongs in its own file"
        if f"// BEGIN EXERCISE {e.id}: {e.title}" not in (line.strip() for line in text.splitlines()):
            yield f"{e.file}: there is no line '// BEGIN EXERCISE {e.id}: {e.title}'"
        if not (root / e.solution).is_file():
            yield f"{e.id}: there is no {e.solution}: add the lines that solve it"
        elif e.id in found and code(found[e.id].lines) == code(answer(root, e).lines):
            yield f"{e.file}: it is solved: put a stub between the markers"
    for path in sorted(root.glob("chapters/**/*.*")):
        name = str(path.relative_to(root))
        if path.suffix in (".cuh", ".cu", ".h", ".cpp") and name not in files and "BEGIN EXERCISE" in path.read_text(encoding="utf-8"):
            yield f"{name} has a region but belongs to no exercise: add it to exercises.json"


def plain(text: str) -> str:
    return " ".join(html.unescape(text).split())


def page_faults(root: Path, exercises: Exercises) -> Iterator[str]:
    """Checks that the page of a chapter's exercises has a section for each, with its id and title, the file, the
    command and the one hint."""
    for chapter in dict.fromkeys(e.chapter for e in exercises):
        own = [e for e in exercises if e.chapter == chapter]
        are_capstones = own[0].kind == manifest.CAPSTONE
        if not are_capstones and len(own) not in PER_CHAPTER:
            yield f"{chapter}: {len(own)} exercises; a chapter has {PER_CHAPTER[0]} to {PER_CHAPTER[-1]}"
        for kind in sorted(set(manifest.KINDS) - {e.kind for e in own}) if not are_capstones else ():
            yield f"{chapter}: no exercise of the kind {kind}"
        page = manifest.page_of(root, chapter)
        text = (root / page).read_text(encoding="utf-8")
        if page.endswith("README.md"):
            text = text.partition("\n## Exercises\n")[2].partition("\n## ")[0]
        sections = {part.partition("\n")[0]: part for part in re.split(r"^###? ", text, flags=re.MULTILINE)[1:]}
        for e in own:
            section = sections.pop(f"{e.id}: {e.title}", None)
            if section is None:
                yield f"{page}: there is no section '{e.id}: {e.title}'"
                continue
            hints = DETAILS.findall(section)
            if [plain(hint) for hint in hints] != [plain(e.hint)]:
                yield f"{page}: {e.id}: its <details> differs from the hint in exercises.json"
            if Path(e.file).name not in section:
                yield f"{page}: {e.id}: it does not name the file to edit, {Path(e.file).name}"
            if f"./flashbook course try {e.id}" not in section:
                yield f"{page}: {e.id}: it does not give the command ./flashbook course try {e.id}"
        for other in sections:
            yield f"{page}: '{other}' is not an exercise of this chapter"


def stray_faults(root: Path, exercises: Exercises) -> Iterator[str]:
    """Checks that every file in the folders of exercises belongs to one, and that all files to be handed out are in
    git."""
    own = {name for e in exercises for name in (e.file, e.solution)}
    for folder in {e.chapter for e in exercises}:
        own |= {f"chapters/{folder}/exercises/exercises.json", f"course/solutions/{folder}/wrong.json"}
    for name in handout.files_of_tree(root):
        if re.match(r"chapters/[^/]*/exercises/|course/solutions/", name) and name not in own:
            yield f"{name} belongs to no exercise: delete it, or name it in exercises.json"
        if re.fullmatch(r"tests/exercises/.*\.(cu|cpp)", name) and Path(name).stem not in {"observed", *(e.id for e in exercises)}:
            yield f"{name} tests no exercise: delete it, or name it in exercises.json"
    if (root / ".git").exists():
        tracked = subprocess.run(["git", "-C", root, "ls-files", "-z"], stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")
        for name in sorted(set(handout.handed_out_files(root)) - set(tracked)):
            yield f"{name} would be handed out but is not in git: add it, or delete it"


# ---- the hand-out ------------------------------------------------------------------------------------------------------------------


def handout_faults(root: Path, tree: Path, exercises: Exercises, last: str = handout.ALL, capstones: bool = True) -> Iterator[str]:
    """Checks that the hand-out up to chapter `last` has the right files and no solutions, and every link on its pages
    works."""
    wanted = {*handout.handed_out_files(root, last, capstones), "README.md", attempt.AS_HANDED_OUT, *handout.MOVED}
    texts = {}
    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        if path.is_file():
            texts[name] = path.read_text(encoding="utf-8")
            if name not in wanted:
                yield f"hand-out: {name} is a stray file"
    for name in sorted(wanted - set(texts)):
        yield f"hand-out: {name} is missing"

    yield from (f"hand-out: {warning}" for warning in handout.answering(root, tree, exercises))
    for name, text in texts.items():
        for command in re.findall(r"course (?:handout|grade|package|check)\b", text) if name.endswith(".md") else ():
            yield f"hand-out: {name} names ./flashbook {command}, which students do not have"
        for link in re.finditer(r"\]\(([^)\s#]+)[^)]*\)", re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)):
            if name.endswith(".md") and not re.match(r"[a-z]+:", link[1]) and not (tree / name).parent.joinpath(link[1]).exists():
                yield f"hand-out: {name} links to {link[1]}, which is not handed out"


# ---- programs ----------------------------------------------------------------------------------------------------------------------


def run(tree: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    text = done.stdout.decode(errors="replace")
    if done.returncode:
        raise Fault(f"in the hand-out, {' '.join(map(str, command[:4]))} ... failed:\n{text[-6000:]}")
    return text


def partial_faults(root: Path, folder: Path, exercises: Exercises) -> Iterator[str]:
    """Checks that the hand-outs up to each chapter can be configured."""
    for last in sorted({e.number for e in exercises if e.kind != manifest.CAPSTONE})[:-1]:
        tree = folder / f"student-{last}"
        yield from handout_faults(root, tree, handout.make(root, tree, chapters=[last]), last, capstones=False)
        run(tree, "cmake", "--preset", "sim", *QUICK)


def build_faults(tree: Path, listed: Exercises, exercises: Exercises) -> Iterator[str]:
    """Checks that the hand-out builds on its own without warnings, and `course try` reports each exercise as unsolved.
    `listed`: all its exercises. `exercises`: those to build; the chapters' programs are built only with all of them."""
    run(tree, "cmake", "--preset", "sim", *QUICK)
    registered = set(re.findall(r"Test +#\d+: (exercise\.\S+)", run(tree, "ctest", "--test-dir", "build/sim", "-N")))
    programs = {e.program for e in listed}
    if registered != programs:
        yield f"ctest and exercises.json differ: {', '.join(sorted(registered ^ programs))}"
        return
    targets = ["exercises", "programs"] if len(exercises) == len(listed) else [e.program for e in exercises]
    log = run(tree, "cmake", "--build", "--preset", "sim", "--target", *targets)
    for warning in sorted(set(re.findall(r"^.*warning: .*", log, re.MULTILINE))):
        yield f"hand-out: {warning}"
    for e in exercises:
        tried = subprocess.run([sys.executable, "course/try_exercise.py", e.id], cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               env={**os.environ, "FLASHBOOK_SIM_ASYNC": modes.LAZY}, text=True, check=False)
        if tried.returncode != 1 or f"{e.id}: " not in tried.stdout or "FAIL" not in tried.stdout:
            yield f"hand-out: course try {e.id} does not report a failure:\n{tried.stdout}"
    yield from prediction_faults(tree, [e for e in exercises if e.kind == "predict"])


def prediction_faults(tree: Path, predictions: Exercises) -> Iterator[str]:
    """Checks that students' tests of predictions, which differ from those of the grader, also accept the book's solutions."""
    for e in predictions:
        stub = (tree / e.file).read_text(encoding="utf-8")
        (tree / e.file).write_text(solved(manifest.ROOT, e), encoding="utf-8")
        command = [sys.executable, "course/try_exercise.py", e.id]
        tried = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        (tree / e.file).write_text(stub, encoding="utf-8")
        if tried.returncode:
            yield f"hand-out: course try {e.id} rejects the book's solution:\n{tried.stdout}"


def points_faults(_: Path, exercises: Exercises) -> Iterator[str]:
    """Checks that every chapter and capstone has 100 points."""
    for whole, own in manifest.wholes(exercises).items():
        fault = manifest.points_fault(own)
        if fault:
            yield f"{whole}: {fault}"


def names_faults(root: Path, exercises: Exercises) -> Iterator[str]:
    """Checks that exercises.json lists exactly the tests of each program, and students' digests are current."""
    for e in exercises:
        listed = subprocess.run([root / "build" / "sim" / "bin" / e.solved_program, "--gtest_list_tests"], stdout=subprocess.PIPE, text=True,
                                check=False).stdout
        there, suite = set(), ""
        for line in listed.splitlines():
            if line.startswith("  "):
                there.add(suite + line.split()[0])
            elif line.rstrip().endswith("."):
                suite = line.strip()
        differ = there ^ {test.name for test in e.tests}
        if differ:
            yield f"{e.id}: exercises.json and the tests differ: {', '.join(sorted(differ))}"
        elif e.kind == "predict" and not digests.is_current(root, e):
            yield f"{e.id}: the digests in students' tests are outdated: run python3 course/digests.py {e.id}"


def check(root: Path, names: Sequence[str]) -> Iterator[str]:
    listed = manifest.load(root)
    if not listed:
        raise Fault("there are no exercises: list them in chapters/NN_name/exercises/exercises.json")
    exercises = chosen(listed, names) if names else listed
    faults = [fault for faults_of in (region_faults, page_faults, stray_faults, points_faults) for fault in faults_of(root, listed)]
    faults += names_faults(root, exercises)
    if faults:  # the remaining checks take minutes
        yield from faults
        return
    with tempfile.TemporaryDirectory(prefix="flashbook-course-") as folder:
        tree = Path(folder).resolve() / "student"
        handout.make(root, tree)
        yield from handout_faults(root, tree, listed)
        print(f"building {len(exercises)} exercises of the hand-out in the simulator; this takes minutes", file=sys.stderr)
        yield from build_faults(tree, listed, exercises)
        yield from partial_faults(root, Path(folder).resolve(), listed)
    yield from proof.prove(root, listed, exercises)
    if cheats.EXERCISES <= {e.id for e in exercises}:
        yield from cheats.prove(root, exercises)


def main() -> None:
    start, faults = time.monotonic(), 0
    try:
        for fault in check(manifest.ROOT, sys.argv[1:]):
            faults += 1
            print(f"course check: {fault}", file=sys.stderr)
    except Fault as reason:
        faults += 1
        print(f"course check: {reason}", file=sys.stderr)
    print(f"{faults or 'no'} fault{'s' * (faults != 1)}, {time.monotonic() - start:.0f} s")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
