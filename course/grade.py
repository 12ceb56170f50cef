#!/usr/bin/env python3
"""Grades submissions: python3 course/grade.py SUBMISSION... [NN|ID ...]; --help lists the options. A submission is a student's tree, a folder with
the edited files, or a zip of either; a folder or a zip may also hold a whole class. Writes report.md and Gradescope's results.json for each, and
tables for a class; if interrupted, run the same command again to resume. Exit code 0 if everything was graded,
regardless of the score; 2 if the request makes no sense; 3 if the grader itself fails, for example because this machine
has no sandbox."""
import argparse
import hashlib
import itertools
import json
import os
import pickle
import re
import secrets
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that python3 course/grade.py finds the packages

from course import classroom, gate, gtest, manifest, modes, report, submission, variant
from course.attempt import NO_PROGRAM
from course.classroom import HandedIn
from course.judge import Judge
from course.regions import Broken, Fault, Written
from course.sandbox import Limits, Sandbox, one_line, printable, remove
from course.score import NOT_HANDED_IN, Grade, Score
from course.toolchain import Toolchain

LONGEST = 120  # limit on the name of a folder or a file
ENDLESS = 2  # number of tests of an exercise, or compilations of a submission, that may time out before the others are skipped
SECONDS = 12  # seconds of one core per exercise, a first estimate: solved exercises took 8 to 15


class Grader:
    """Grades with the book's own build, in temporary folders. A context manager."""

    def __init__(self, root: Path, exercises: Sequence[manifest.Exercise], seed: int, limits: Limits = Limits(), options: Sequence[str] = (),
                 class_seed: str = "", is_unfenced: bool = False) -> None:
        """`options`: additional compiler options. `class_seed`: draws each student's variant. `is_unfenced`: grades even if the sandbox has
        holes."""
        self.root, self.exercises, self.seed, self.limits, self.options = Path(root).resolve(), exercises, seed, limits, options
        self.class_seed, self.is_unfenced = class_seed, is_unfenced
        self.build = self.root / "build" / "sim"
        self.endless = 0  # number of exercises of this submission whose compilation timed out
        for exercise in exercises:
            if not (self.build / "bin" / exercise.solved_program).exists():
                raise Broken(f"{self.build / 'bin' / exercise.solved_program} does not exist: ./flashbook course grade builds it")

    def __enter__(self) -> "Grader":
        self.sandbox = Sandbox()
        self.sandbox.prove()
        if self.sandbox.missing and not self.is_unfenced:
            raise Broken(f"nothing was graded: on this machine, {self.sandbox.lack}. The sandbox needs Linux 5.13 or newer with Landlock and "
                         "seccomp, in a container, too. --unfenced grades anyway, and every report mentions it")
        top = self.folder = Path(tempfile.mkdtemp(prefix="flashbook-grade-")).resolve()
        top.chmod(0o711)
        self.private, self.programs = top / "private", top / "programs"
        for folder in (self.private, self.programs):  # the compiler must be able to enter it
            folder.mkdir()
            folder.chmod(0o711)
        self.judge = Judge(self.build, self.sandbox, self.private, self.limits)
        self.toolchain = Toolchain(self.root, self.build, self.private / "tree", self.sandbox, self.options)
        return self

    def __exit__(self, *_: object) -> None:
        remove(self.folder)

    def exercise(self, exercise: manifest.Exercise, answer: Written | None, gated: bool = True, chosen_modes: Sequence[str] | None = None,
                 seed: int | None = None, programs: dict[str, Path] | None = None) -> Score:
        """Compiles and tests one exercise with an answer; None: as handed out. `gated`: whether the gate reads the answer first. `chosen_modes`:
        the simulator's modes to run instead of all. `seed`: replaces that of the grader. `programs`: a cache of programs built from this answer."""
        if answer and gated:
            objections = gate.objections(answer.lines, answer.line)
            if objections:
                return Score(exercise, "\n".join(f"{exercise.file}:{line}: {text}" for line, text in objections[:10]),
                             headline="the grader refuses it")
        result, endless = Score(exercise), 0
        seed = self.seed if seed is None else seed
        programs = {} if programs is None else programs
        for mode in chosen_modes or modes.of(exercise, self.root, self.toolchain.knows(exercise.solved_program + modes.TWIN)):
            if result.verdicts and not result.points:
                break  # the exercise has no points left to lose
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
                verdict = gtest.Verdict(False, f"not run: {ENDLESS} earlier tests did not end")
                if endless < ENDLESS:
                    verdict = self.judge.run(programs[suffix], exercise, test.name, mode, seed, exercise.patience)
                seconds = exercise.patience * self.limits.seconds
                is_endless = not verdict.passed and time.monotonic() - start >= seconds
                patience = exercise.patience * gtest.PATIENCE
                if is_endless and not endless and self.judge.run(programs[suffix], exercise, test.name, mode, seed, patience).passed:
                    verdict = gtest.slow(seconds)
                endless += is_endless
                result.verdicts[test.name] = modes.told(verdict, mode)
        if chosen_modes is None:
            result.why = self.race(exercise, answer, result, programs)
        return result

    def race(self, exercise: manifest.Exercise, answer: Written | None, result: Score, programs: Mapping[str, Path]) -> str:
        """Returns the traced twin's additional message for the first visible test that failed; empty if there is
        none."""
        failed = next((test.name for test in exercise.tests if not result.passed(test) and not test.hidden), "")
        if not failed or not answer or not modes.may_be_traced(result.verdicts[failed]):
            return ""
        if "traced" not in modes.of(exercise, self.root, self.toolchain.knows(exercise.solved_program + modes.TWIN)):
            return ""
        program = programs.get(modes.TWIN) or self.program(exercise, answer, modes.TWIN)[0]
        verdict = self.judge.run(program, exercise, failed, "traced", self.seed) if program else gtest.Verdict(True)
        return "" if verdict.passed else modes.beyond(verdict, result.verdicts[failed])

    def program(self, exercise: manifest.Exercise, answer: Written | None, suffix: str) -> tuple[Path | None, str]:
        """Returns (the program, in a folder where tests may run it; why there is none)"""
        if self.endless >= ENDLESS:
            return None, f"not compiled: the compiler did not finish {ENDLESS} other exercises of this submission"
        program = self.toolchain.exercise(exercise, answer, Path(tempfile.mkdtemp(prefix=f"{exercise.id}-", dir=self.private)), suffix)
        self.endless += program.endless
        if not program.path:
            return None, f"{NO_PROGRAM}:\n{program.log}"
        shelf = Path(tempfile.mkdtemp(prefix=f"{exercise.id}-", dir=self.programs))
        shelf.chmod(0o711)
        program.path.chmod(0o755)
        return program.path.rename(shelf / "program"), ""

    def clear(self) -> None:
        """Deletes everything compiled from a submission: a class would fill the disk."""
        for folder in (*self.private.glob("c*-*"), *self.programs.iterdir()):
            remove(folder)
        self.endless = 0

    def set_to(self, one: HandedIn) -> list[manifest.Exercise]:
        """Returns the exercises with a student's variants."""
        return [variant.for_student(self.root, e, variant.Student(self.class_seed, one.id or one.title)) for e in self.exercises]

    def answers(self, exercises: Sequence[manifest.Exercise], answers: Mapping[str, Written], missing: Mapping[str, str], jobs: int) -> list[Score]:
        """Returns the scores of the exercises; `answers` and `missing` as returned by submission.answers."""
        def result_of(exercise: manifest.Exercise) -> Score:
            if exercise.id in missing:
                return Score(exercise, missing[exercise.id], is_there=False, headline=NOT_HANDED_IN)
            return self.exercise(exercise, answers[exercise.id])

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(result_of, exercises))


def grade(grader: Grader, one: HandedIn, title: str, jobs: int) -> Grade:
    start = time.monotonic()
    if not one.place:
        raise Fault("nothing was handed in")
    answers, missing = submission.answers(one.place, grader.exercises, one.files)
    results = grader.answers(grader.set_to(one), answers, missing, jobs)
    grader.clear()
    return Grade(title, results, grader.seed, grader.sandbox.lack, time.monotonic() - start, answers=answers)


def grade_or_say_why(grader: Grader, one: HandedIn, title: str, jobs: int) -> Grade:
    """Grades like grade(), but a faulty submission gets a Grade with the reason, so that the rest of the class is
    graded."""
    try:
        return grade(grader, one, title, jobs)
    except Broken:
        raise
    except Exception as error:
        if not isinstance(error, Fault):
            traceback.print_exc()
        why = str(error) if isinstance(error, Fault) else f"the grader failed on it ({type(error).__name__}): tell your teacher"
        grader.clear()
        return Grade(title, [Score(exercise, printable(why), is_there=not isinstance(error, Fault)) for exercise in grader.set_to(one)], grader.seed,
                     grader.sandbox.lack, 0)


NAMES = re.compile(rf"\d\d|ch\d\d-[a-z0-9-]+|{manifest.CAPSTONE}(?:-[a-z0-9-]+)?")  # chapters and exercises; other words are submissions


def chosen(exercises: Sequence[manifest.Exercise], names: Sequence[str]) -> list[manifest.Exercise]:
    """Returns the exercises with these chapters or ids; without names all except capstones."""
    for name in names:
        if name not in {e.number for e in exercises} | {e.id for e in exercises}:
            raise Fault(f"unknown name {name}: give one of {', '.join(sorted({e.number for e in exercises}))}, or an id from an exercises.json")
    return [e for e in exercises if (e.number in names or e.id in names if names else e.kind != manifest.CAPSTONE)]


def only(exercises: Sequence[manifest.Exercise], test: str) -> list[manifest.Exercise]:
    """Returns the exercises that have this test, without their other tests."""
    found = [replace(e, tests=[one for one in e.tests if test in (one.name, one.title)]) for e in exercises]
    if not any(e.tests for e in found):
        known = ", ".join(one.name for e in exercises[:1] for one in e.tests)
        raise Fault(f"--only {test}: no test has this name or title. Choose one from exercises.json (such as {known}), "
                    "and name its exercise in the command")
    return [e for e in found if e.tests]


def titles(handed_in: Sequence[HandedIn]) -> list[str]:
    """Returns a distinct title for each. If several folders share the hand-out's name, the parent folder's name is
    prepended."""
    alike = len({one.title for one in handed_in}) < len(handed_in)
    found: list[str] = []
    for one in handed_in:
        above = f"{one.place.resolve().parent.name}-" if alike and one.place and not one.files else ""
        title = one_line(above + one.title).replace("/", "-") or "unnamed"
        numbered = (f"{title}-{number}" for number in itertools.count(len(found)))  # names may differ only in unprintable characters
        found.append(title if title not in found else next(name for name in numbered if name not in found))
    return found


def short(name: str) -> str:
    """Returns a name that every file system accepts: a long one is cut and ends with a digest."""
    whole = name.encode()
    return name if len(whole) <= LONGEST else f"{whole[:LONGEST - 17].decode(errors='ignore')}-{hashlib.sha256(whole).hexdigest()[:16]}"


def places(titles: Sequence[str], names: Sequence[str], out: str | None) -> list[Path]:
    """Returns the folder for each submission's reports: `out` itself for a single submission, else a folder in `out` or build/grades, named after
    the title and the graded chapters."""
    if out and len(titles) == 1:
        return [Path(out)]
    base = Path(out) if out else manifest.ROOT / "build" / "grades"
    return [base / short("-".join([title, *names])) for title in titles]


def replaced(file: Path, data: bytes) -> None:
    """Writes a file whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_name(f".{file.name}").write_bytes(data)
    file.with_name(f".{file.name}").replace(file)


def write(graded: Grade, out: Path) -> None:
    replaced(out / "report.md", report.markdown(graded).encode())
    replaced(out / "results.json", (json.dumps(report.gradescope(graded), indent=2) + "\n").encode())


@dataclass
class Progress:
    """A class's finished grades, in a file that is deleted at the end. `what`: the request; only the same request can resume it."""
    file: Path
    what: tuple[object, ...]
    seed: int
    grades: dict[str, tuple[str, Grade]] = field(default_factory=dict)  # keyed by title, with a digest of the submission

    @classmethod
    def resumed(cls, file: Path, what: tuple[object, ...], seed: int | None) -> "Progress":
        """Returns the progress of an interrupted run, or a new one, with a random seed unless one is given."""
        try:
            left: Progress = pickle.loads(file.read_bytes())  # safe, since submissions cannot write here
            if (left.file, left.what) == (file, what) and seed in (None, left.seed):
                return left
        except Exception:  # the file does not exist, or another version of the book wrote it
            pass
        return cls(file, what, secrets.randbelow(1 << 31) if seed is None else seed)

    def known(self, title: str, digest: str) -> Grade | None:
        of_title = self.grades.get(title)
        return of_title[1] if of_title and of_title[0] == digest else None

    def keep(self, title: str, digest: str, graded: Grade) -> None:
        self.grades[title] = (digest, graded)
        replaced(self.file, pickle.dumps(self))


def digest_of(one: HandedIn, exercises: Sequence[manifest.Exercise]) -> str:
    """Returns a digest of the graded part of a submission."""
    try:
        found = repr(submission.answers(one.place, exercises, one.files)) if one.place else ""
    except Exception as error:  # grading reports it
        found = repr(error)
    return hashlib.sha256(f"{one.id}\n{found}".encode(errors="replace")).hexdigest()


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"


def expected(exercises: Sequence[manifest.Exercise], jobs: int) -> float:
    """Returns an estimate of the seconds per submission, before any was graded."""
    return SECONDS * len(exercises) / min(jobs, len(exercises), os.cpu_count() or 1)


def tables(grades: Sequence[Grade], names: Sequence[str]) -> dict[str, str]:
    """Returns a class's tables, by the ends of their file names."""
    title = " ".join(["Flashbook", *names, *["(unfenced)"] * bool(grades[0].lack)])
    return {".csv": report.table(grades), "-canvas.csv": report.canvas(grades, title), "-moodle.csv": report.moodle(grades, title)}


def grade_class(grader: Grader, handed_in: Sequence[HandedIn], names: Sequence[str], arguments: argparse.Namespace, progress: Progress) -> None:
    called, jobs = titles(handed_in), max(1, arguments.jobs)
    places_of, grades = places(called, names, arguments.out), []
    base = places_of[0].parent / short("-".join(["grades", *names]))
    digests = [digest_of(one, grader.exercises) for one in handed_in]
    left = sum(not progress.known(title, digest) for title, digest in zip(called, digests))
    each, spent, count = expected(grader.exercises, jobs), 0.0, 0
    if len(handed_in) > 1:
        before = f", {len(handed_in) - left} of them graded before the interruption" * (left < len(handed_in))
        print(f"{len(handed_in)} submissions{before}. About {minutes(each * left)}; if interrupted, run the same command again to resume.",
              flush=True)
    for number, (one, title, digest, out) in enumerate(zip(handed_in, called, digests, places_of), 1):
        graded = progress.known(title, digest)
        is_new = graded is None
        if graded is None:
            start = time.monotonic()
            graded = grade_or_say_why(grader, one, title, jobs)
            spent, count, left = spent + time.monotonic() - start, count + 1, left - 1
        graded.student, graded.person = one.id, one_line(one.person)
        grades.append(graded)
        if arguments.only:
            print(report.text(graded, shows_hidden=True))
            continue
        write(graded, out)
        if len(handed_in) == 1:
            print(f"{report.text(graded)}\n\n{out / 'report.md'} has the messages; {out / 'results.json'} is for Gradescope.")
            continue
        if is_new:
            progress.keep(title, digest, graded)
            for end, text in tables(grades, names).items():
                replaced(base.with_name(base.name + end), text.encode())
        more = f", about {minutes(left * spent / count)} more" if is_new and left else ""
        print(f"[{number}/{len(handed_in)}] {report.line(graded)}: {one_line(str(out))}{more}", flush=True)
    if len(handed_in) > 1 and not arguments.only:
        pairs = report.pairs(classroom.alike(grades, grader.exercises, manifest.ROOT))
        for end, text in {**tables(grades, names), "-alike.csv": pairs}.items():
            replaced(base.with_name(base.name + end), text.encode())
        progress.file.unlink(missing_ok=True)
        print(f"\n{base}.csv has everyone's points, -canvas.csv and -moodle.csv are for import, {base.name}-alike.csv lists similar answers.")
        if grader.sandbox.lack:
            print(f"Note: {report.unfenced(grader.sandbox.lack)}")


def grade_all(words: Sequence[str], exercises: Sequence[manifest.Exercise], names: Sequence[str], scratch: Path,
              arguments: argparse.Namespace) -> None:
    handed_in = classroom.handed_in(words, exercises, scratch, arguments.single)
    if arguments.student and len(handed_in) > 1:
        raise Fault(f"--student needs a single submission, not {len(handed_in)}: give a class's ids with --roster")
    if arguments.student:
        handed_in = [replace(one, id=arguments.student) for one in handed_in]
    roster = classroom.read_roster(arguments.roster) if arguments.roster else []
    if arguments.roster:
        for title in classroom.unknown(handed_in, roster):
            print(f"warning: {arguments.roster} has no line for {one_line(title)}: put this name into its column submission", file=sys.stderr)
        handed_in = classroom.with_roster(handed_in, roster)
    base = Path(arguments.out) if arguments.out else manifest.ROOT / "build" / "grades"
    what = (tuple(words), repr(exercises), arguments.class_seed, arguments.unfenced)
    progress = Progress.resumed(base / short("-".join(["grades", *names, "unfinished"])), what, arguments.seed)
    with Grader(manifest.ROOT, exercises, progress.seed, class_seed=arguments.class_seed, is_unfenced=arguments.unfenced) as grader:
        grade_class(grader, handed_in, names, arguments, progress)


def main() -> None:
    parser = argparse.ArgumentParser(prog="course grade", description="Grades submissions.")
    parser.add_argument("what", nargs="+", help="submissions: students' trees, folders with the edited files, zips of these, or folders and zips "
                        "of a class; and what to grade: two-digit chapters, or exercise ids (default: all chapters)")
    parser.add_argument("--single", action="store_true", help="treat each of them as the work of one student, whatever it contains")
    parser.add_argument("--roster", type=Path, help="a CSV with a column id and any of name, submission; the tables also list students "
                        "on it who submitted nothing")
    parser.add_argument("--class", dest="class_seed", default="", metavar="TEXT", help="the seed that you gave your class: with a student's id it "
                        "draws the variant of capstone-variant")
    parser.add_argument("--student", metavar="ID", help="the student's id, for a single submission without a roster")
    parser.add_argument("--out", help="folder for report.md and results.json (default: build/grades/NAME); for a class, the parent of its folders")
    parser.add_argument("--seed", type=int, help="the seed of an earlier grading, to repeat it on the same inputs (default: a new one)")
    parser.add_argument("--only", metavar="TEST", help="run only this test, given by name or title, show its message even if it is hidden, and write "
                        "no files")
    parser.add_argument("--unfenced", action="store_true", help="grade even if this machine's sandbox is missing or leaky; every report mentions it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="exercises to grade at the same time (default: one per core)")
    arguments = parser.parse_args()
    names = [word for word in arguments.what if NAMES.fullmatch(word)]
    words = [word for word in arguments.what if word not in names]
    try:
        exercises = chosen(manifest.load(), names)
        if not words:
            raise Fault("no submission is given: name a student's tree, or a folder with the edited files")
        if arguments.only:
            exercises = only(exercises, arguments.only)
        with tempfile.TemporaryDirectory(prefix="flashbook-class-") as scratch:
            grade_all(words, exercises, names, Path(scratch), arguments)
    except Fault as fault:
        print(f"course grade: {one_line(str(fault))}", file=sys.stderr)
        sys.exit(3 if isinstance(fault, Broken) else 2)
    except KeyboardInterrupt:
        print("\ncourse grade: interrupted: run the same command again to resume", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
