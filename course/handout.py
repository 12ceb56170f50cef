#!/usr/bin/env python3
"""Creates a student's copy of the course: python3 course/handout.py DIR [NN ...] [capstone] [--solved]. DIR is made
completely or not at all (exit code 2). One number is the last chapter to hand out. With several numbers, these chapters
are to be done, and the ones between them are handed out solved. Without numbers everything is to be done, including
capstones. --solved makes a perfect submission."""
import argparse
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that python3 course/handout.py finds the packages

from course import manifest, similar
from course.attempt import AS_HANDED_OUT, digest_outside
from course.regions import Fault, code, written
from course.solution import answer, solved

# The files that students get; * also matches /.
HANDED_OUT = (
    ".clang-format", ".clangd", ".gitignore", "CMakeLists.txt", "CMakePresets.json", "LICENSE", "flashbook",
    "door/*.py", "door/install", "door/python", "cmake/ptxas_gate", "cmake/wgmma_registers.py",
    "cmake/packages.cmake", "cmake/test_suites.cmake", "chapters/CMakeLists.txt", "chapters/*/host/CMakeLists.txt",
    "chapters/*.md", "chapters/*.cuh", "chapters/*.cu", "chapters/*.h", "chapters/*.cpp",
    "chapters/*/exercises/exercises.json",
    "common/CMakeLists.txt", "common/*.h", "common/*.cpp", "common/*.cu", "common/simulator/events/page.*",
    "docs/pages/*.md", "docs/figures/*.svg",
    "tests/CMakeLists.txt", "tests/require_gpu.h", "tests/chapters/*", "tests/support/*", "tests/exercises/*",
    "course/__init__.py", "course/attempt.py", "course/gate.py", "course/gtest.py", "course/manifest.py", "course/modes.py",
    "course/regions.py",
    "course/progress.py", "course/score.py", "course/try_exercise.py", "course/variant.py",
)
# Exceptions. often_said.md corrects three sentences whose corrections are exercises.
KEPT = ("tests/exercises/hidden/*", "docs/pages/hardening.md", "docs/pages/instructor.md", "docs/pages/often_said.md", "docs/pages/weeks.md")
# Matches a link to a file, or code, in order to skip it. Images do not match: pages keep theirs.
LINK = re.compile(r"```.*?```|`[^`\n]*`|(?<!!)\[([^\]]*)\]\(([^)\s#]+)[^)]*\)", re.DOTALL)
# Matches comments that only scripts need, including the whole line if it contains nothing else.
MARK = re.compile(r"(?<=\n)<!-- [^\n]*? -->\n|<!-- [^\n]*? -->")
# Matches the sentence of a chapter's page that tells readers to make a hand-out.
HAVE_IT = re.compile(r"`\./flashbook course handout DIR` makes\s+the\s+students'\s+copy(\.\s+There )?")
TABLE = "<!-- exercises -->\n"
EXAMPLE = {"@ID@": "id", "@FILE@": "file", "@NN@": "number"}  # fields of the first unsolved exercise
# Files that are elsewhere in the book.
MOVED = {"AGENTS.md": "course/agents.md", ".github/workflows/exercises.yml": "course/workflow.yml"}
CHAPTER = re.compile(r"(?:^|/)(?:ch(\d\d)-|(\d\d)_[a-z])")
OF_CAPSTONES = re.compile(rf"(?:^|/){manifest.CAPSTONE}(?:s/|-|\.h$)")
ALL = "all"  # sorts after every number


def files_of_tree(root: Path) -> list[str]:
    """Returns every file that git tracks or would add; every file if there is no repository."""
    if (root / ".git").exists():
        listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True,
                                check=False)
        if listed.returncode:
            raise Fault(f"git cannot list the files of {root}: {listed.stderr.decode().strip()}")
        names = listed.stdout.decode().split("\0")
    else:
        names = [str(path.relative_to(root)) for path in root.rglob("*")]
    return sorted(name for name in names if name and (root / name).is_file())


def is_later(name: str, last: str, capstones: bool) -> bool:
    """Returns whether a file belongs to a chapter after `last`, or to a capstone if `capstones` is false."""
    return any("".join(found) > last for found in CHAPTER.findall(name)) or (not capstones and OF_CAPSTONES.search(name) is not None)


def last_of(chapters: Iterable[str]) -> str:
    """Returns the last chapter of a hand-out of these chapters."""
    return max((name for name in chapters if name != manifest.CAPSTONE), default=ALL)


def has_capstones(chapters: Sequence[str]) -> bool:
    return not chapters or manifest.CAPSTONE in chapters


def handed_out_files(root: Path, last: str = ALL, capstones: bool = True) -> list[str]:
    def matches(name: str, patterns: Iterable[str]) -> bool:
        return any(fnmatch(name, pattern) for pattern in patterns)

    return [name for name in files_of_tree(root) if matches(name, HANDED_OUT) and not matches(name, KEPT) and
            not is_later(name, last, capstones)]


def to_be_done(exercises: Iterable[manifest.Exercise], chapters: Sequence[str]) -> list[manifest.Exercise]:
    """Returns the exercises that a hand-out leaves unsolved: up to the one chapter given, or those of the several given; and
    capstones."""
    numbers = [name for name in chapters if name != manifest.CAPSTONE]
    return [e for e in exercises if (has_capstones(chapters) if e.kind == manifest.CAPSTONE else e.number in numbers if len(numbers) > 1
                                     else e.number <= last_of(numbers))]


def readme(root: Path, exercises: Sequence[manifest.Exercise], open_ones: Sequence[manifest.Exercise]) -> str:
    """Returns the hand-out's README.md, with a table of its exercises. Those not in `open_ones` are listed as
    solved."""
    lines = ["| exercise | what | where | points | minutes, about |", "|---|---|---|---|---|"]
    for e in exercises:
        page = manifest.page_of(root, e.chapter)
        points = f"{e.points} | {e.minutes or ''}" if e in open_ones else "solved |"
        lines.append(f"| [`{e.id}`]({page}) | {e.kind}: {e.title} | `{e.file}` | {points} |")
    text = (root / "course" / "student.md").read_text(encoding="utf-8")
    for mark, what in EXAMPLE.items():
        text = text.replace(mark, getattr(open_ones[0], what))
    return text.replace(TABLE, "\n".join(lines) + "\n")


def answering(root: Path, tree: Path, exercises: Iterable[manifest.Exercise]) -> Iterator[str]:
    """Returns warnings about files in a hand-out that contain an exercise's solution, literally or with other names and numbers."""
    solutions = {}
    for e in exercises:
        stub = written((root / e.file).read_text(encoding="utf-8"), e.file)[0][e.id]
        lines = answer(root, e).lines
        solutions[e.id] = (e.file, "\n".join(code(lines)) + "\n", similar.runs(lines, similar.runs(stub.lines)))
    for path in sorted(path for path in tree.rglob("*") if path.suffix in (".md", ".cuh", ".cu", ".h", ".cpp", ".py", ".js")):
        lines = path.read_text(encoding="utf-8").splitlines()
        name, text, found = str(path.relative_to(tree)), "\n" + "\n".join(code(lines)) + "\n", similar.runs(lines)
        if name.startswith("tests/exercises/") and "PREDICTION(" in text and not name.endswith("predicted.h"):
            yield f"{name} contains the formulas that it asks for"
        for id, (file, exact, runs) in solutions.items():
            if "\n" + exact in text:
                yield f"{name} contains the solution of {id}"
            elif name != file and len(runs) >= similar.LEAST and len(runs & found) >= similar.ALIKE * len(runs):
                yield f"{name} contains the solution of {id} with other names"


def page_with_own_links(name: str, text: str, files: Sequence[str]) -> str:
    """Returns a page whose links to anything outside `files` are replaced by their text."""
    def replace(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), link[2] or ""))
        leads_away = link[2] and not re.match(r"[a-z]+:", link[2])
        return link[1] if leads_away and not any(file == target or file.startswith(target + "/") for file in files) else link[0]

    return LINK.sub(replace, text)


def contents(root: Path, name: str, last: str = ALL, capstones: bool = True) -> str:
    """Returns the contents of the file `name` in a hand-out up to chapter `last`."""
    text = (root / name).read_text(encoding="utf-8")
    if name.endswith(".md"):
        text = HAVE_IT.sub(lambda found: "This is the students' copy" + (": here " if found[1] else ""), MARK.sub("", text))
        return page_with_own_links(name, text, handed_out_files(root, last, capstones))
    return text


def write(root: Path, target: Path, with_solutions: bool = False, chapters: Sequence[str] = ()) -> list[manifest.Exercise]:
    """Writes the hand-out into the empty folder `target`; returns the exercises to be done."""
    last, capstones = last_of(chapters), has_capstones(chapters)
    exercises = [e for e in manifest.load(root) if (capstones if e.kind == manifest.CAPSTONE else e.number <= last)]
    open_ones = to_be_done(exercises, chapters)
    for name in handed_out_files(root, last, capstones):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(contents(root, name, last, capstones), encoding="utf-8")
        shutil.copymode(root / name, target / name)
    for e in exercises if with_solutions else [e for e in exercises if e not in open_ones]:
        (target / e.file).write_text(solved(root, e), encoding="utf-8")
    for name, source in MOVED.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / source, target / name)
    (target / "README.md").write_text(readme(root, exercises, open_ones), encoding="utf-8")
    outside = {e.file: digest_outside((target / e.file).read_text(encoding="utf-8")) for e in open_ones}
    (target / AS_HANDED_OUT).parent.mkdir(exist_ok=True)
    (target / AS_HANDED_OUT).write_text(json.dumps(outside, indent=2) + "\n", encoding="utf-8")
    return open_ones


def make(root: Path, target: str | Path, with_solutions: bool = False, chapters: Sequence[str] = ()) -> list[manifest.Exercise]:
    """Makes the folder `target`, completely or not at all, and returns the exercises to be done."""
    target = Path(target).absolute()
    numbers = sorted({e.number for e in manifest.load(root)})
    for unknown in sorted(set(chapters) - set(numbers)):
        raise Fault(f"chapter {unknown} has no exercises: give any of {', '.join(numbers)}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Fault(f"{target} is already there: name a folder that is new or empty")
    if not target.parent.is_dir():
        raise Fault(f"the folder {target.parent} does not exist: make it first")
    try:
        unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise Fault(f"cannot write in {target.parent}: {error.strerror}") from None
    try:
        exercises = write(root, unfinished, with_solutions, chapters)
        unfinished.chmod(0o755)
        os.replace(unfinished, target)  # also replaces an empty folder
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return exercises


def main() -> None:
    parser = argparse.ArgumentParser(prog="course handout", description="Creates a student's copy of the course, without solutions.")
    parser.add_argument("folder", metavar="DIR", help="the folder to make: new, or empty")
    parser.add_argument("chapters", metavar="NN", nargs="*", help="one two-digit number: the last chapter; several: the chapters to be done, with "
                        "those between them solved; capstone: the capstones, too (default: everything)")
    parser.add_argument("--solved", action="store_true", help="include the solutions, to try out the grader")
    arguments = parser.parse_intermixed_args()
    try:
        exercises = make(manifest.ROOT, arguments.folder, arguments.solved, arguments.chapters)
    except Fault as fault:
        print(f"course handout: {fault}", file=sys.stderr)
        sys.exit(2)
    if arguments.solved:
        print(f"{arguments.folder}: {len(exercises)} exercises, solved: not for students.")
        return
    print(f"{arguments.folder}: {len(exercises)} exercises. Its README.md explains how to start.")
    numbers = [name for name in arguments.chapters if name != manifest.CAPSTONE]
    shown = sorted({e.number for e in manifest.load() if e.number <= max(numbers, default="")} - {e.number for e in exercises})
    if shown:
        print(f"warning: it shows the solutions of chapters {', '.join(shown)}: do not set their exercises later", file=sys.stderr)
    for warning in answering(manifest.ROOT, Path(arguments.folder), exercises):
        print(f"warning: {warning}", file=sys.stderr)


if __name__ == "__main__":
    main()
