"""Formats grades: for a terminal, as Markdown, as Gradescope's results.json
(https://gradescope-autograders.readthedocs.io/en/latest/specs/), and as tables of a class."""
import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from course import gtest, manifest, variant
from course.manifest import Exercise
from course.sandbox import one_line, printable
from course.score import Grade, Score

TRACED = "The first test that failed, traced:"
REPEAT = "FLASHBOOK_COURSE_SEED={seed}{variant} ./flashbook course try {id}"


def points_of(grade: Grade) -> str:
    return f"{grade.points} of {grade.most} points"


def again(grade: Grade, exercise: Exercise) -> str:
    """Returns the command that reruns an exercise on the inputs that were graded."""
    of_whom = "" if exercise.variant is None else f" {variant.VARIABLE}={exercise.variant}"
    return REPEAT.format(seed=grade.seed, variant=of_whom, id=exercise.id)


def summary(grade: Grade) -> str:
    """Returns one line with the name and the points."""
    return f"{grade.name}: {points_of(grade)}"


def line(grade: Grade) -> str:
    """Returns the summary; without any answer also the reason, since the teacher may have named the wrong folder."""
    nothing = not any(result.is_there for result in grade.results)
    return summary(grade) + (f" ({one_line(grade.results[0].trouble)})" if nothing else "")


def unfenced(lack: str) -> str:
    return f"this was graded without a complete sandbox: {lack}"


def notes_of(result: Score, shows_hidden: bool = False) -> dict[str, str]:
    """Returns the message for each test, by its name. A cause that several tests share is explained once."""
    if result.trouble:
        return {test.name: "" for test in result.exercise.tests}  # already reported for the whole exercise
    notes, causes = {}, gtest.Causes()
    for test in result.exercise.tests:
        verdict = result.verdicts[test.name]
        if verdict.passed:
            notes[test.name] = "It passes, but a guard fails: something that worked before is broken." if result.broken_guards and test.points else ""
        elif test.hidden and not shows_hidden:
            notes[test.name] = "A hidden test: only its title is shown."
        else:
            notes[test.name] = printable(causes.told(verdict.message, test.title))
    return notes


def rows(result: Score, shows_hidden: bool = False) -> Iterator[tuple[str, str, str, str]]:
    """Yields (mark, title, points as text, message) of each test."""
    notes = notes_of(result, shows_hidden)
    for test in result.exercise.tests:
        title = test.title + (" (hidden)" if test.hidden else "") + (" (guard)" if not test.points else "")
        points = f"{result.points_of(test)}/{test.points}" if test.points else ""
        yield ("pass" if result.passed(test) else "FAIL"), title, points, notes[test.name]


def headline(result: Score) -> tuple[str, str]:
    e = result.exercise
    of_whom = "" if e.variant is None else f" ({variant.name(manifest.ROOT, e)})"
    return f"{e.id}: {e.title}{of_whom}", f"{result.points}/{e.points}"


def indented(text: str, by: str) -> str:
    return "".join(f"{by}{line}\n" for line in text.splitlines())


def text(grade: Grade, shows_hidden: bool = False) -> str:
    lines = ""
    for result in grade.results:
        title, points = headline(result)
        lines += f"\n{title:<60} {points:>7}\n"
        if result.trouble:
            lines += indented(printable(result.trouble), "    ")
            continue
        for mark, name, score, message in rows(result, shows_hidden):
            lines += f"  {mark}  {name:<54} {score:>7}\n"
            if mark == "FAIL":
                lines += indented(message, "        ")
        if result.why:
            lines += f"  why?  {TRACED}\n{indented(result.why, '        ')}"
    if not any(result.is_there for result in grade.results):
        lines += "\nNote: this folder has no answer to these exercises. Is it the right one, and does it belong to a single student?\n"
    return (f"{lines}\n{summary(grade)}. Graded in {grade.seconds:.0f} s, seed {grade.seed}."
            + (f"\nNote: {unfenced(grade.lack)}" if grade.lack else ""))


def cell(value: object) -> object:
    """Returns a value that a spreadsheet does not take for a formula, whatever a student named it."""
    return f"'{value}" if isinstance(value, str) and value != "-" and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def as_csv(lines: Sequence[Sequence[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([cell(value) for value in line] for line in lines)
    return out.getvalue()


def table(grades: Sequence[Grade]) -> str:
    """Returns a CSV with the maximum points and a line per submission: the points of each exercise (- if not handed in), their sum, each
    student's variant, and the seed of the inputs."""
    most, exercises = grades[0].most, [r.exercise for r in grades[0].results]
    varied = [i for i, e in enumerate(exercises) if e.variant is not None]
    lines: list[list[object]] = [["submission", "id", "status", *(e.id for e in exercises), "points",
                                  *(f"variant of {exercises[i].id}" for i in varied), "seed"],
                                 ["the most", "", "", *(e.points for e in exercises), most, *("" for _ in varied), ""]]
    for grade in grades:
        points = [r.points if r.is_there else "-" for r in grade.results]
        variants = [variant.name(manifest.ROOT, grade.results[i].exercise) for i in varied]
        lines.append([grade.name, grade.student, grade.status, *points, grade.points, *variants, grade.seed])
    return as_csv(lines)


def canvas(grades: Sequence[Grade], title: str) -> str:
    """Returns a CSV for Canvas's gradebook; the IDs come from the names of the files that Canvas exports."""
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", title]
    possible = ["    Points Possible", "", "", "", "", grades[0].most]
    return as_csv([head, possible, *([grade.full_name, grade.student, "", "", "", grade.points] for grade in grades)])


def moodle(grades: Sequence[Grade], title: str) -> str:
    """Returns a CSV for Moodle's gradebook, mapped by "ID number"."""
    return as_csv([["ID number", "Full name", title, "Feedback"], *([g.student, g.full_name, g.points, g.status] for g in grades)])


def pairs(found: Sequence[tuple[float, str, str, str]]) -> str:
    """Returns a CSV of similar answers, for a teacher to review."""
    return as_csv([["alike", "exercise", "one", "the other"], *([f"{value:.2f}", *rest] for value, *rest in found)])


def markdown(grade: Grade) -> str:
    parts = [f"# {summary(grade)}\n", f"Inputs of seed {grade.seed}.\n", *[f"Note: {unfenced(grade.lack)}.\n"] * bool(grade.lack)]
    for result in grade.results:
        title, points = headline(result)
        parts.append(f"## {title}: {points}\n")
        if result.trouble:
            parts.append(f"```text\n{fenced(printable(result.trouble))}\n```\n")
            continue
        table = ["| | test | points |", "|---|---|---|"]
        table += [f"| {mark} | {name} | {score} |" for mark, name, score, _ in rows(result)]
        parts.append("\n".join(table) + "\n")
        for _, name, _, message in rows(result):
            if message:
                parts.append(f"{name}:\n\n```text\n{fenced(message)}\n```\n")
        if result.why:
            parts.append(f"{TRACED}\n\n```text\n{fenced(result.why)}\n```\n")
        if not result.solved:
            parts.append(f"Hint: {result.exercise.hint}\n")
            if result.exercise.kind != "predict":  # students' tests have fixed sizes
                parts.append(f"The same inputs again: `{again(grade, result.exercise)}`\n")
    return "\n".join(parts)


def fenced(text: str) -> str:
    """Returns text that cannot end the code fence around it."""
    return text.replace("```", "'''")


def gradescope(grade: Grade) -> dict[str, Any]:
    again = f"To run an exercise's tests on the same inputs on your machine: {REPEAT.format(seed=grade.seed, variant='', id='ID')}"
    tests: list[dict[str, Any]] = []
    for number, result in enumerate(grade.results, 1):
        exercise, notes = result.exercise, notes_of(result)
        if result.trouble:
            tests.append({"name": f"{exercise.id}: {result.headline}", "number": f"{number}.0", "output": printable(result.trouble),
                          "output_format": "text", "status": "failed", "tags": [exercise.id]})
        for minor, test in enumerate(exercise.tests, 1):
            entry: dict[str, Any] = {"name": f"{exercise.id}: {test.title}", "number": f"{number}.{minor}", "output": notes[test.name],
                     "output_format": "text", "status": "passed" if result.passed(test) else "failed", "tags": [exercise.id]}
            if test.points:
                entry |= {"score": result.points_of(test), "max_score": test.points}
            tests.append(entry)
        if result.why:
            tests.append({"name": f"{exercise.id}: why?", "number": f"{number}.{len(exercise.tests) + 1}", "output": f"{TRACED}\n{result.why}",
                          "output_format": "text", "tags": [exercise.id]})
    return {"score": grade.points, "execution_time": round(grade.seconds),
            "output": f"{points_of(grade)}. {again}" + (f"\nNote: {unfenced(grade.lack)}." if grade.lack else ""),
            "output_format": "text", "test_output_format": "text", "test_name_format": "text", "visibility": "visible",
            "stdout_visibility": "hidden", "tests": tests, "extra_data": {"seed": grade.seed}}
