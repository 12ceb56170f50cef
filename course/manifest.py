"""Reads the exercises from chapters/NN_name/exercises/exercises.json, each a list of

    {"id": "ch01-scores",           names its region, its solution in course/solutions, its program exercise.ch01-scores, and that program's
                                    source in tests/exercises
     "title": "One score a thread",
     "kind": "write",               write: part of a kernel. predict: numbers. mend: a broken kernel. capstone: a whole kernel
     "file": "exercises/scores.cuh", the one file to edit, relative to the chapter's folder
     "hint": "...",                 the one hint, as in the chapter's README.md
     "minutes": 20,                 optional: estimated time after reading the chapter
     "counted": true,               optional: its tests count memory requests; tests/exercises/CMakeLists.txt reads this
     "varied": true,                optional: students get different variants (variant.py)
     "tests": [{"name": "Scores.OfOneWholeBlock",  GoogleTest's name
                "title": "one whole block",        shown to students
                "points": 3,                       0: a guard of what works as handed out: if it fails, the exercise earns nothing
                "hidden": true}]}                  optional: students see whether it passes, but not its messages

Capstones are in chapters/capstones. They belong to no chapter and have points of their own.
"""
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course.regions import Fault

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("write", "predict", "mend")  # each chapter has exercises of all these kinds
CAPSTONE = "capstone"  # their kind, also used as their chapter number
POINTS_OF_A_CHAPTER = 100


@dataclass
class Test:
    name: str
    title: str
    points: int
    hidden: bool = False


@dataclass
class Exercise:
    id: str
    title: str
    kind: str
    file: str  # path from the repository's root
    hint: str
    chapter: str  # name of its folder: "01_naive_attention"
    tests: list[Test] = field(default_factory=list)
    minutes: int | None = None
    variant: int | None = None  # the variant to try; None: the exercise has no variants

    @property
    def program(self) -> str:
        return f"exercise.{self.id}"

    @property
    def solved_program(self) -> str:
        """The program with the book's solution, which the judge and the book's own tests run."""
        return f"{self.program}_solved"

    @property
    def solution(self) -> str:
        """The file with the book's solution, from the repository's root."""
        return f"course/solutions/{self.chapter}/{self.id}{Path(self.file).suffix}"

    @property
    def number(self) -> str:
        """The chapter's number, "01", or CAPSTONE."""
        return CAPSTONE if self.kind == CAPSTONE else self.chapter[:2]

    @property
    def patience(self) -> int:
        """Factor on a test's time limit: a capstone's kernel may be slower."""
        return 3 if self.kind == CAPSTONE else 1

    @property
    def points(self) -> int:
        return sum(test.points for test in self.tests)


def is_whole(least: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and value >= least


def is_text(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != ""


TEXT, TRUE = (is_text, "a non-empty text"), (lambda value: value is True, "true, or omitted")
# Fields by name, the required ones first: (check of a value, what is allowed).
OF_A_TEST = {"name": (lambda value: re.fullmatch(r"\w+\.\w+", str(value)), "a test's name, Suite.Test"), "title": TEXT,
             "points": (is_whole(0), "a whole number; 0 makes it a guard"), "hidden": TRUE}
OF_AN_EXERCISE = {"id": TEXT, "title": TEXT, "kind": TEXT, "file": TEXT, "hint": TEXT,
                  "tests": (lambda value: isinstance(value, list), "a list of tests"),
                  "minutes": (is_whole(1), "a positive whole number"), "counted": TRUE, "varied": TRUE}
Fields = Mapping[str, tuple[Callable[[Any], Any], str]]


def hold(where: str, entry: Any, fields: Fields, needed: int) -> None:
    """Raises a Fault unless an entry has the first `needed` fields, no unknown ones, and valid values."""
    names = list(fields)
    if not isinstance(entry, dict) or not set(names[:needed]) <= set(entry) <= set(names):
        raise Fault(f"{where}: it has {', '.join(entry) or 'nothing'}: it needs {', '.join(names[:needed])}; it may have {', '.join(names[needed:])}")
    for name, value in entry.items():
        is_right, what = fields[name]
        if not is_right(value):
            raise Fault(f"{where}: {name} is {value!r}: it must be {what}")


def exercise_of(where: str, entry: dict[str, Any], chapter: Path, root: Path) -> Exercise:
    """Returns an exercise from its entry in exercises.json."""
    where = f"{where}: {entry.get('id', 'an exercise')}"
    hold(where, entry, OF_AN_EXERCISE, 6)
    for test in entry["tests"]:
        hold(f"{where}: {test.get('name') if isinstance(test, dict) else test}", test, OF_A_TEST, 3)
    tests = [Test(**test) for test in entry["tests"]]
    if len({test.name for test in tests}) < len(tests):
        raise Fault(f"{where}: a test occurs twice")
    if not any(test.points and not test.hidden for test in tests):
        raise Fault(f"{where}: all visible tests have 0 points: give one of them points")
    is_capstone = chapter.name == f"{CAPSTONE}s"
    prefix, kinds = (CAPSTONE, (CAPSTONE,)) if is_capstone else (f"ch{chapter.name[:2]}", KINDS)
    if not re.fullmatch(rf"{prefix}-[a-z0-9-]+", entry["id"]):
        raise Fault(f"{where}: the id must be {prefix}-name, in lower case")
    if entry["kind"] not in kinds:
        raise Fault(f"{where}: kind is {entry['kind']}: use one of {', '.join(kinds)}")
    file = chapter.relative_to(root) / entry["file"]
    if not (root / file).is_file():
        raise Fault(f"{where}: there is no {file}")
    return Exercise(entry["id"], entry["title"], entry["kind"], str(file), entry["hint"], chapter.name, tests, entry.get("minutes"),
                    0 if "varied" in entry else None)


def read_list(file: Path, root: Path) -> list[dict[str, Any]]:
    """Returns the list of objects in a JSON file."""
    where = file.relative_to(root)
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Fault(f"{where}: {error}") from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise Fault(f"{where}: it must be a list of objects")
    return entries


def page_of(root: Path, chapter: str) -> str:
    """Returns the page that describes a chapter's exercises: one of their own, or that of the chapter."""
    own = f"chapters/{chapter}/exercises.md"
    return own if (root / own).exists() else f"chapters/{chapter}/README.md"


def wholes(exercises: Sequence[Exercise]) -> dict[str, list[Exercise]]:
    """Returns the exercises by what has 100 points: a chapter or a capstone."""
    found: dict[str, list[Exercise]] = {}
    for e in exercises:
        found.setdefault(e.id if e.kind == CAPSTONE else e.chapter, []).append(e)
    return found


def points_fault(exercises: Sequence[Exercise]) -> str:
    """Returns why the points of a chapter's exercises, or of one capstone, do not add up; empty if they do."""
    points = sum(e.points for e in exercises)
    return "" if points == POINTS_OF_A_CHAPTER else f"the points of its exercises sum to {points}: they must sum to {POINTS_OF_A_CHAPTER}"


def load(root: Path = ROOT) -> list[Exercise]:
    """Returns all exercises in the order of the book."""
    files = sorted(root.glob("chapters/*/exercises/exercises.json"))
    exercises = [exercise_of(str(file.relative_to(root)), entry, file.parents[1], root) for file in files for entry in read_list(file, root)]
    ids = [e.id for e in exercises]
    twice = next((id for id in ids if ids.count(id) > 1), "")
    if twice:
        raise Fault(f"the exercise {twice} occurs twice")
    return exercises
