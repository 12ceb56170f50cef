#!/usr/bin/env python3
"""Writes digests of the right numbers, computed by the grader's formulas in hidden/, into students' tests of predictions, tests/exercises/ID.*:
python3 course/digests.py [ID ...]. Runs the programs exercise.ID_solved in build/sim."""
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that python3 course/digests.py finds the packages

from course import manifest
from course.manifest import Exercise
from course.regions import Fault

TEST = re.compile(r"^PREDICTION\((\w+), (\w+), (\w+)", re.MULTILINE)
DIGESTS = re.compile(r"^DIGESTS\(.*\);\n", re.DOTALL | re.MULTILINE)


def source(root: Path, exercise: Exercise, folder: str = "hidden") -> Path:
    [file] = (root / "tests/exercises" / folder).glob(f"{exercise.id}.c*")
    return file


def printed(root: Path, exercise: Exercise) -> dict[str, tuple[str, str]]:
    """Returns {test: (tolerance, digests)} from the grader's formulas."""
    program = root / "build/sim/bin" / exercise.solved_program
    done = subprocess.run([program], env={**os.environ, "FLASHBOOK_PREDICTED_DIGESTS": "1"}, capture_output=True, text=True, check=False)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("digests ")]
    return {test: (tolerance, digests) for _, test, tolerance, digests in lines}


def visible(root: Path, exercise: Exercise) -> str:
    """Returns the text of students' tests, before clang-format."""
    digests, body = printed(root, exercise), ""
    tests = [(f"{suite}.{name}", suite, name, member) for suite, name, member in TEST.findall(source(root, exercise).read_text(encoding="utf-8"))]
    if [test for test, *_ in tests] != list(digests) or {test.name for test in exercise.tests} != set(digests):
        raise Fault(f"{exercise.id}: its formulas, its program in build/sim and exercises.json must have the same tests")
    for test, suite, name, member in tests:
        tolerance, wanted = digests[test]
        body += f'DIGESTS({suite}, {name}, {member}, {tolerance}, "{wanted}");\n'
    return DIGESTS.sub(body, source(root, exercise, "").read_text(encoding="utf-8"))


def formatted(root: Path, text: str) -> str:
    return subprocess.run(["clang-format", f"--style=file:{root / '.clang-format'}"], input=text, capture_output=True, text=True, check=True).stdout


def is_current(root: Path, exercise: Exercise) -> bool:
    """Returns whether students' tests are up to date."""
    def words(text: str) -> str:
        return "".join(text.split())

    return words(source(root, exercise, "").read_text(encoding="utf-8")) == words(visible(root, exercise))


def main() -> None:
    for exercise in manifest.load():
        if exercise.kind == "predict" and (not sys.argv[1:] or exercise.id in sys.argv[1:]):
            file = manifest.ROOT / "tests/exercises" / source(manifest.ROOT, exercise).name
            file.write_text(formatted(manifest.ROOT, visible(manifest.ROOT, exercise)), encoding="utf-8")
            print(file.relative_to(manifest.ROOT))


if __name__ == "__main__":
    main()
