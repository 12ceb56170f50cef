#!/usr/bin/env python3
"""Draws a student's variant of a capstone: python3 course/variant.py [CLASS STUDENT]. A variant of attention combines a mask and a change to the
scores from the lists in chapters/capstones/contract.h, drawn from the class's seed (any text) and the student's id. Given both, this copy stores
them in variant.json and tests that student's variant from then on; without arguments it shows the variant that is tested. If nothing is stored,
the variant is drawn from the user's name."""
import argparse
import getpass
import hashlib
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that python3 course/variant.py finds the packages

from course import manifest
from course.manifest import Exercise
from course.regions import Fault

CONTRACT = "chapters/capstones/contract.h"
KINDS = ("Mask", "Score")  # its lists, the slower-varying one first, as the tests number variants
VARIABLE = "FLASHBOOK_COURSE_VARIANT"  # where tests read the variant's number


@dataclass(frozen=True)
class Choice:
    name: str
    what: str
    formula: str


@dataclass(frozen=True)
class Student:
    seed: str  # that of the class
    id: str


def choices(root: Path, kind: str) -> list[Choice]:
    """Returns one of the contract's lists."""
    text = (root / CONTRACT).read_text(encoding="utf-8").partition(f"\nenum class {kind} {{\n")[2].partition("\n};")[0]
    found = []
    for comment, name in re.findall(r"((?: *///.*\n)+) *(\w+)", text):
        what, _, formula = " ".join(comment.replace("///", "").split()).partition(": ")
        found.append(Choice(name, what, formula))
    return found


def names(root: Path) -> list[str]:
    """Returns the names of all variants, in the order of their numbers: "dilated, capped"."""
    masks, scores = (choices(root, kind) for kind in KINDS)
    return [f"{mask.name}, {score.name}" for mask in masks for score in scores]


def drawn(student: Student, count: int) -> int:
    """Returns the number, below `count`, of a student's variant: always the same for the same student and class."""
    text = "\n".join(part.strip().casefold() for part in (student.seed, student.id))
    return int.from_bytes(hashlib.sha256(text.encode(errors="replace")).digest()[:8], "big") % count


def for_student(root: Path, exercise: Exercise, student: Student) -> Exercise:
    """Returns the exercise with the student's variant, if it has variants."""
    return exercise if exercise.variant is None else replace(exercise, variant=drawn(student, len(names(root))))


def here(root: Path) -> Student:
    """Returns the student whose copy of the book this is."""
    try:
        kept = json.loads((root / "variant.json").read_text(encoding="utf-8"))
        return Student(str(kept["class"]), str(kept["student"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    try:
        return Student("", getpass.getuser())
    except (OSError, KeyError):  # this user has no name, as in some containers
        return Student("", str(os.getuid()))


def for_this_copy(root: Path, exercise: Exercise) -> Exercise:
    """Returns the exercise with the variant that VARIABLE names, or else that of this copy."""
    number = os.environ.get(VARIABLE, "")
    if exercise.variant is not None and number.isdigit():
        return replace(exercise, variant=int(number) % len(names(root)))
    return for_student(root, exercise, here(root))


def name(root: Path, exercise: Exercise) -> str:
    """Returns the name of the exercise's variant; empty if it has none."""
    return "" if exercise.variant is None else names(root)[exercise.variant]


def told(root: Path, student: Student) -> str:
    """Returns a student's variant, with its formulas."""
    variants = names(root)
    number = drawn(student, len(variants))
    its_own = variants[number].split(", ")
    lines = [f"class '{student.seed}', student '{student.id}': {', '.join(its_own)}"]
    for kind, its_name in zip(KINDS, its_own):
        one = next(one for one in choices(root, kind) if one.name == its_name)
        lines.append(f"  {kind:<5}  {one.name}: {one.what}\n         {one.formula}")
    return "\n".join([*lines, f"  for ./flashbook trace and debuggers, set {VARIABLE}={number}"])


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="course variant", description="Shows which variant is yours.")
    parser.add_argument("student", metavar="CLASS STUDENT", nargs="*", help="the class's seed and your id, both from your teacher")
    arguments = parser.parse_args(words)
    root = manifest.ROOT
    try:
        if not (root / CONTRACT).exists():
            raise Fault("this copy has no capstones")
        if len(arguments.student) not in (0, 2):
            raise Fault("the class's seed and your id belong together: give both, or neither; an id with spaces needs quotes")
    except Fault as fault:
        print(f"course variant: {fault}", file=sys.stderr)
        sys.exit(2)
    if arguments.student:
        seed, id = arguments.student
        (root / "variant.json").write_text(json.dumps({"class": seed, "student": id}) + "\n", encoding="utf-8")
    print(told(root, here(root)))


if __name__ == "__main__":
    main(sys.argv[1:])
