"""The modes of the simulator, in which the tests of a kernel run. What passes in the first runs in the others."""
import re
from pathlib import Path

from course import variant
from course.gtest import Verdict
from course.manifest import Exercise

LAZY = "lazy"
MODES = (LAZY, "eager", "random", "traced")
TWIN = "_traced"  # what the name of a program ends with that finds races and accesses out of bounds; it is lazy


def of(exercise: Exercise, root: Path, has_twin: bool) -> tuple[str, ...]:
    """A kernel runs on the simulated machine in all its modes; code for the CPU and numbers know none."""
    if exercise.kind == "predict" or not (root / "tests" / "exercises" / f"{exercise.id}.cu").exists():
        return MODES[:1]
    return tuple(mode for mode in MODES if mode != "traced" or has_twin)


def suffix(mode: str) -> str:
    return TWIN if mode == "traced" else ""


def environment(exercise: Exercise, mode: str, seed: int) -> dict[str, str]:
    """What a test's program has to be told. `seed`: of its inputs and, in random mode, of its order."""
    of_variant = {} if exercise.variant is None else {variant.VARIABLE: str(exercise.variant)}
    return {**of_variant, "FLASHBOOK_SIM_THREADS": "1", "FLASHBOOK_SIM_ASYNC": LAZY if mode == "traced" else mode, "FLASHBOOK_COURSE_SEED": str(seed),
            "FLASHBOOK_SIM_SEED": str((seed or 1) if mode == "random" else 0)}


def may_be_traced(failed: Verdict) -> bool:
    """Whether the traced twin could say why a test failed: of one that never ends, is slow, or ends in a deadlock it knows no more. That says who
    waits for what, and a race beside it would send its reader to other lines."""
    return not failed.status and not re.search(r"\b(dead|live)lock in block ", failed.message)


def beyond(traced: Verdict, known: Verdict) -> str:
    """What the traced twin says of a test beyond what the test itself said: the first race, accesses out of bounds."""
    known_lines = known.message.splitlines()
    said = [line for line in traced.message.splitlines() if line not in known_lines]
    races = [i for i, line in enumerate(said) if "data race" in line]
    return "\n".join(said[:races[1]] if len(races) > 1 else said)


def told(verdict: Verdict, mode: str, before: Verdict | None) -> Verdict:
    """A verdict that says in which mode a test failed, where that is not the first, and what was counted in the first. `before`: of the mode
    before."""
    if before:
        verdict.counts = before.counts
    if not verdict.passed and mode != LAZY:
        verdict.message += f"\nIn the simulator's mode {mode}; it passes in {LAZY}."
    return verdict
