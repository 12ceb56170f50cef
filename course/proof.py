"""What has to hold of the exercises when they are graded: as handed out they get no point, solved they get all, and each wrong solution
in chapters/NN_name/exercises/wrong.json gets what is written there:

    {"exercise": "ch01-scores", "what": "forgets the mask",     what someone might get wrong,
     "replace": "visible_keys(query)", "with": "seqlen_k",      as a change of the solution: every place where the text stands
     "points": 8}                                               and what that gets
"""
import os
from concurrent.futures import ThreadPoolExecutor

import manifest
import regions
from grade import Grader
from regions import Fault, Written

SEED = 20260101  # any; the points of what is wrong may depend on the inputs
AT_LEAST = 10  # wrong solutions a chapter


def region_of(root, exercise):
    text = (root / exercise.file).read_text(encoding="utf-8")
    return next(region for region in regions.regions(text, exercise.file) if region.id == exercise.id)


def wrong_solutions(root, exercises):
    """[(exercise, what is wrong with it, Written, points)] of all chapters; a Fault for what is not as it should be."""
    by_id, found = {e.id: e for e in exercises}, []
    for chapter in dict.fromkeys(e.chapter for e in exercises):
        file = root / "chapters" / chapter / "exercises" / "wrong.json"
        where = file.relative_to(root)
        entries = manifest.read_list(file, root) if file.exists() else []
        if len(entries) < AT_LEAST:
            raise Fault(f"{where}: {len(entries)} wrong solutions; a chapter has {AT_LEAST} at least")
        for entry in entries:
            if set(entry) != {"exercise", "what", "replace", "with", "points"} or by_id.get(entry["exercise"]) is None:
                raise Fault(f"{where}: {entry.get('what')}: it takes an exercise of the chapter, what, replace, with and points")
            exercise = by_id[entry["exercise"]]
            solution = "\n".join(region_of(root, exercise).solution)
            if entry["replace"] not in solution:
                raise Fault(f"{where}: {entry['what']}: the solution of {exercise.id} has no '{entry['replace']}'")
            lines = solution.replace(entry["replace"], entry["with"]).split("\n")
            found.append((exercise, entry["what"], Written(lines, 1), entry["points"]))
    return found


def cases(root, exercises):
    for exercise in exercises:
        yield exercise, "as handed out", None, 0
        yield exercise, "solved", Written(region_of(root, exercise).solution, 1), exercise.points
    yield from wrong_solutions(root, exercises)


def why_wrong(result, what, points):
    """What is wrong with a result, as a fault; empty if nothing is."""
    exercise = result.exercise
    if what != "solved" and result.is_right:
        return f"{exercise.id}, {what}: every test passes"
    if result.points == points and not (what == "solved" and not result.is_right):
        return ""
    failed = [f"{test.name}: {result.verdicts[test.name].message}" for test in exercise.tests
              if test.name in result.verdicts and not result.passed(test)]
    return f"{exercise.id}, {what}: {result.points} points, not {points}. " + (result.trouble or "\n".join(failed))


def prove(root, exercises):
    """A fault for each case that gets other points than it should."""
    with Grader(root, exercises, SEED) as grader, ThreadPoolExecutor(os.cpu_count()) as pool:
        def run(case):
            exercise, _, written, _ = case
            return grader.exercise(exercise, written)

        listed = list(cases(root, exercises))
        for (exercise, what, _, points), result in zip(listed, pool.map(run, listed)):
            print(f"{exercise.id:<20} {what:<50} {result.points:>3} of {exercise.points:>3}", flush=True)
            fault = why_wrong(result, what, points)
            if fault:
                yield fault
