#!/usr/bin/env python3
"""Shows a student's progress: python3 course/progress.py [next]. Builds nothing: it shows the latest results of course try and course watch."""
import hashlib
import json
import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that python3 course/progress.py finds the packages

from course import attempt, manifest, regions, variant
from course.attempt import Attempt
from course.manifest import Exercise
from course.score import earned, possible

SOLVED, NOT_TRIED, CHANGED = "solved", "not tried", "changed since it was tried"


def records() -> Path:
    """Returns the file with results, by the exercise's id: the answer's digest, the state and the points."""
    return attempt.BUILD / "course.json"


def known() -> dict[str, dict[str, str | int]]:
    try:
        return dict(json.loads(records().read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def digest(exercise: Exercise) -> str:
    """Returns a digest of the code between the markers; empty if there is none."""
    try:
        text = (manifest.ROOT / exercise.file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    written = regions.written(text, exercise.file)[0].get(exercise.id)
    return hashlib.sha256("\n".join(written.lines).encode()).hexdigest() if written else ""


def keep(tried: Attempt) -> None:
    """Records the result of an attempt."""
    passed = f"{len(tried.tests) - len(tried.failed)} of {len(tried.tests)} tests pass"
    state = SOLVED if tried.solved else tried.headline if tried.trouble else passed
    every = known() | {tried.exercise.id: {"digest": digest(tried.exercise), "state": state, "points": earned([tried]), "most": possible([tried])}}
    records().parent.mkdir(parents=True, exist_ok=True)
    records().write_text(json.dumps(every, indent=2) + "\n", encoding="utf-8")


def to_be_done() -> list[Exercise]:
    """Returns the exercises that this copy handed out unsolved."""
    handed_out = manifest.ROOT / attempt.AS_HANDED_OUT
    files = json.loads(handed_out.read_text(encoding="utf-8")) if handed_out.exists() else None
    return [e for e in manifest.load() if files is None or e.file in files]


def state_of(exercise: Exercise, entries: Mapping[str, Mapping[str, str | int]]) -> str:
    entry = entries.get(exercise.id)
    if not entry:
        return NOT_TRIED
    return str(entry["state"]) if entry["digest"] == digest(exercise) else CHANGED


def first_open(exercises: Iterable[Exercise]) -> Exercise | None:
    """Returns the first unsolved exercise, in the book's order."""
    entries = known()
    return next((e for e in exercises if state_of(e, entries) != SOLVED), None)


def next_step(exercises: Iterable[Exercise]) -> str:
    e = first_open(exercises)
    if not e:
        return "All exercises here are solved."
    minutes = f", about {e.minutes} minutes" if e.minutes else ""
    return (f"Next: {e.id}, {e.kind}: {e.title} ({e.points} points{minutes}; {state_of(e, known())})\n"
            f"  read  {manifest.page_of(manifest.ROOT, e.chapter)}\n  edit  {e.file}\n  run   ./flashbook course try {e.id}")


def set_here(exercise: Exercise) -> str:
    """Returns the variant that this copy tests, in parentheses; empty if there is none."""
    name = variant.name(manifest.ROOT, variant.for_this_copy(manifest.ROOT, exercise))
    return f" ({name})" if name else ""


def table(exercises: Sequence[Exercise]) -> str:
    entries, lines = known(), []
    for chapter in dict.fromkeys(e.chapter for e in exercises):
        own = [e for e in exercises if e.chapter == chapter]
        states = {e.id: state_of(e, entries) for e in own}
        points = {id: int(entries[id]["points"]) if state not in (NOT_TRIED, CHANGED) else 0 for id, state in states.items()}
        left = sum(e.minutes or 0 for e in own if states[e.id] != SOLVED)
        hidden = sum(test.points for e in own for test in e.tests if test.hidden and states[e.id] == SOLVED)
        lines.append(f"{chapter}: {sum(points.values())} of {sum(e.points for e in own)} points"
                     + (f", hidden tests are worth {hidden} more" if hidden else "") + (f", about {left} minutes left" if left else ""))
        lines += [f"  {e.id:<18} {points[e.id]:>3}/{e.points:<3} {f'{e.minutes} min' if e.minutes else '':>7}  {states[e.id]}{set_here(e)}"
                  for e in own]
    return "\n".join(lines)


def main() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # course status | head
    exercises = to_be_done()
    print(next_step(exercises) if sys.argv[1:] == ["next"] else f"{table(exercises)}\n\n{next_step(exercises)}")


if __name__ == "__main__":
    main()
