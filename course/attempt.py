"""Builds an exercise in a student's copy and runs its tests one by one."""
import hashlib
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from course import gate, gtest, manifest, modes, regions, variant
from course.score import Score
from door.lock import alone

Progress = Callable[[str], None]  # called with each of ninja's [3/17] lines
Show = Callable[[manifest.Test, gtest.Verdict], None]

BUILD = manifest.ROOT / "build" / "sim"
SECONDS = 20  # limit per test
PATIENCE = 1.5  # times SECONDS, after which even a slow test is stopped
ENDLESS = 8  # a test that fails after this many seconds counts as endless, since the simulator stops a thread after 10
ERRORS = 3  # compiler errors that are shown
NO_PROGRAM = "it does not compile"
AS_HANDED_OUT = "course/as_handed_out.json"  # a digest of each file to edit, without its regions


@dataclass
class Attempt(Score):
    of_solution: bool = False  # tries the book's solution instead of the file
    warnings: list[str] = field(default_factory=list)  # the compiler's warnings about the file to edit
    mode: str = ""  # the mode of the simulator, if only one is tried

    @property
    def program(self) -> str:
        return self.exercise.solved_program if self.of_solution else self.exercise.program

    @property
    def left(self) -> list[manifest.Test]:
        """Hidden tests, which are missing from a student's copy."""
        return [test for test in self.exercise.tests if test.hidden and test.name not in self.verdicts]


def left_to_the_grader(attempts: Sequence[Attempt]) -> str:
    hidden = sum(test.points for a in attempts for test in a.left)
    return f"; hidden tests are worth {hidden} more" if hidden else ""


# ---- what the grader would refuse --------------------------------------------------------------------------------------------------


def refusal(exercise: manifest.Exercise) -> str:
    """Returns why the grader would refuse the exercise's region; empty if it would not."""
    if not (manifest.ROOT / exercise.file).is_file():
        return f"{exercise.file} is gone: copy it from the hand-out again"
    text = (manifest.ROOT / exercise.file).read_text(encoding="utf-8", errors="replace")
    written, faults = regions.written(text, exercise.file)
    if exercise.id not in written:
        why = faults.get(exercise.id) or regions.absent(exercise.id, exercise.file)
        return f"{why}: only the lines between the two markers are graded."
    answer = written[exercise.id]
    return "\n".join(f"{exercise.file}:{line}: {why}" for line, why in gate.objections(answer.lines, answer.line)[:ERRORS])


def digest_outside(text: str) -> str:
    """Returns a digest of the part of a file that the grader ignores."""
    return hashlib.sha256(regions.around(text).encode()).hexdigest()


def strayed(exercise: manifest.Exercise) -> list[str]:
    """Returns a warning if the file was changed outside its region; none in the book, which has no record of a
    hand-out."""
    known = manifest.ROOT / AS_HANDED_OUT
    text = (manifest.ROOT / exercise.file).read_text(encoding="utf-8", errors="replace")
    if not known.exists() or digest_outside(text) == json.loads(known.read_text(encoding="utf-8")).get(exercise.file, digest_outside(text)):
        return []
    return [f"{exercise.file} was changed outside its exercise, where the grader ignores it: move your changes between the markers"]


# ---- building ----------------------------------------------------------------------------------------------------------------------


def readable(log: str) -> list[str]:
    return [line.replace(f"{manifest.ROOT}/", "") for line in log.splitlines()]


def errors_of(log: str) -> str:
    """Returns the first errors in a compiler's log with the source lines that it quotes; the last lines of the log if it has no
    errors."""
    lines = [line for line in readable(log) if not line.startswith(("ninja:", "FAILED:", "["))]
    starts = [i for i, line in enumerate(lines) if "error:" in line][:ERRORS]
    if not starts:
        return "\n".join(lines[-20:])
    shown = []
    for start in starts:
        shown.append(lines[start])
        for line in lines[start + 1:start + 4]:
            if not line.startswith(" "):
                break
            shown.append(line)
    return "\n".join(shown)


def warnings_of(log: str, file: str) -> list[str]:
    return list(dict.fromkeys(line for line in readable(log) if line.startswith(f"{file}:") and "warning:" in line))


def ninja(target: str, progress: Progress) -> tuple[bool, str]:
    """Returns (whether it was built, the log)"""
    log = ""
    with subprocess.Popen(["cmake", "--build", BUILD, "--target", target], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as building:
        for line in building.stdout or ():
            log += line
            if re.match(r"\[\d+/\d+\]", line):
                progress(line.rstrip())
    return building.returncode == 0, log


def build(exercise: manifest.Exercise, target: str, progress: Progress) -> tuple[bool, str]:
    """Builds like ninja(), but again if the exercise's file is saved during the build."""
    file = manifest.ROOT / exercise.file
    while True:
        before = file.stat().st_mtime_ns
        built = ninja(target, progress)
        if file.stat().st_mtime_ns == before:
            return built
        os.utime(file)


def has_twin(program: str) -> bool:
    """Returns whether the program has a traced twin, which finds races."""
    return f"build bin/{program}{modes.TWIN}:" in (BUILD / "build.ninja").read_text(encoding="utf-8")


# ---- testing -----------------------------------------------------------------------------------------------------------------------


def nothing(*_: object) -> None:
    pass


def run(tried: Attempt, mode: str, show: Show, tests: Sequence[manifest.Test]) -> None:
    """Runs tests in a mode, and skips those after an endless one."""
    endless = False
    program = BUILD / "bin" / (tried.program + modes.suffix(mode))
    environment = modes.environment(tried.exercise, mode, int(os.environ.get("FLASHBOOK_COURSE_SEED") or 0))
    seconds = tried.exercise.patience * SECONDS
    for test in tests:
        if endless and test.hidden:
            continue
        start = time.monotonic()
        verdict = (gtest.Verdict(False, "not run: an earlier test did not end") if endless else
                   gtest.run(program, test.name, environment, PATIENCE * seconds))
        if verdict is None and test.hidden:
            continue
        verdict = verdict or gtest.Verdict(False, "the program has no such test: build it again")
        took = time.monotonic() - start
        endless = endless or (not verdict.passed and took > tried.exercise.patience * ENDLESS)
        if verdict.passed and took > seconds:
            verdict = gtest.slow(seconds)
        tried.verdicts[test.name] = verdict if tried.mode else modes.told(verdict, mode)
        if mode == modes.LAZY or tried.mode or not verdict.passed:
            show(test, verdict)


def race(tried: Attempt, progress: Progress = nothing) -> str:
    """Returns the traced twin's additional message for the first test that failed; empty if there is none."""
    exercise = tried.exercise
    failed = tried.failed
    if tried.trouble or tried.mode or not failed or not modes.may_be_traced(tried.verdicts[failed[0].name]):
        return ""
    if "traced" not in modes.of(exercise, manifest.ROOT, has_twin(tried.program)):
        return ""
    with alone(BUILD):
        if not build(exercise, tried.program + modes.TWIN, progress)[0]:
            return ""
        told = Attempt(exercise, mode="traced", of_solution=tried.of_solution)
        run(told, "traced", nothing, failed[:1])
    name = failed[0].name
    return modes.beyond(told.verdicts[name], tried.verdicts[name])


def attempt(exercise: manifest.Exercise, show: Show = nothing, progress: Progress = nothing, of_solution: bool = False) -> Attempt:
    """Builds the exercise and runs its tests, kernels in all modes of the simulator or only in FLASHBOOK_SIM_ASYNC. `show` is called with each
    test's verdict, and again if it fails in another mode. `of_solution`: tries the book's solution, which only the book has."""
    exercise = variant.for_this_copy(manifest.ROOT, exercise)
    tried = Attempt(exercise, mode=os.environ.get("FLASHBOOK_SIM_ASYNC", ""), of_solution=of_solution)
    refused = refusal(exercise)
    if refused:
        return Attempt(exercise, refused, headline="the grader would refuse it")
    with alone(BUILD):
        built, log = build(exercise, tried.program, progress)
        tried.warnings = [*strayed(exercise), *warnings_of(log, exercise.file)]
        if not built:
            tried.trouble, tried.headline = errors_of(log), NO_PROGRAM
            return tried
        for mode in [tried.mode] if tried.mode else modes.of(exercise, manifest.ROOT, has_twin(tried.program)):
            if modes.suffix(mode):
                built, log = build(exercise, tried.program + modes.TWIN, progress)
                if not built:
                    tried.trouble, tried.headline = errors_of(log), NO_PROGRAM
                    break
            run(tried, mode, show, exercise.tests)
            if not tried.solved:
                break
    return tried
