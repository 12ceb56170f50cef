"""Speed points: on a machine with a GPU and a CUDA toolkit, a submission that is right is timed against the book's own kernel, in turn."""
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from course.manifest import Speed
from course.regions import Written
from course.sandbox import Limits, Sandbox, own_folder
from course.score import Score, Timing
from course.toolchain import Toolchain

if TYPE_CHECKING:
    from course.grade import Grader

Measure = Callable[[], float | None]  # gives seconds, or None if it failed

ROUNDS = 5
FULL = 1.2  # times the reference's time gives all points
NONE = 10  # and this much none; between them, points fall as the speed does
TOO_GOOD = 0.5  # a time that a person should look at: it is measured in the submission's own process
LIMITS = Limits(seconds=120, memory=16 << 30)
COMPILE = Limits(seconds=600, memory=16 << 30, file=256 << 20)  # all steps of a chapter


def points_for(ratio: float, most: int) -> float:
    """Points for a time of `ratio` times the reference's."""
    if ratio <= FULL:
        return most
    return 0 if ratio >= NONE else round(most * FULL / ratio, 1)


def has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*"))


def time_of(report: Path) -> float | None:
    """Seconds of the one step in a chapter program's JSON; None if it has none."""
    try:
        [step] = json.loads(Path(report).read_text(encoding="utf-8"))["steps"]
        return float(step["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def in_turn(reference: Measure, candidate: Measure, rounds: int = ROUNDS) -> tuple[float, float] | None:
    """The least times of two measurements that take turns: (reference, candidate), or None if one of them fails."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for i, measure in enumerate((reference, candidate)):
            seconds = measure()
            if not seconds or seconds <= 0:
                return None
            best[i] = min(best[i], seconds)
    return best[0], best[1]


def verdict(times: tuple[float, float] | None, most: int) -> Timing:
    """The Timing for the least times of reference and submission."""
    if times is None:
        return Timing(0, True, "It could not be timed: the chapter's program failed with it.")
    reference, candidate = times
    ratio = candidate / reference
    said = f"{1e3 * candidate:.3f} ms; the book's own takes {1e3 * reference:.3f} ms here. {ratio:.2f} times, full points up to {FULL}."
    if ratio < TOO_GOOD:
        return Timing(0, True, said + " This is so fast that a person has to look at it first.")
    return Timing(points_for(ratio, most), True, said)


def measurer(sandbox: Sandbox, program: Path, speed: Speed) -> Measure:
    """A function that measures a chapter's program once."""
    def measure() -> float | None:
        with own_folder(program.parent) as folder:
            out = folder / "report.json"
            sandbox.run([program, *speed.options, "--step", str(speed.step), "--check", "sample", "--json", out], folder, LIMITS,
                        {"CUDA_CACHE_DISABLE": "1"}, visible=[program])
            return time_of(out)
    return measure


def candidate(grader: "Grader", result: Score, wanted: Speed, answer: Written | None) -> Path | Timing:
    """The chapter's program with what the student wrote, or a Timing that says why there is none."""
    exercise = result.exercise
    if not has_gpu():
        return Timing(message=f"This grader has no GPU; {wanted.points} points are graded on a machine with one.")
    if not result.solved:
        return Timing(0, True, "Only what is right is timed.")
    build = grader.root / "build" / "gpu"
    if not (build / "bin" / exercise.chapter).exists():
        return Timing(message="There is a GPU but no build/gpu: the grader's machine lacks the CUDA toolkit, or it was not built.")
    folder = Path(tempfile.mkdtemp(prefix=f"{exercise.id}-", dir=grader.private))
    toolchain = Toolchain(grader.root, build, folder / "tree", grader.toolchain.sandbox, grader.exercises)
    program = toolchain.program(exercise.chapter, lambda source: source.parent.name == exercise.chapter,
                                toolchain.texts(exercise, answer, solved=[e.id for e in grader.exercises]), folder, limits=COMPILE)
    return program.path or Timing(0, True, f"nvcc does not compile it:\n{program.log}")


def shelved(grader: "Grader", program: Path) -> Path:
    """A program where it may be run, by anybody, and not be read from elsewhere."""
    shelf = Path(tempfile.mkdtemp(dir=grader.programs))
    shelf.chmod(0o711)
    place = shelf / "program"
    shutil.copyfile(program, place)
    place.chmod(0o755)
    return place


def grade(grader: "Grader", results: Sequence[Score], answers: Mapping[str, Written], jobs: int) -> None:
    """Gives a Timing to each result whose exercise has points for speed. `answers`: what the student wrote, by exercise. Programs are
    compiled side by side, and measured when nothing else runs."""
    wanted = [(result, result.exercise.speed) for result in results if result.exercise.speed]
    with ThreadPoolExecutor(jobs) as pool:
        candidates = list(pool.map(lambda one: candidate(grader, one[0], one[1], answers.get(one[0].exercise.id)), wanted))
    for (result, speed), made in zip(wanted, candidates):
        if isinstance(made, Timing):
            result.timing = made
            continue
        own = grader.root / "build" / "gpu" / "bin" / result.exercise.chapter
        reference, submitted = (measurer(grader.sandbox, shelved(grader, program), speed) for program in (own, made))
        result.timing = verdict(in_turn(reference, submitted), speed.points)
