"""The course's commands: each builds the targets that its script in course/ needs, and runs the script."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from door import packages, tree
from door.build import build, configure, folder
from door.console import HERE, fail, show
from door.tree import CAPSTONE, number_of

GRADED = re.compile(rf"\d\d?|ch\d\d-[a-z0-9-]+|{CAPSTONE}(?:-[a-z0-9-]+)?")
WHY = "to build exercises"


def course(a: argparse.Namespace) -> int:
    words: list[str | Path] = list(getattr(a, "what", []))
    solved = ["--solved"] if getattr(a, "solved", False) else []
    script = {"try": "try_exercise", "watch": "try_exercise", "status": "progress", "next": "progress"}.get(a.action, a.action)
    if a.action in ("try", "watch"):
        words = [*named(a.what), *solved, *["--watch"] * (a.action == "watch")]
        packages.need(WHY, packages.TESTS)
        if not (folder("sim") / "tests/exercises").exists():  # Ninja builds the rest
            configure("sim", tests=True)
    elif a.action == "next":
        words = ["next"]
    elif a.action == "handout":
        words = [HERE / a.folder, *a.chapters, *solved]
    elif a.action == "grade":
        names = [number_of(word) if word.isdigit() else word for word in a.what if GRADED.fullmatch(word)]
        submissions = [HERE / word for word in a.what if not GRADED.fullmatch(word)]
        if not submissions:
            fail("course grade needs a submission: ./flashbook course grade ../submissions/ada")
        words = [*submissions, *names]
    elif a.action == "check":
        names = named(a.what)
        words = [*names]
    # Without a submission nothing is built, and course/grade.py reports the error.
    if a.action == "check" or (a.action == "grade" and any(os.path.exists(path) for path in submissions)):
        packages.need(WHY, packages.TESTS)
        build("sim", *judges_of(names), tests=True)
    return show(sys.executable, f"course/{script}.py", *words, *a.options)


def named(words: Sequence[str]) -> list[str]:
    """Returns the chapters, exercises and capstones, under the names that the course's own programs use."""
    return [
        number_of(word) if word.isdigit() else word if word == CAPSTONE else tree.known_exercise(word) for word in words
    ]


def judges_of(names: Sequence[str]) -> list[str]:
    """Returns the targets that are needed to grade these chapters and exercises; all targets if no name is known."""
    return [f"judges_{id}" for id in tree.exercises() if {id, id[2:4], id.partition("-")[0]} & {*names}] or [
        "exercises"
    ]
