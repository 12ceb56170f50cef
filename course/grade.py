#!/usr/bin/env python3
"""Grades submissions: python3 course/grade.py SUBMISSION... [NN|ID ...]; --help has the options. A submission is a student's tree, or a folder
with the files that were edited, or a zip of one; or a folder or a zip of several. Writes report.md and Gradescope's results.json for each, and
tables if there are several. Exit code 0 if they could be graded, whatever the grade; 2 if what is asked for makes no sense; 3 if the grader
itself is at fault."""
import argparse
import hashlib
import json
import os
import re
import secrets
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the packages, for python3 course/grade.py

from course import classroom, gate, gtest, local_memory, manifest, modes, report, similar, submission, times, variant
from course.attempt import NO_PROGRAM
from course.classroom import HandedIn
from course.judge import Judge, take_record
from course.regions import Broken, Fault, Written
from course.sandbox import Limits, Sandbox, gpu_devices, one_line, own_folder, printable, remove
from course.score import NOT_HANDED_IN, Grade, Score
from course.toolchain import Toolchain

LONGEST = 120  # bytes of a name of a folder or a file
ENDLESS = 2  # tests of an exercise, or compilations of a submission, that run into the limit of time; no other runs after them


class Grader:
    """The book's own build, and folders for what is compiled with it. To be used in a `with`."""

    def __init__(self, root: Path, exercises: Sequence[manifest.Exercise], seed: int, limits: Limits = Limits(), options: Sequence[str] = (),
                 class_seed: str = "") -> None:
        """`options`: for the compiler, beside those of the build. `class_seed`: draws each student's variant."""
        self.root, self.exercises, self.seed, self.limits, self.options = Path(root).resolve(), exercises, seed, limits, options
        self.class_seed = class_seed
        self.build = self.root / "build" / "sim"
        self.endless = 0  # programs of this submission with which the compiler did not end
        self.timing: dict[Path, Toolchain] = {}  # by the build that it is like
        for exercise in exercises:
            if not (self.build / "bin" / exercise.solved_program).exists():
                raise Broken(f"there is no {self.build / 'bin' / exercise.program}: ./flashbook course grade builds it")

    def __enter__(self) -> "Grader":
        self.folder = Path(tempfile.mkdtemp(prefix="flashbook-grade-")).resolve()
        top = self.folder
        top.chmod(0o711)
        self.private, self.programs = top / "private", top / "programs"
        for folder in (self.private, self.programs):  # where there are no mounts, the compiler has to get to what it compiles
            folder.mkdir()
            folder.chmod(0o711)
        self.sandbox = Sandbox()
        self.sandbox.prove()
        self.judge = Judge(self.build, self.sandbox, self.private, self.limits)
        self.toolchain = Toolchain(self.root, self.build, self.private / "tree", self.sandbox, self.options)
        return self

    def __exit__(self, *_: object) -> None:
        remove(self.folder)

    def exercise(self, exercise: manifest.Exercise, answer: Written | None, gated: bool = True, chosen_modes: Sequence[str] | None = None,
                 seed: int | None = None, programs: dict[str, Path] | None = None) -> Score:
        """Compiles and tests one exercise with an answer, or as it is handed out if there is none. `gated`: whether the gate reads the
        answer first. `chosen_modes`: of the simulator, if not all that the exercise knows. `seed`: if not the grader's. `programs`: what was
        compiled of the same answer before, and will be now."""
        if answer and gated:
            objections = gate.objections(answer.lines, answer.line)
            if objections:
                return Score(exercise, "\n".join(f"{exercise.file}:{line}: {text}" for line, text in objections[:10]),
                             headline="the grader does not take it")
        result, endless = Score(exercise), 0
        seed = self.seed if seed is None else seed
        programs = {} if programs is None else programs
        for mode in chosen_modes or modes.of(exercise, self.root, self.toolchain.knows(exercise.solved_program + modes.TWIN)):
            if result.verdicts and not result.points:
                break  # nothing is left to lose
            suffix = modes.suffix(mode)
            if suffix not in programs:
                program, result.trouble = self.program(exercise, answer, suffix)
                if not program:
                    result.headline = NO_PROGRAM
                    return result
                programs[suffix] = program
            for test in exercise.tests:
                if mode != modes.LAZY and not result.passed(test):
                    continue
                start = time.monotonic()
                verdict = gtest.Verdict(False, f"not run: {ENDLESS} tests before it did not end")
                if endless < ENDLESS:
                    verdict = self.judge.run(programs[suffix], exercise, test.name, mode, seed, exercise.patience)
                seconds = exercise.patience * self.limits.seconds
                is_endless = not verdict.passed and time.monotonic() - start >= seconds
                patience = exercise.patience * gtest.PATIENCE
                if is_endless and not endless and self.judge.run(programs[suffix], exercise, test.name, mode, seed, patience).passed:
                    verdict = gtest.slow(seconds)
                endless += is_endless
                result.verdicts[test.name] = modes.told(verdict, mode, result.verdicts.get(test.name))
        if chosen_modes is None:
            result.why = self.race(exercise, answer, result, programs)
            if exercise.kind == manifest.CAPSTONE and answer and result.solved:
                result.local = local_memory.of_answer(self.toolchain, exercise, answer, self.private)
        return result

    def timed(self, exercise: manifest.Exercise, answer: Written, build: Path, length: int = times.LENGTH_ON_A_GPU,
              turns: times.Turns | None = None) -> list[times.Times]:
        """The times of a right answer beside the book's, of programs like those in `build`; times.Untimed if there can be none. One at a time:
        what runs beside it would be measured, too."""
        if not (build / "bin" / exercise.solved_program).exists():
            raise times.Untimed(f"there is no {build.name} build of {exercise.solved_program}, which takes a GPU and a CUDA toolkit")
        if build not in self.timing:
            (self.private / build.name).mkdir()
            self.timing[build] = Toolchain(self.root, build, self.private / build.name / "tree", self.sandbox)
        folder = Path(tempfile.mkdtemp(prefix="clocked-", dir=self.private))
        made = self.timing[build].exercise(exercise, answer, folder)
        if not made.path:
            raise times.Untimed(f"{build.name} build: {NO_PROGRAM}: {made.log.splitlines()[0] if made.log else ''}")
        program = self.shelved(exercise, made.path)

        def run(words: Sequence[str], environment: Mapping[str, str]) -> str:
            with own_folder(program.parent) as own:
                outcome = self.sandbox.run([program, *words], own, Limits(seconds=times.SECONDS, memory=16 << 30),
                                           {**environment, times.FILE: str(own / "times")}, visible=[program, *gpu_devices()])
                kept = folder / "times"
                if outcome.code or outcome.trouble or not take_record(own / "times", kept):
                    times.failed("the answer's program", outcome.output + outcome.trouble)
                return kept.read_text(encoding="utf-8", errors="replace")

        return times.of_answer(exercise, run, build, length, turns=turns)

    def race(self, exercise: manifest.Exercise, answer: Written | None, result: Score, programs: Mapping[str, Path]) -> str:
        """What the exercise's traced twin says of the first test that failed and that students have; empty if there is neither."""
        failed = next((test.name for test in exercise.tests if not result.passed(test) and not test.hidden), "")
        if not failed or not answer or not modes.may_be_traced(result.verdicts[failed]):
            return ""
        if "traced" not in modes.of(exercise, self.root, self.toolchain.knows(exercise.solved_program + modes.TWIN)):
            return ""
        program = programs.get(modes.TWIN) or self.program(exercise, answer, modes.TWIN)[0]
        verdict = self.judge.run(program, exercise, failed, "traced", self.seed) if program else gtest.Verdict(True)
        return "" if verdict.passed else modes.beyond(verdict, result.verdicts[failed])

    def program(self, exercise: manifest.Exercise, answer: Written | None, suffix: str) -> tuple[Path | None, str]:
        """(the program, on a shelf where its tests may run it; why there is none)"""
        if self.endless >= ENDLESS:
            return None, f"not compiled: the compiler did not end with {ENDLESS} other exercises of this submission"
        program = self.toolchain.exercise(exercise, answer, Path(tempfile.mkdtemp(prefix=f"{exercise.id}-", dir=self.private)), suffix)
        self.endless += program.endless
        if not program.path:
            return None, f"{NO_PROGRAM}:\n{program.log}"
        return self.shelved(exercise, program.path), ""

    def shelved(self, exercise: manifest.Exercise, program: Path) -> Path:
        """A program where other users may run it."""
        shelf = Path(tempfile.mkdtemp(prefix=f"{exercise.id}-", dir=self.programs))
        shelf.chmod(0o711)
        program.chmod(0o755)
        return program.rename(shelf / "program")

    def clear(self) -> None:
        """Forgets a submission. What was compiled of it goes, since a class fills a disk."""
        for folder in (*self.private.glob("c*-*"), *self.programs.iterdir()):
            remove(folder)
        self.endless = 0

    def set_to(self, one: HandedIn) -> list[manifest.Exercise]:
        """The exercises, with a student's variants."""
        return [variant.of_student(self.root, e, variant.Student(self.class_seed, one.id or one.title)) for e in self.exercises]

    def answers(self, exercises: Sequence[manifest.Exercise], answers: Mapping[str, Written], missing: Mapping[str, str], jobs: int) -> list[Score]:
        """The results of the exercises; `answers` and `missing` as submission.answers says."""
        def result_of(exercise: manifest.Exercise) -> Score:
            if exercise.id in missing:
                return Score(exercise, missing[exercise.id], is_there=False, headline=NOT_HANDED_IN)
            return self.exercise(exercise, answers[exercise.id])

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(result_of, exercises))


def time_right_ones(grader: Grader, results: Sequence[Score], answers: Mapping[str, Written], build: Path) -> None:
    """Times the kernels that are right, or notes why it cannot."""
    for result in results:
        if result.solved and result.exercise.id in answers and times.is_timed(result.exercise, grader.root):
            try:
                result.times = grader.timed(result.exercise, answers[result.exercise.id], build)
            except times.Untimed as why:
                result.untimed = one_line(str(why))


def grade(grader: Grader, one: HandedIn, title: str, jobs: int, timed_build: Path | None = None) -> Grade:
    """The Grade of a submission. `timed_build`: what right kernels are timed with."""
    start = time.monotonic()
    if not one.place:
        raise Fault("nothing was handed in")
    answers, missing = submission.answers(one.place, grader.exercises, one.files)
    results = grader.answers(grader.set_to(one), answers, missing, jobs)
    if timed_build:
        time_right_ones(grader, results, answers, timed_build)
    grader.clear()
    like = {e.id: similar.share_of_the_book(grader.root, answers[e.id].lines) for e in grader.exercises
            if e.kind == manifest.CAPSTONE and e.id in answers}
    return Grade(title, results, grader.seed, grader.sandbox.missing, time.monotonic() - start, answers=answers, like_the_book=like,
                 quizzes=submission.quizzes(one.place, grader.root, sorted({e.number for e in grader.exercises}), one.files))


def grade_or_say_why(grader: Grader, one: HandedIn, title: str, jobs: int, timed_build: Path | None = None) -> Grade:
    """The Grade of one submission of many: whatever is wrong with it, those after it are graded."""
    try:
        return grade(grader, one, title, jobs, timed_build)
    except Broken:
        raise
    except Exception as error:
        if not isinstance(error, Fault):
            traceback.print_exc()
        why = str(error) if isinstance(error, Fault) else f"the grader failed on it ({type(error).__name__}): tell your teacher"
        grader.clear()
        return Grade(title, [Score(exercise, printable(why), is_there=not isinstance(error, Fault)) for exercise in grader.set_to(one)], grader.seed,
                     grader.sandbox.missing, 0)


NAMES = re.compile(rf"\d\d|ch\d\d-[a-z0-9-]+|{manifest.CAPSTONE}(?:-[a-z0-9-]+)?")  # of chapters and exercises; all else is a submission


def chosen(exercises: Sequence[manifest.Exercise], names: Sequence[str]) -> list[manifest.Exercise]:
    """The exercises of chapters and those named by their id; all of the chapters if there is no name."""
    for name in names:
        if name not in {e.number for e in exercises} | {e.id for e in exercises}:
            raise Fault(f"there is no {name}: chapters {', '.join(sorted({e.number for e in exercises}))} have exercises, and "
                        "exercises.json has their names")
    return [e for e in exercises if (e.number in names or e.id in names if names else e.kind != manifest.CAPSTONE)]


def titles(handed_in: Sequence[HandedIn]) -> list[str]:
    """What to call each. A folder's own name may be that of the hand-out; then the one above it tells whose it is."""
    alike = len({one.title for one in handed_in}) < len(handed_in)
    found: list[str] = []
    for one in handed_in:
        above = f"{one.place.resolve().parent.name}-" if alike and one.place and not one.files else ""
        title = one_line(above + one.title).replace("/", "-") or "unnamed"
        found.append(title if title not in found else f"{title}-{len(found)}")  # names may differ in what is not printed
    return found


def short(name: str) -> str:
    """A name that every file system takes: a long one ends with a digest."""
    whole = name.encode()
    return name if len(whole) <= LONGEST else f"{whole[:LONGEST - 17].decode(errors='ignore')}-{hashlib.sha256(whole).hexdigest()[:16]}"


def places(titles: Sequence[str], names: Sequence[str], out: str | None) -> list[Path]:
    """The folder for each submission's reports: below build/grades, by its title and what is graded; `out`, if there is one, for the only
    submission, or else below it."""
    if out and len(titles) == 1:
        return [Path(out)]
    base = Path(out) if out else manifest.ROOT / "build" / "grades"
    return [base / short("-".join([title, *names])) for title in titles]


def write(graded: Grade, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "report.md").write_text(report.markdown(graded), encoding="utf-8")
    (out / "results.json").write_text(json.dumps(report.gradescope(graded), indent=2) + "\n", encoding="utf-8")


def grade_all(words: Sequence[str], exercises: Sequence[manifest.Exercise], names: Sequence[str], seed: int, scratch: Path,
              arguments: argparse.Namespace) -> None:
    due = classroom.moment(arguments.due, "--due") if arguments.due else None
    handed_in = classroom.handed_in(words, exercises, scratch, arguments.single)
    if arguments.student and len(handed_in) > 1:
        raise Fault(f"--student names one, and {len(handed_in)} handed in: a roster has the ids of a class")
    if arguments.student:
        handed_in = [replace(one, id=arguments.student) for one in handed_in]
    roster = classroom.read_roster(arguments.roster) if arguments.roster else []
    if due and not any(line.get("handed_in") for line in roster):
        print("warning: --due takes no points off: only a roster's column handed_in says when somebody handed in", file=sys.stderr)
    if arguments.roster:
        for title in classroom.unknown(handed_in, roster):
            print(f"warning: {arguments.roster} has no line for {one_line(title)}: its column submission takes that name", file=sys.stderr)
        handed_in = classroom.with_roster(handed_in, roster, due)
    called = titles(handed_in)
    places_of, grades = places(called, names, arguments.out), []
    with Grader(manifest.ROOT, exercises, seed, class_seed=arguments.class_seed) as grader:
        for one, title, out in zip(handed_in, called, places_of):
            graded = grade_or_say_why(grader, one, title, max(1, arguments.jobs), manifest.ROOT / "build/gpu" if arguments.times else None)
            graded.student, graded.person, graded.days_late, graded.percent = one.id, one_line(one.person), one.days_late, arguments.late
            grades.append(graded)
            write(graded, out)
            print(report.text(graded) if len(handed_in) == 1 else f"{report.line(graded)}: {one_line(str(out))}", flush=True)
    if len(handed_in) == 1:
        print(f"\n{places_of[0] / 'report.md'} has the messages, {places_of[0] / 'results.json'} is what Gradescope reads.")
        return
    what = short("-".join(["grades", *names]))
    tables = {f"{what}.csv": report.table(grades), f"{what}-canvas.csv": report.canvas(grades, " ".join(["Flashbook", *names])),
              f"{what}-moodle.csv": report.moodle(grades, " ".join(["Flashbook", *names])),
              f"{what}-alike.csv": report.pairs(classroom.alike(grades, exercises, manifest.ROOT))}
    if any(report.is_counted(result) for result in grades[0].results):
        tables[f"{what}-ranking.html"] = report.ranking(grades, "Capstones")
    for name, text in tables.items():
        (places_of[0].parent / name).write_text(text, encoding="utf-8")
    ranking = f"; {what}-ranking.html, a page with the scores" if f"{what}-ranking.html" in tables else ""
    print(f"\n{places_of[0].parent} has the points of all, {what}.csv; the same for Canvas and Moodle; {what}-alike.csv, answers that are "
          f"alike{ranking}.")


def main() -> None:
    parser = argparse.ArgumentParser(prog="course grade", description="Grades submissions.")
    parser.add_argument("what", nargs="+", help="submissions: students' trees, folders with the files that were edited, zips of these, or folders "
                        "and zips of several; and what to grade: chapters, two digits each, or exercises by their names (default: all)")
    parser.add_argument("--single", action="store_true", help="each of them is one student's, whatever is in it")
    parser.add_argument("--roster", type=Path, help="a CSV with a column id and any of name, submission, handed_in; who is in it and handed in "
                        "nothing is in the tables, too")
    parser.add_argument("--class", dest="class_seed", default="", metavar="TEXT", help="the seed that, with a student's id, draws the variant of "
                        "capstone-variant: the text that you gave your class")
    parser.add_argument("--student", metavar="ID", help="whose submission it is, if it is one and no roster says so")
    parser.add_argument("--due", help="2026-12-01T23:59: days late are counted from here to the roster's handed_in")
    parser.add_argument("--late", type=float, default=0, metavar="PERCENT", help="of the points that each day late costs that has begun")
    parser.add_argument("--out", help="folder for report.md and results.json (default: build/grades/NAME); of several submissions, for their folders")
    parser.add_argument("--seed", type=int, help="inputs of an earlier grading, to repeat it (default: new ones)")
    parser.add_argument("--times", action="store_true", help="time right kernels on this machine's GPU, in turn with the book's best, beside the "
                        "points; takes build/gpu")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="exercises at a time (default: one a core)")
    arguments = parser.parse_args()
    names = [word for word in arguments.what if NAMES.fullmatch(word)]
    words = [word for word in arguments.what if word not in names]
    seed = secrets.randbelow(1 << 31) if arguments.seed is None else arguments.seed
    try:
        exercises = chosen(manifest.load(), names)
        if not words:
            raise Fault("name a submission: a student's tree, or a folder with the files that were edited")
        with tempfile.TemporaryDirectory(prefix="flashbook-class-") as scratch:
            grade_all(words, exercises, names, seed, Path(scratch), arguments)
    except Fault as fault:
        print(f"course grade: {one_line(str(fault))}", file=sys.stderr)
        sys.exit(3 if isinstance(fault, Broken) else 2)


if __name__ == "__main__":
    main()
