#!/usr/bin/env python3
"""Builds exercises, runs their tests and shows the results: python3 course/try_exercise.py ID|NN ... [--solved | --watch]. Exit code 0 if all pass.
--solved tries the book's solutions, which only the book has. --watch tries the first unsolved exercise, then each one whose file is saved, until
Ctrl-C; without names it watches the next chapter."""
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that python3 course/try_exercise.py finds the packages

from course import manifest, variant
from course import progress as kept
from course.attempt import Attempt, attempt, left_to_the_grader, race
from course.gtest import Causes, Verdict
from course.manifest import Test
from course.score import earned, possible

PAUSE = 0.3  # seconds between checks of the files


def line(mark: str, text: str) -> str:
    return f"  {mark:<4}  {text}"


def indented(text: str) -> str:
    return "".join(f"\n        {part}" for part in text.splitlines())


def shown(test: Test, verdict: Verdict, causes: Causes) -> str:
    return line("pass" if verdict.passed else "FAIL", test.title) + indented(causes.told(verdict.message, test.title))


def summary(tried: Attempt) -> str:
    exercise, lines = tried.exercise, []
    if exercise.variant is not None:
        lines.append(line("", f"your variant: {variant.name(manifest.ROOT, exercise)} (./flashbook course variant)"))
    if tried.why:
        lines.append(line("why?", "the same test, traced:") + indented(tried.why))
    lines += [line("warn", warning) for warning in tried.warnings]
    lines += [line("----", f"{test.title} (hidden: the grader runs it)") for test in tried.left if not tried.trouble]
    if tried.trouble:
        return "\n".join([*lines, line("FAIL", tried.headline) + indented(tried.trouble), "", f"{exercise.id}: {tried.headline}"])
    passed = len(tried.tests) - len(tried.failed)
    if tried.mode:
        said = f"{passed} of {len(tried.tests)} tests pass in mode {tried.mode}, set by FLASHBOOK_SIM_ASYNC; unset it to try all modes"
    else:
        said = "solved" if tried.solved else f"{passed} of {len(tried.tests)} tests pass"
        said += f", {earned([tried])} of {possible([tried])} points" + left_to_the_grader([tried])
        if tried.broken_guards:
            said += '. It earns no points while a test "as before" fails'
    return "\n".join([*lines, "", f"{exercise.id}: {said}"])


def progress(text: str) -> None:
    """Shows ninja's progress: on a terminal in one line, otherwise every tenth step."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text[:100]}", end="", file=sys.stderr, flush=True)
    elif re.match(r"\[[1-9]\d*0/", text):
        print(text, file=sys.stderr, flush=True)


def try_one(exercise: manifest.Exercise, of_solution: bool) -> int:
    """Tries an exercise; returns 0 if it is solved, else 1."""
    causes = Causes()

    def show(test: Test, verdict: Verdict) -> None:
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
        print(shown(test, verdict, causes), flush=True)

    tried = attempt(exercise, show, progress, of_solution)
    if not of_solution and not tried.mode:
        kept.keep(tried)
    tried.why = race(tried, progress)
    print(summary(tried))
    return 0 if tried.solved and not tried.mode else 1


def saved_at(file: str) -> int:
    """Returns when a file was saved; 0 while it is being replaced."""
    try:
        return (manifest.ROOT / file).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def watch(exercises: Sequence[manifest.Exercise]) -> None:
    times = {e.id: saved_at(e.file) for e in exercises}
    saved = [kept.first_open(exercises) or exercises[0]]
    while True:
        for exercise in saved:
            print("\033[2J\033[H" * sys.stdout.isatty(), end="")
            try_one(exercise, of_solution=False)
            print(f"\n{kept.table(exercises)}\n\nSave a file to try it again; press Ctrl-C to stop.", flush=True)
        time.sleep(PAUSE)
        now = {e.id: saved_at(e.file) for e in exercises}
        saved = [e for e in exercises if now[e.id] not in (0, times[e.id])]
        times |= {e.id: now[e.id] for e in saved}


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # course try ID | head
    names, of_solution, watches = [word for word in sys.argv[1:] if not word.startswith("--")], "--solved" in sys.argv, "--watch" in sys.argv
    every = kept.to_be_done()
    if watches and not names:
        names = [(kept.first_open(every) or every[-1]).number]
    exercises = [e for e in manifest.load() if e.id in names] + [e for e in every if e.number in names]
    if not exercises:
        print(f"course {'watch' if watches else 'try'}: '{' '.join(names)}' has no exercises to do: give an exercise's id or a chapter's two-digit "
              "number", file=sys.stderr)
        sys.exit(2)
    if watches:
        try:
            watch(exercises)
        except KeyboardInterrupt:
            return
    sys.exit(max([try_one(exercise, of_solution) for exercise in exercises]))


if __name__ == "__main__":
    main()
