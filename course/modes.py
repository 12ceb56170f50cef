"""The simulator's modes in which a kernel's tests run. Tests that pass in the first mode run in the others, too."""
import re
from pathlib import Path

from course import variant
from course.gtest import Verdict
from course.manifest import Exercise

LAZY = "lazy"
MODES = (LAZY, "eager", "random", "traced")
TWIN = "_traced"  # suffix of programs that detect races and accesses out of bounds; they run in lazy mode


def of(exercise: Exercise, root: Path, has_twin: bool) -> tuple[str, ...]:
    """Returns the modes of an exercise: all for a kernel, the first for CPU code and predictions."""
    if exercise.kind == "predict" or not (root / "tests" / "exercises" / f"{exercise.id}.cu").exists():
        return MODES[:1]
    return tuple(mode for mode in MODES if mode != "traced" or has_twin)


def suffix(mode: str) -> str:
    return TWIN if mode == "traced" else ""


def environment(exercise: Exercise, mode: str, seed: int) -> dict[str, str]:
    """Returns the environment variables for a test. `seed`: for its inputs and, in random mode, for the order of
    events."""
    of_variant = {} if exercise.variant is None else {variant.VARIABLE: str(exercise.variant)}
    return {**of_variant, "FLASHBOOK_SIM_THREADS": "1", "FLASHBOOK_SIM_ASYNC": LAZY if mode == "traced" else mode, "FLASHBOOK_COURSE_SEED": str(seed),
            "FLASHBOOK_SIM_SEED": str((seed or 1) if mode == "random" else 0)}


def may_be_traced(failed: Verdict) -> bool:
    """Returns whether the traced twin could explain a failure. It has nothing to add to a test that was stopped, was slow or ended in a
    deadlock: the message of a deadlock already names the warps that wait and what they wait for, and a race would lead
    to other lines."""
    return not failed.status and not re.search(r"\b(dead|live)lock in block ", failed.message)


def beyond(traced: Verdict, known: Verdict) -> str:
    """Returns the lines that the traced twin adds to a test's own message, up to the first race."""
    known_lines = known.message.splitlines()
    said = [line for line in traced.message.splitlines() if line not in known_lines]
    races = [i for i, line in enumerate(said) if "data race" in line]
    return "\n".join(said[:races[1]] if len(races) > 1 else said)


def told(verdict: Verdict, mode: str) -> Verdict:
    """Returns the verdict with the mode added to its message, unless it is the first."""
    if not verdict.passed and mode != LAZY:
        verdict.message += f"\nIn the simulator's mode {mode}; it passes in {LAZY}."
    return verdict
