"""Judges one test of one exercise. The student's program runs it in a sandbox and records the values it computed; then the book's own program, which
contains no student's code, runs the same test on that record and decides whether it is right (tests/exercises/observed.h). So nothing that a
student's program prints, writes or returns can become a verdict."""
import os
import shutil
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

from course import gtest, modes
from course.gtest import Verdict
from course.manifest import Exercise
from course.regions import Broken
from course.sandbox import Limits, Sandbox, own_folder, printable

MOST_TEXT = 3000


def take_record(source: Path, target: Path) -> bool:
    """Copies a record if it is a plain file."""
    try:
        file = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with open(file, "rb") as stream, open(target, "wb") as copy:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return False
        shutil.copyfileobj(stream, copy)
    return True


class Judge:
    def __init__(self, build: Path, sandbox: Sandbox, folder: Path, limits: Limits = Limits()) -> None:
        """`build`: the book's own build. `sandbox`: for students' programs. `folder`: an empty folder that they cannot read."""
        self.build, self.sandbox, self.folder, self.limits = build, sandbox, folder, limits

    def run(self, program: Path, exercise: Exercise, test: str, mode: str, seed: int, patience: int = 1) -> Verdict:
        """Returns the verdict on a test of `program` in a mode of the simulator, with the inputs of `seed`. `patience`: factor on the time
        limit."""
        environment, limits = modes.environment(exercise, mode, seed), replace(self.limits, seconds=patience * self.limits.seconds)
        with own_folder(program.parent) as own, tempfile.TemporaryDirectory(dir=self.folder) as private:
            written, record = own / "record", Path(private) / "record"
            outcome = self.sandbox.run([program, f"--gtest_filter={test}", "--gtest_brief=1"], own, limits,
                                       {**environment, "FLASHBOOK_OBSERVED_WRITE": str(written)}, visible=[program])
            if outcome.trouble:
                where = f"\n./flashbook course try {exercise.id} may name the line." if outcome.code < 0 and not outcome.stopped else ""
                return Verdict(False, gtest.with_output(outcome.trouble, outcome.output) + where, gtest.STOPPED if outcome.stopped else "")
            if outcome.code not in (0, 1):
                return Verdict(False, gtest.with_output(f"it ended with exit code {outcome.code}", outcome.output))
            if not take_record(written, record):
                return Verdict(False, gtest.with_output("it ended before the test could check anything", outcome.output))
            verdict = gtest.run(self.build / "bin" / exercise.solved_program, test, {**environment, "FLASHBOOK_OBSERVED_READ": str(record)})
        if verdict is None:
            raise Broken(f"{exercise.solved_program} has no test {test}: exercises.json and the tests differ, or the build is old")
        if not verdict.passed:  # a record may contain anything
            verdict.message = printable(gtest.with_output(verdict.message[:MOST_TEXT], outcome.output))
        return verdict
