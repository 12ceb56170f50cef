"""An exercise as its student sees it: built where it stands, its tests one by one."""
import subprocess
from dataclasses import dataclass, field

import gtest
import manifest

BUILD = manifest.ROOT / "build" / "sim"


@dataclass
class Attempt:
    exercise: manifest.Exercise
    errors: str = ""  # of the compiler
    verdicts: list = field(default_factory=list)  # of its tests, in their order

    @property
    def solved(self):
        return not self.errors and all(verdict.passed for verdict in self.verdicts)

    @property
    def points(self):
        return sum(test.points for test, verdict in zip(self.exercise.tests, self.verdicts) if verdict.passed)

    def first_failure(self):
        """(title, message) of what to look at first; None if there is nothing."""
        if self.errors:
            return "it does not compile", self.errors
        for test, verdict in zip(self.exercise.tests, self.verdicts):
            if not verdict.passed:
                return test.title, verdict.message
        return None


def errors_of(log):
    """What a compiler's log says in the end: the errors, or all of it if none can be told."""
    lines = [line.replace(f"{manifest.ROOT}/", "") for line in log.splitlines()]
    errors = [i for i, line in enumerate(lines) if "error:" in line]
    return "\n".join(lines[errors[0]:errors[0] + 6] if errors else lines[-20:])


def compiled(exercise):
    """The errors of building the exercise; empty if there are none."""
    done = subprocess.run(["cmake", "--build", BUILD, "--target", exercise.program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    return errors_of(done.stdout.decode(errors="replace")) if done.returncode else ""


def tested(exercise):
    """The exercise's tests, run with the program that is there."""
    program = BUILD / "bin" / exercise.program
    missing = gtest.Verdict(False, "the program has no such test: build it again")
    return Attempt(exercise, verdicts=[gtest.run(program, test.name) or missing for test in exercise.tests])


def attempt(exercise):
    errors = compiled(exercise)
    return Attempt(exercise, errors) if errors else tested(exercise)
