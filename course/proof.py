"""Grades known answers: an exercise as handed out must get no points, its solution all of them, and each wrong solution the points listed in
course/solutions/NN_name/wrong.json:

    {"exercise": "ch01-scores", "what": "forgets the mask",     a plausible mistake
     "replace": "visible_keys(query)", "with": "seqlen_k",      as a change to the solution: every occurrence is replaced
     "mode": "traced",                                          optional: the simulator's mode that detects it, if lazy does not
     "variant": "dilated, capped",                              optional: the variant to try, if the exercise has any; default: the first
     "points": 8}                                               the points that it must get

Stubs and solutions run in all modes, solutions also in all variants. With a second seed, every hidden test must test something different and
still give the solution and one wrong solution of each exercise the same verdict. Programs are compiled with -O1, since compiling takes half of
the time.
"""
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from course import gtest, manifest, modes, variant
from course.grade import Grader
from course.regions import Fault, Written
from course.sandbox import Limits
from course.score import Score
from course.solution import answer

SEED, OTHER_SEED = 20260101, 7  # arbitrary, but fixed: a wrong solution's points may depend on the inputs
AT_LEAST = 10  # wrong solutions per chapter
OF_CAPSTONE = 3  # wrong solutions per capstone, which take longer
QUICK = ("-O1",)
SOLVED = "solved"  # prefix of Case.what for the book's solutions


@dataclass
class Case:
    exercise: manifest.Exercise
    what: str
    written: Written | None  # None: as handed out
    points: int
    modes: tuple[str, ...] | None = (modes.LAZY,)  # None: all
    reseeded: bool = False  # whether a second seed must give the same verdicts
    programs: dict[str, Path] = field(default_factory=dict)  # cache shared by cases with the same text


def wrong_solutions(root: Path, exercises: Sequence[manifest.Exercise]) -> list[Case]:
    """Returns the cases in all chapters' wrong.json; raises a Fault for an invalid entry."""
    by_id = {e.id: e for e in exercises}
    found: list[Case] = []
    for chapter in dict.fromkeys(e.chapter for e in exercises):
        file = root / "course/solutions" / chapter / "wrong.json"
        where = file.relative_to(root)
        entries = manifest.read_list(file, root) if file.exists() else []
        least = OF_CAPSTONE * sum(e.kind == manifest.CAPSTONE for e in exercises if e.chapter == chapter) or AT_LEAST
        if len(entries) < least:
            raise Fault(f"{where}: it has {len(entries)} wrong solutions: at least {least} are needed")
        for entry in entries:
            mode, of_whom = entry.pop("mode", modes.LAZY), entry.pop("variant", "")
            if mode not in modes.MODES:
                raise Fault(f"{where}: {entry.get('what')}: mode is {mode}: use one of {', '.join(modes.MODES)}")
            if set(entry) != {"exercise", "what", "replace", "with", "points"} or by_id.get(entry["exercise"]) is None:
                raise Fault(f"{where}: {entry.get('what')}: it has {', '.join(entry)}: an entry needs an existing exercise, what, replace, with and "
                            "points, and may have mode and variant")
            exercise = by_id[entry["exercise"]]
            if of_whom:
                if exercise.variant is None or of_whom not in variant.names(root):
                    raise Fault(f"{where}: {entry['what']}: {exercise.id} has no variant {of_whom}")
                exercise = replace(exercise, variant=variant.names(root).index(of_whom))
            solution = "\n".join(answer(root, exercise).lines)
            if entry["replace"] not in solution:
                raise Fault(f"{where}: {entry['what']}: the solution of {exercise.id} has no '{entry['replace']}'")
            lines = solution.replace(entry["replace"], entry["with"]).split("\n")
            is_first = all(case.exercise.id != exercise.id for case in found)
            found.append(Case(exercise, entry["what"], Written(lines), entry["points"], tuple(dict.fromkeys((modes.LAZY, mode))), is_first))
    return found


def cases(root: Path, listed: Sequence[manifest.Exercise], exercises: Sequence[manifest.Exercise]) -> Iterator[Case]:
    for exercise in exercises:
        yield Case(exercise, "as handed out", None, 0, modes=None)
        solved = Case(exercise, SOLVED, answer(root, exercise), exercise.points, None, True)
        yield solved
        if exercise.variant is not None:
            yield from (replace(solved, exercise=replace(exercise, variant=i), what=f"{SOLVED}, {name}", modes=(modes.LAZY,), reseeded=False)
                        for i, name in enumerate(variant.names(root)) if i != exercise.variant)
    ids = {exercise.id for exercise in exercises}
    yield from (case for case in wrong_solutions(root, listed) if case.exercise.id in ids)


def why_wrong(result: Score, case: Case) -> str:
    """Returns the fault in a result; empty if it is as expected."""
    exercise, solved = case.exercise, case.what.startswith(SOLVED)
    if result.solved and not solved:
        return f"{exercise.id}, {case.what}: every test passes"
    if result.points == case.points and result.solved == solved:
        return ""
    failed = [f"{test.name}: {result.verdicts[test.name].message}" for test in exercise.tests
              if test.name in result.verdicts and not result.passed(test)]
    return f"{exercise.id}, {case.what}: {result.points} points, not {case.points}. " + (result.trouble or "\n".join(failed))


def seed_faults(root: Path, exercises: Sequence[manifest.Exercise]) -> Iterator[str]:
    """Checks that each hidden test observes different values of the book's solution under another seed: its sizes or its inputs are drawn."""
    with tempfile.TemporaryDirectory() as folder:
        for exercise in exercises:
            for test in (test for test in exercise.tests if test.hidden):
                seen = set()
                for seed in (SEED, OTHER_SEED):
                    record = Path(folder) / "record"
                    gtest.run(root / "build/sim/bin" / exercise.solved_program, test.name,
                              {**modes.environment(exercise, modes.LAZY, seed), "FLASHBOOK_OBSERVED_WRITE": str(record)})
                    seen.add(record.read_bytes())
                if len(seen) < 2:
                    yield f"{exercise.id}: the hidden test {test.name} is the same for every seed: draw a size (tests/exercises/exercise.h)"


def prove(root: Path, listed: Sequence[manifest.Exercise], exercises: Sequence[manifest.Exercise]) -> Iterator[str]:
    """Yields a fault for each case of `exercises`, a part of those `listed`, that does not get the expected points."""
    def graded(case: Case) -> tuple[Score, list[str]]:
        """Returns (the score, hidden tests on whose verdict the two seeds differ); all tests of predictions draw sizes
        and count as hidden."""
        result = grader.exercise(case.exercise, case.written, chosen_modes=case.modes, programs=case.programs)
        if not case.reseeded or result.trouble:
            return result, []
        hidden = [test for test in case.exercise.tests if test.hidden or case.exercise.kind == "predict"]
        again = grader.exercise(replace(case.exercise, tests=hidden), case.written, chosen_modes=case.modes or (modes.LAZY,), seed=OTHER_SEED,
                                programs=case.programs)
        return result, [test.name for test in hidden if result.passed(test) != again.passed(test)]

    yield from seed_faults(root, exercises)
    patient = Limits(seconds=30)  # the machine may be busy
    with Grader(root, exercises, SEED, patient, QUICK) as grader, ThreadPoolExecutor(os.cpu_count()) as pool:
        tried = list(cases(root, listed, exercises))
        for case, (result, differ) in zip(tried, pool.map(graded, tried)):
            print(f"{case.exercise.id:<20} {case.what:<50} {result.points:>3} of {case.exercise.points:>3}", flush=True)
            fault = why_wrong(result, case)
            if fault:
                yield fault
            if differ:
                yield f"{case.exercise.id}, {case.what}: the seeds {SEED} and {OTHER_SEED} differ in {', '.join(differ)}"
