"""How long right kernels take on a GPU, in turn with the book's best: in each of some rounds both run, in an order that is drawn anew, with a nap
before each, and a median is what counts. Beside the score, and no part of points: what a student's process says of its own time is believed.

A counted capstone is timed at the shapes of the book's tables, against the fastest step of the chapter that teaches it, by that chapter's own
program; other kernels at their tests' sizes, which are small, against the book's solution. Programs that the simulator's build made
take the same way; their seconds are those of a CPU, and are called simulated."""
import json
import math
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from course import modes
from course.gtest import own_lines
from course.manifest import CAPSTONE, Exercise, Test

FILE, LENGTH = "FLASHBOOK_COURSE_TIMES", "FLASHBOOK_COURSE_TIMED_LENGTH"  # as tests/exercises/timed.h says
LENGTH_ON_A_GPU = 4096  # as the book's tables have it
ROUNDS, NAP = 5, 0.06  # the GPU is limited by power: what ran before changes what is measured
REPEATS = 11  # of an exercise's tests in a process; the first is for warming up
SECONDS = 120  # that a process may take
LARGEST = 1 << 20  # characters of a file of times
SIMULATOR = "simulator"
# A capstone's best in the book, and its shape but for heads and mask, as tests/exercises/capstone.h has it.
CHAPTERS = {"capstone-forward": "05_flash_attention_3", "capstone-backward": "07_backward"}
HEADS = {"Forward.TheFirstCount": (16, False), "Forward.TheSecondCount": (8, True),
         "Backward.TheFirstCount": (16, False), "Backward.TheSecondCount": (8, True)}  # of keys, of 16; whether it is causal
HONOUR = "A time is an honour, too: the process that runs the code that is timed says it, and points do not depend on it."

Sample = Mapping[str, float]  # seconds of what one process ran, by what it was
Program = Callable[[Sequence[str], Mapping[str, str]], str]  # runs a test's program with arguments and an environment; the file of times
Turns = Callable[[Sequence[Callable[[], Sample]]], list[dict[str, float]]]  # in_turn, or what stands in for it


class Untimed(Exception):
    """Why there is no time, in one line."""


@dataclass(frozen=True)
class Times:
    what: str  # was timed
    machine: str
    own: float  # seconds
    best: float | None  # the book's; None where it is not at hand
    whose: str  # the book's best is

    @property
    def ratio(self) -> float | None:
        """Times the book's best that the student's kernel takes."""
        return self.own / self.best if self.best else None

    @property
    def is_simulated(self) -> bool:
        return self.machine == SIMULATOR

    @property
    def told(self) -> str:
        where = "simulated, by a CPU, which says nothing about a GPU" if self.is_simulated else f"on {self.machine}"
        beside = f"; {self.whose} {duration(self.best)}, so {self.ratio:.2f} times that" if self.best else f"; {self.whose}"
        return f"{self.what}: {duration(self.own)} {where}{beside} (medians, in turn)"


def duration(seconds: float) -> str:
    for unit, factor in (("s", 1), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def mean_ratio(times: Sequence[Times]) -> float | None:
    """The geometric mean of what was timed on a GPU beside the book's best; None if nothing was."""
    ratios = [one.ratio for one in times if one.ratio and not one.is_simulated]
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


def lines(times: Sequence[Times], untimed: str) -> Iterator[str]:
    """What is said beside the score; nothing if nobody asked for times."""
    yield from (one.told for one in times)
    if times:
        yield HONOUR
    if untimed:
        yield f"no time on a GPU: {untimed}"


# ---- the turns ---------------------------------------------------------------------------------------------------------------------


def in_turn(contestants: Sequence[Callable[[], Sample]], rounds: int = ROUNDS, shuffle: Callable[[list[int]], None] = random.shuffle,
            nap: Callable[[float], None] = time.sleep) -> list[dict[str, float]]:
    """Of each contestant the median seconds of what it runs."""
    taken: list[dict[str, list[float]]] = [{} for _ in contestants]
    for _ in range(rounds):
        order = list(range(len(contestants)))
        shuffle(order)
        for i in order:
            nap(NAP)
            for name, seconds in contestants[i]().items():
                taken[i].setdefault(name, []).append(seconds)
    return [{name: statistics.median(seconds) for name, seconds in one.items()} for one in taken]


def read(text: str, repeats: int) -> tuple[str, float]:
    """(the machine, seconds) in a file of times: the sum over tests, of each the median of its runs but for the first. `repeats`: how often the
    tests ran, each with as many lines; 1 if each line is a run."""
    machine, *rest = text[:LARGEST].splitlines() or [""]
    of_tests: dict[str, list[float]] = {}
    try:
        for line in rest:
            test, seconds = line.split()
            of_tests.setdefault(test, []).append(float(seconds))
    except ValueError:
        raise Untimed("what its program wrote are no times") from None
    if not of_tests:
        raise Untimed("its tests launch nothing that is timed")
    total = 0.0
    for taken in of_tests.values():
        launches = len(taken) // repeats if repeats > 1 else 1
        runs = [sum(taken[i:i + launches]) for i in range(0, len(taken), max(1, launches))]
        total += statistics.median(runs[1:] or runs)
    if not 0 < total < SECONDS:
        raise Untimed("what its program wrote are no times")
    return machine, total


# ---- contestants -------------------------------------------------------------------------------------------------------------------


def test_of(program: Program, exercise: Exercise, tests: Sequence[Test], length: int | None, machines: set[str]) -> Callable[[], Sample]:
    """A program of an exercise's tests."""
    repeats = 1 if exercise.kind == CAPSTONE else REPEATS
    words = ["--gtest_filter=" + ":".join(test.name for test in tests), f"--gtest_repeat={repeats}", "--gtest_brief=1"]
    environment = {**modes.environment(exercise, modes.LAZY, 0), "FLASHBOOK_REQUIRE_GPU": "1", **({LENGTH: str(length)} if length else {})}

    def run() -> Sample:
        machine, seconds = read(program(words, environment), repeats)
        machines.add(machine)
        return {"": seconds}

    return run


def shape_of(test: Test, length: int) -> str:
    kv_heads, causal = HEADS[test.name]
    return f"batch 4, 16 heads{'' if kv_heads == 16 else f' ({kv_heads} key heads)'}, {length} x {length}{', causal' if causal else ''}"


def chapter_of(program: Path, test: Test, length: int) -> Callable[[], Sample]:
    """A chapter's own program, all its steps."""
    kv_heads, causal = HEADS[test.name]
    words = ["--batch", "4", "--heads", "16", "--kv-heads", str(kv_heads), "--seqlen", str(length), "--head-dim", "64", "--dtype", "f16",
             "--step", "all", "--check", "off", *(["--causal"] if causal else [])]

    def run() -> Sample:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "report.json"
            done = subprocess.run([program, *words, "--json", file], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            if done.returncode or not file.exists():
                raise Untimed(f"{program.name} failed: {last_line(done.stdout)}")
            steps = json.loads(file.read_text(encoding="utf-8"))["steps"]
        found = {f"step {step['step']}": float(step["seconds"]) for step in steps if step.get("seconds")}
        if not found:
            raise Untimed(f"{program.name} timed nothing")
        return found

    return run


def last_line(output: str) -> str:
    return next(iter([line.strip() for line in own_lines(output) if line.strip()][-1:]), "it said nothing")


def here(program: Path) -> Program:
    """A program that is trusted."""
    def run(words: Sequence[str], environment: Mapping[str, str]) -> str:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "times"
            try:
                done = subprocess.run([program, *words], env={**os.environ, **environment, FILE: str(file)}, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False)
            except subprocess.TimeoutExpired:
                raise Untimed(f"{program.name} still ran after {SECONDS} s") from None
            return file.read_text(encoding="utf-8") if done.returncode == 0 and file.exists() else failed(program.name, done.stdout)

    return run


def failed(name: str, output: str) -> str:
    failure = [line for line in output.splitlines() if "no GPU" in line or "GPU" in line]
    raise Untimed(failure[0].strip() if failure else f"{name} failed: {last_line(output)}")


# ---- an answer ---------------------------------------------------------------------------------------------------------------------


def is_timed(exercise: Exercise, root: Path) -> bool:
    """Whether an exercise is about a kernel."""
    return exercise.kind != "predict" and (root / "tests" / "exercises" / f"{exercise.id}.cu").exists()


def of_answer(exercise: Exercise, program: Program, build: Path, length: int = LENGTH_ON_A_GPU, tests: Sequence[Test] | None = None,
              turns: Turns | None = None) -> list[Times]:
    """The times of a right answer, whose program is `program`. `build`: where the book's programs are. `tests`: that the program has, if not
    all. Raises Untimed."""
    counted = [test for test in exercise.tests if test.clocks]
    if counted and exercise.id in CHAPTERS:
        chapter = CHAPTERS[exercise.id]
        return [against(exercise, program, [test], chapter_of(build / "bin" / chapter, test, length) if (build / "bin" / chapter).exists() else None,
                        shape_of(test, length), f"chapter {int(chapter[:2])}", length, turns)
                for test in counted]
    own = list(tests or exercise.tests)
    solution = build / "bin" / exercise.solved_program
    book = test_of(here(solution), exercise, own, None, set()) if solution.exists() else None
    return [against(exercise, program, own, book, f"its {len(own)} tests together", "the book's solution", None, turns)]


def against(exercise: Exercise, program: Program, tests: Sequence[Test], book: Callable[[], Sample] | None, what: str, whose: str,
            length: int | None, turns: Turns | None) -> Times:
    machines: set[str] = set()
    own, *books = (turns or in_turn)([test_of(program, exercise, tests, length, machines), *([book] if book else [])])
    if not books:
        return Times(what, machines.pop(), own[""], None, f"{whose} is not built here")
    step = min(books[0], key=lambda name: books[0][name])
    return Times(what, machines.pop(), own[""], books[0][step], f"{whose}{', ' if step else ''}{step}")
