"""An exercise as its student sees it: built where it stands, its tests one by one."""
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

Progress = Callable[[str], None]  # is told each line of ninja's count
Show = Callable[[manifest.Test, gtest.Verdict], None]

BUILD = manifest.ROOT / "build" / "sim"
SECONDS = 20  # that a test may take
PATIENCE = 1.5  # times that, in which it may show that it is slow and right
ENDLESS = 8  # and more seconds, in vain, say that it never ends: the simulator itself stops a thread that runs for 10
ERRORS = 3  # of the compiler that are shown
NO_PROGRAM = "it does not compile"
AS_HANDED_OUT = "course/as_handed_out.json"  # a digest of each file to edit, but for its exercises


@dataclass
class Attempt(Score):
    of_solution: bool = False  # the book's, and not what stands in the file
    warnings: list[str] = field(default_factory=list)  # of the compiler, in the file to edit
    mode: str = ""  # of the simulator, if not all were asked

    @property
    def program(self) -> str:
        return self.exercise.solved_program if self.of_solution else self.exercise.program

    @property
    def left(self) -> list[manifest.Test]:
        """Hidden tests, which students do not have."""
        return [test for test in self.exercise.tests if test.hidden and test.name not in self.verdicts]


def left_to_the_grader(attempts: Sequence[Attempt]) -> str:
    """What the points here lack; empty if nothing."""
    hidden = sum(test.points for a in attempts for test in a.left)
    return f"; the grader has {hidden} for hidden tests" if hidden else ""


# ---- what the grader would refuse --------------------------------------------------------------------------------------------------


def refusal(exercise: manifest.Exercise) -> str:
    """Why the grader would not take what stands in the exercise's region; empty if it would."""
    if not (manifest.ROOT / exercise.file).is_file():
        return f"{exercise.file} is gone: take it from the hand-out again"
    text = (manifest.ROOT / exercise.file).read_text(encoding="utf-8", errors="replace")
    written, faults = regions.written(text, exercise.file)
    if exercise.id not in written:
        why = faults.get(exercise.id) or regions.absent(exercise.id, exercise.file)
        return f"{why}: what stands between the two is graded."
    answer = written[exercise.id]
    return "\n".join(f"{exercise.file}:{line}: {why}" for line, why in gate.objections(answer.lines, answer.line)[:ERRORS])


def digest_outside(text: str) -> str:
    """Of what the grader does not read of a file."""
    return hashlib.sha256(regions.around(text).encode()).hexdigest()


def strayed(exercise: manifest.Exercise) -> list[str]:
    """A warning if the file was changed outside its exercises; the book itself does not know how it was handed out."""
    known = manifest.ROOT / AS_HANDED_OUT
    text = (manifest.ROOT / exercise.file).read_text(encoding="utf-8", errors="replace")
    if not known.exists() or digest_outside(text) == json.loads(known.read_text(encoding="utf-8")).get(exercise.file, digest_outside(text)):
        return []
    return [f"{exercise.file} was changed outside its exercises, which the grader does not read: what you add has to stand between the markers"]


# ---- building ----------------------------------------------------------------------------------------------------------------------


def readable(log: str) -> list[str]:
    return [line.replace(f"{manifest.ROOT}/", "") for line in log.splitlines()]


def errors_of(log: str) -> str:
    """What a compiler's log says in the end: the first errors and what it shows of each, or all of it if none can be told."""
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
    """(whether it could be built, the log). `progress`: called with each line of ninja's count."""
    log = ""
    with subprocess.Popen(["cmake", "--build", BUILD, "--target", target], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as building:
        for line in building.stdout or ():
            log += line
            if re.match(r"\[\d+/\d+\]", line):
                progress(line.rstrip())
    return building.returncode == 0, log


def build(exercise: manifest.Exercise, target: str, progress: Progress) -> tuple[bool, str]:
    """As ninja(), of what the exercise's file holds when it is done: what is saved while it compiles is compiled, too."""
    file = manifest.ROOT / exercise.file
    while True:
        before = file.stat().st_mtime_ns
        built = ninja(target, progress)
        if file.stat().st_mtime_ns == before:
            return built
        os.utime(file)


def has_twin(program: str) -> bool:
    """Whether there is one that finds the races of a program."""
    return f"build bin/{program}{modes.TWIN}:" in (BUILD / "build.ninja").read_text(encoding="utf-8")


# ---- testing -----------------------------------------------------------------------------------------------------------------------


def nothing(*_: object) -> None:
    pass


def run(tried: Attempt, mode: str, show: Show, tests: Sequence[manifest.Test]) -> None:
    """Runs tests in a mode; what follows a test that ran for long, in vain, does not run."""
    endless = False
    program = BUILD / "bin" / (tried.program + modes.suffix(mode))
    environment = modes.environment(tried.exercise, mode, int(os.environ.get("FLASHBOOK_COURSE_SEED") or 0))
    seconds = tried.exercise.patience * SECONDS
    for test in tests:
        if endless and test.hidden:
            continue
        start = time.monotonic()
        verdict = (gtest.Verdict(False, "not run: a test before it did not end") if endless else
                   gtest.run(program, test.name, environment, PATIENCE * seconds))
        if verdict is None and test.hidden:
            continue
        verdict = verdict or gtest.Verdict(False, "the program has no such test: build it again")
        took = time.monotonic() - start
        endless = endless or (not verdict.passed and took > tried.exercise.patience * ENDLESS)
        if verdict.passed and took > seconds:
            verdict = gtest.slow(seconds)
        tried.verdicts[test.name] = verdict if tried.mode else modes.told(verdict, mode, tried.verdicts.get(test.name))
        if mode == modes.LAZY or tried.mode or not verdict.passed:
            show(test, verdict)


def race(tried: Attempt, progress: Progress = nothing) -> str:
    """What the exercise's twin has to say of the first test that failed; empty if nothing."""
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
    """Builds the exercise and runs its tests, kernels in all modes of the simulator, or in FLASHBOOK_SIM_ASYNC alone. `show`: called with each
    test that has run, and its verdict, and again if it fails in another mode. `progress`: with what is being built. `of_solution`: with the
    book's solution, in the book."""
    exercise = variant.of_this_copy(manifest.ROOT, exercise)
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
