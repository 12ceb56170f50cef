"""The points of exercises and submissions, on the machine of a student and of the grader."""
from collections.abc import Iterable
from dataclasses import dataclass, field

from course.gtest import Verdict
from course.manifest import Exercise, Test
from course.regions import Written

NOT_HANDED_IN = "not handed in"


@dataclass
class Score:
    exercise: Exercise
    trouble: str = ""  # reason why no test could run
    headline: str = "it could not be tested"  # a summary of `trouble`
    verdicts: dict[str, Verdict] = field(default_factory=dict)  # keyed by the test's name
    why: str = ""  # the traced twin's message for the first test that failed
    is_there: bool = True  # whether an answer was handed in

    @property
    def left(self) -> list[Test]:
        """Tests that cannot run here and earn nothing."""
        return []

    @property
    def tests(self) -> list[Test]:
        return [test for test in self.exercise.tests if test not in self.left]

    def passed(self, test: Test) -> bool:
        return test.name in self.verdicts and self.verdicts[test.name].passed

    @property
    def failed(self) -> list[Test]:
        return [test for test in self.tests if not self.passed(test)]

    @property
    def broken_guards(self) -> list[Test]:
        """Failed tests that passed as handed out. If there is one, the exercise earns nothing."""
        return [] if self.trouble else [test for test in self.failed if not test.points]

    def points_of(self, test: Test) -> int:
        return test.points if self.passed(test) and not self.broken_guards and not self.trouble else 0

    @property
    def points(self) -> int:
        return sum(self.points_of(test) for test in self.tests)

    @property
    def solved(self) -> bool:
        return not self.trouble and not self.failed

    @property
    def status(self) -> str:
        """A note for the teacher; empty if there is none."""
        if self.trouble:
            return self.headline
        return next((verdict.status for verdict in self.verdicts.values() if verdict.status), "")


def earned(scores: Iterable[Score]) -> int:
    return sum(score.points for score in scores)


def possible(scores: Iterable[Score]) -> int:
    """Returns the points of all tests that run on this machine."""
    return sum(test.points for score in scores for test in score.tests)


@dataclass
class Grade:
    name: str  # the submission's name
    results: list[Score]
    seed: int
    lack: str  # Sandbox.lack: what the sandbox fails to stop
    seconds: float
    student: str = ""  # id on the roster or the learning platform
    person: str = ""  # name on the roster
    answers: dict[str, Written] = field(default_factory=dict)  # keyed by the exercise's id

    @property
    def points(self) -> int:
        return earned(self.results)

    @property
    def most(self) -> int:
        return possible(self.results)

    @property
    def full_name(self) -> str:
        return self.person or self.name

    @property
    def status(self) -> str:
        """Whether the submission is missing or graded without a sandbox, and the status of single exercises."""
        if not any(result.is_there for result in self.results):
            return NOT_HANDED_IN
        unfenced = ["graded without a complete sandbox"] if self.lack else []
        return "; ".join([*unfenced, *(f"{r.exercise.id}: {r.status}" for r in self.results if r.status)])
