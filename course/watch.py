#!/usr/bin/env python3
"""Watches a chapter's exercises: python3 course/watch.py [NN], by default the chapter that comes next. Whenever a file is saved, its exercises are
built and tested, and the first thing that is wrong is shown. Keys, each with Enter: h a hint, r run all again, q quit."""
import select
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the packages, for python3 course/watch.py

from course import manifest, progress
from course.attempt import Attempt, attempt, left_to_the_grader, race
from course.manifest import Exercise
from course.score import earned, possible

PAUSE = 0.3  # seconds between two looks at the files
CLEAR = "\033[2J\033[H"
KEYS = "h: hint   r: run all again   q: quit   (then Enter)"
LINES = 14  # of a message, so that what stands above it stays on the screen


def bar(done: int, whole: int, width: int = 24) -> str:
    filled = int(width * done / whole) if whole else 0
    return f"[{'#' * filled}{'.' * (width - filled)}]"


def focus_of(attempts: Sequence[Attempt], saved: str | None = None) -> Attempt | None:
    """The exercise to show: the first unsolved one in the file that was saved, else the first unsolved one; None if all are solved."""
    unsolved = [a for a in attempts if not a.solved]
    return next((a for a in unsolved if a.exercise.file == saved), unsolved[0] if unsolved else None)


def cut(text: str) -> list[str]:
    lines = text.splitlines()
    more = f"... and {len(lines) - LINES} lines more: ./flashbook course try shows them"
    return lines if len(lines) <= LINES else [*lines[:LINES], more]


def warnings(attempts: Sequence[Attempt]) -> list[str]:
    """Those of solved exercises, too, and what two exercises of a file share once."""
    return [f"  warn  {warning}" for warning in dict.fromkeys(warning for a in attempts for warning in a.warnings)]


def minutes(a: Attempt) -> str:
    """About how long an exercise takes that is not solved yet."""
    return f" ({a.exercise.minutes} min)" if a.exercise.minutes and not a.solved else ""


def screen(attempts: Sequence[Attempt], focus: Attempt | None, hint: bool = False) -> str:
    """What is shown: progress, and the first failure of the exercise in focus."""
    solved = sum(a.solved for a in attempts)
    points, most = earned(attempts), possible(attempts)
    lines = [f"{bar(points, most)} {solved} of {len(attempts)} exercises, {points} of {most} points"]
    lines += [f"  {'done' if a.solved else ' -> ' if a is focus else '    '}  {a.exercise.id}: {a.exercise.title}{minutes(a)}" for a in attempts]
    if not focus:
        hidden = [f"  ----  {a.exercise.id}: {test.title} (hidden)" for a in attempts for test in a.left]
        return "\n".join([*lines, "", f"All solved here{left_to_the_grader(attempts)}.", *warnings(attempts), *hidden, "", KEYS])
    title, message = focus.first_failure() or ("", "")
    lines += ["", f"{focus.exercise.id}, in {focus.exercise.file}", f"  FAIL  {title}", *(f"  {line}" for line in cut(message))]
    if focus.why:
        lines += ["  why?  the same test, traced:", *(f"  {line}" for line in cut(focus.why))]
    lines += warnings(attempts)
    if hint:
        lines += ["", *textwrap.wrap(f"Hint: {focus.exercise.hint}", 100)]
    return "\n".join([*lines, "", KEYS])


def saved_at(files: Iterable[str]) -> dict[str, int]:
    """When each file was saved; 0 for one that is just being replaced."""
    times = {}
    for file in files:
        try:
            times[file] = (manifest.ROOT / file).stat().st_mtime_ns
        except FileNotFoundError:
            times[file] = 0
    return times


def key() -> str:
    """A key that was pressed, within the pause; empty if there was none."""
    if not select.select([sys.stdin], [], [], PAUSE)[0]:
        return ""
    return sys.stdin.readline().strip()[:1].lower() or ("" if sys.stdin.isatty() else "q")


def show(text: str) -> None:
    print((CLEAR if sys.stdout.isatty() else "\n") + text, flush=True)


def run(exercises: Sequence[Exercise], attempts: dict[str, Attempt]) -> None:
    """Tries exercises, and keeps what came out in their place."""
    for exercise in exercises:
        print(f"building and testing {exercise.id} ...", flush=True)
        attempts[exercise.id] = attempt(exercise)
        progress.keep(attempts[exercise.id])


def present(attempts: Sequence[Attempt], focus: Attempt | None) -> None:
    """Shows what came out, and once more if the traced twin knows why."""
    show(screen(attempts, focus))
    if focus and not focus.why:
        focus.why = race(focus)
        if focus.why:
            show(screen(attempts, focus))


def watch(exercises: Sequence[Exercise]) -> None:
    attempts: dict[str, Attempt] = {}
    files = {e.file for e in exercises}
    times = saved_at(files)
    run(exercises, attempts)
    focus = focus_of(list(attempts.values()))
    present(list(attempts.values()), focus)
    while True:
        pressed = key()
        if pressed == "q":
            return
        now = saved_at(files)
        changed = {file for file in files if now[file] not in (0, times[file])}
        if changed or pressed == "r":
            times |= {file: now[file] for file in changed}
            run([e for e in exercises if pressed == "r" or e.file in changed], attempts)
            focus = focus_of(list(attempts.values()), min(changed, default=None))
            present(list(attempts.values()), focus)
        elif pressed:
            show(screen(list(attempts.values()), focus, hint=pressed == "h"))


def main() -> None:
    every = progress.to_be_done()
    coming = progress.first_open(every) or every[-1]
    number = sys.argv[1] if len(sys.argv) > 1 else coming.number
    exercises = [e for e in every if e.number == number]
    if not exercises:
        numbers = sorted({e.number for e in every})
        print(f"course watch: chapter {number} has no exercises: {', '.join(numbers)} have some", file=sys.stderr)
        sys.exit(2)
    try:
        watch(exercises)
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
