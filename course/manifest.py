"""What exercises there are: chapters/NN_name/exercises/exercises.json, a list of

    {"id": "ch01-scores",           its region, its solution in course/solutions, its program exercise.ch01-scores and that program's source
                                    in tests/exercises
     "title": "One score a thread",
     "kind": "write",               write: a piece of a kernel. predict: numbers. mend: a kernel that is broken. capstone: a whole one
     "file": "exercises/scores.cuh", the one place to edit, from the chapter's folder
     "hint": "...",                 the one hint, as the chapter's README.md has it
     "minutes": 20,                 optional: how long it takes somebody who has read the chapter, about
     "counted": true,               optional: its tests count what kernels request of memory; tests/exercises/CMakeLists.txt reads it
     "varied": true,                optional: each student has a variant of their own (variant.py)
     "tests": [{"name": "Scores.OfOneWholeBlock",  GoogleTest's name
                "title": "one whole block",        what students read
                "points": 3,                       0: a guard. What worked before has to work still: if a guard fails, nothing counts
                "hidden": true,                    optional: students see whether it passes, and not what it found
                "clocks": [90000, 900]}]}          optional: the test counts what a kernel costs (counted.py): a naive one, and the book's best

Capstones lie in chapters/capstones. They are no chapter's, and have points of their own.
"""
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course.regions import Fault

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("write", "predict", "mend")  # of a chapter, each at least once
CAPSTONE = "capstone"  # their kind, and what stands for a chapter's number
POINTS_OF_A_CHAPTER = 100


@dataclass
class Test:
    name: str
    title: str
    points: int
    hidden: bool = False
    clocks: tuple[int, int] | None = None  # that a naive kernel takes, and the book's best


@dataclass
class Exercise:
    id: str
    title: str
    kind: str
    file: str  # from the repository's root
    hint: str
    chapter: str  # its folder: "01_naive_attention"
    tests: list[Test] = field(default_factory=list)
    minutes: int | None = None
    variant: int | None = None  # which one is tried; None: all students have the same exercise

    @property
    def program(self) -> str:
        return f"exercise.{self.id}"

    @property
    def solved_program(self) -> str:
        """With the book's solution: what judges, and what the house's own tests run."""
        return f"{self.program}_solved"

    @property
    def solution(self) -> str:
        """The file with the book's lines, from the repository's root."""
        return f"course/solutions/{self.chapter}/{self.id}{Path(self.file).suffix}"

    @property
    def number(self) -> str:
        """Of its chapter: "01"."""
        return CAPSTONE if self.kind == CAPSTONE else self.chapter[:2]

    @property
    def patience(self) -> int:
        """Times the limit of time of a test: a whole kernel may be slow."""
        return 3 if self.kind == CAPSTONE else 1

    @property
    def points(self) -> int:
        return sum(test.points for test in self.tests)


def is_points(value: object, least: int) -> bool:
    return type(value) is int and value >= least


def test_of(where: str, entry: Any) -> Test:
    if not isinstance(entry, dict) or not {"name", "title", "points"} <= set(entry) <= {"name", "title", "points", "hidden", "clocks"}:
        raise Fault(f"{where}: a test has name, title, points and, if it is, hidden and clocks")
    if not re.fullmatch(r"\w+\.\w+", str(entry["name"])):
        raise Fault(f"{where}: {entry['name']} is no name of a test: it reads Suite.Test")
    if not isinstance(entry["title"], str) or not entry["title"].strip():
        raise Fault(f"{where}: {entry['name']}: title must be a text")
    if not is_points(entry["points"], 0):
        raise Fault(f"{where}: {entry['name']}: points are a whole number, and 0 makes it a guard")
    if entry.get("hidden", True) is not True:
        raise Fault(f"{where}: {entry['name']}: hidden is true, or left out")
    clocks = entry.pop("clocks", None)
    if clocks is not None and not (isinstance(clocks, list) and len(clocks) == 2 and all(is_points(value, 1) for value in clocks)
                                   and clocks[0] > clocks[1]):
        raise Fault(f"{where}: {entry['name']}: clocks are two whole numbers, a naive kernel's and, fewer, the best one's")
    return Test(**entry, clocks=tuple(clocks) if clocks else None)


def tests_of(where: str, entries: Any) -> list[Test]:
    if not isinstance(entries, list) or not entries:
        raise Fault(f"{where}: tests are a list, with a test at least")
    tests = [test_of(where, entry) for entry in entries]
    names = [test.name for test in tests]
    for name in names:
        if names.count(name) > 1:
            raise Fault(f"{where}: the test {name} is there twice")
    if not any(test.points > 0 and not test.hidden for test in tests):
        raise Fault(f"{where}: no test that students see has points")
    return tests


def exercise_of(where: Path, entry: dict[str, Any], chapter: Path, root: Path) -> Exercise:
    """An exercise from its entry in exercises.json."""
    name = entry.get("id", "an exercise")
    optional = {key: entry.pop(key, None) for key in ("counted", "minutes", "varied")}
    if set(entry) != {"id", "title", "kind", "file", "hint", "tests"}:
        raise Fault(f"{where}: {name} has {', '.join(entry)}; it takes id, title, kind, file, hint, tests and, if it must, counted, "
                    "minutes and varied")
    for key in ("counted", "varied"):
        if optional[key] not in (None, True):
            raise Fault(f"{where}: {name}: {key} is true, or left out")
    if optional["minutes"] is not None and not is_points(optional["minutes"], 1):
        raise Fault(f"{where}: {name}: minutes are a whole number from 1 on")
    tests = tests_of(f"{where}: {name}", entry.pop("tests"))
    for key, value in entry.items():
        if not isinstance(value, str) or not value.strip():
            raise Fault(f"{where}: {name}: {key} must be a text")
    is_capstone = chapter.name == f"{CAPSTONE}s"
    prefix, kinds = (CAPSTONE, (CAPSTONE,)) if is_capstone else (f"ch{chapter.name[:2]}", KINDS)
    if not re.fullmatch(rf"{prefix}-[a-z0-9-]+", name):
        raise Fault(f"{where}: {name}: an id reads {prefix}-name, in small letters")
    if entry["kind"] not in kinds:
        raise Fault(f"{where}: {name}: kind is one of {', '.join(kinds)}, not {entry['kind']}")
    file = chapter.relative_to(root) / entry.pop("file")
    if not (root / file).is_file():
        raise Fault(f"{where}: {name}: there is no {file}")
    return Exercise(**entry, file=str(file), chapter=chapter.name, tests=tests, minutes=optional["minutes"],
                    variant=0 if optional["varied"] else None)


def read_list(file: Path, root: Path) -> list[dict[str, Any]]:
    """The list of objects in a JSON file."""
    where = file.relative_to(root)
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Fault(f"{where}: {error}") from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise Fault(f"{where}: it is a list of objects")
    return entries


def chapter_exercises(manifest: Path, root: Path) -> list[Exercise]:
    """The exercises of one exercises.json."""
    return [exercise_of(manifest.relative_to(root), entry, manifest.parents[1], root) for entry in read_list(manifest, root)]


def wholes(exercises: Sequence[Exercise]) -> dict[str, list[Exercise]]:
    """What has its own points: the exercises of a chapter, and a capstone."""
    found: dict[str, list[Exercise]] = {}
    for e in exercises:
        found.setdefault(e.id if e.kind == CAPSTONE else e.chapter, []).append(e)
    return found


def points_fault(exercises: Sequence[Exercise]) -> str:
    """Why the points of a chapter's exercises, or of one capstone, are not what they should be; empty if they are."""
    points = sum(e.points for e in exercises)
    return "" if points == POINTS_OF_A_CHAPTER else f"its exercises have {points} points together; a chapter has {POINTS_OF_A_CHAPTER}"


def load(root: Path = ROOT) -> list[Exercise]:
    """All exercises in the order of the book."""
    exercises: list[Exercise] = []
    for manifest in sorted(root.glob("chapters/*/exercises/exercises.json")):
        exercises += chapter_exercises(manifest, root)
    seen = set()
    for exercise in exercises:
        if exercise.id in seen:
            raise Fault(f"the exercise {exercise.id} is there twice")
        seen.add(exercise.id)
    return exercises
