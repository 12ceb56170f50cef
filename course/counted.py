"""Scores a capstone's kernel by its cost in multiprocessor clocks, as counted in the traced mode (tests/support/work.h).

A count is not a measured time, and the process that runs the student's code produces it: code that gets past the gate
can forge it. So the score earns no points."""
import math
from collections.abc import Iterator, Mapping

from course.gtest import Verdict
from course.manifest import Exercise, Test

CLOCKS = "clocks"  # the sum of these parts
PARTS = {"sectors": "device memory", "wavefronts": "shared memory", "exponentials": "exponentials", "tensor_cores": "tensor cores",
         "cuda_cores": "multiply-adds elsewhere", "idle": "idle multiprocessors"}
HONOUR = "This is a count, not a measured time, and comes from the process that runs the student's code, so it earns no points."


def score_of_test(test: Test, counts: Mapping[str, int]) -> float | None:
    """Returns 0 for a naive kernel, 100 for the book's best, logarithmic in between and above. None if nothing was
    counted."""
    if not test.clocks or counts.get(CLOCKS, 0) <= 0:
        return None
    naive, best = test.clocks
    return max(0.0, 100 * math.log(naive / counts[CLOCKS]) / math.log(naive / best))


def score(exercise: Exercise, verdicts: Mapping[str, Verdict]) -> float | None:
    """Returns the mean of the exercise's counted tests; None if it has none, or one was not counted."""
    counted = [test for test in exercise.tests if test.clocks]
    scores = [score_of_test(test, verdicts[test.name].counts) for test in counted if test.name in verdicts]
    found = [one for one in scores if one is not None]
    return sum(found) / len(found) if counted and len(found) == len(counted) else None


def told(counts: Mapping[str, int]) -> str:
    """Returns "9000 clocks: device memory 5000, ...", with the largest part first."""
    parts = sorted(((counts.get(part, 0), name) for part, name in PARTS.items()), reverse=True)
    return f"{counts[CLOCKS]} clocks: " + ", ".join(f"{name} {clocks}" for clocks, name in parts if clocks)


def lines(exercise: Exercise, verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """Yields a line for each test that was counted."""
    for test in exercise.tests:
        found = score_of_test(test, verdicts[test.name].counts) if test.name in verdicts else None
        if found is not None:
            yield f"{test.title}: {told(verdicts[test.name].counts)}; score {found:.0f}"
