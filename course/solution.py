#!/usr/bin/env python3
"""Writes an exercise's file with the book's solution in place: python3 course/solution.py ID FILE. The build compiles it for the grader's judge."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that python3 course/solution.py finds the packages

from course import manifest
from course.manifest import Exercise
from course.regions import Written, graft


def answer(root: Path, exercise: Exercise) -> Written:
    """Returns the book's own answer."""
    return Written((root / exercise.solution).read_text(encoding="utf-8").splitlines())


def solved(root: Path, exercise: Exercise) -> str:
    """Returns the exercise's file with the book's answer."""
    return graft((root / exercise.file).read_text(encoding="utf-8"), {exercise.id: answer(root, exercise)})


if __name__ == "__main__":
    [wanted] = [e for e in manifest.load() if e.id == sys.argv[1]]
    Path(sys.argv[2]).write_text(solved(manifest.ROOT, wanted), encoding="utf-8")
