"""Who handed in what, as it comes from Moodle, Canvas and Gradescope or from a teacher's own folders; who did not; and who was late."""
import csv
import math
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from course import regions, similar, submission
from course.manifest import CAPSTONE, Exercise
from course.regions import Fault
from course.sandbox import one_line
from course.score import Grade
from course.solution import answer

LARGEST_ZIP = 2 << 30  # bytes of a class, unpacked
# Names that say whose it is: Moodle's folders and Gradescope's; files of Canvas, and of Moodle without folders, which lie beside each other.
MOODLE = re.compile(r"(?P<name>.+)_(?P<id>\d+)_assignsubmission_\w+")
GRADESCOPE = re.compile(r"(?P<name>submission_(?P<id>\d+))")
FILES = (re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_file_.*"), re.compile(r"(?P<name>[^_]+)(?:_(?P<late>LATE))?_(?P<id>\d+)_\d+_.+"))
ROSTER = ("id", "name", "submission", "handed_in")


@dataclass(frozen=True)
class HandedIn:
    """What one student handed in."""
    title: str
    place: Path | None  # a folder or a zip; None: nothing was handed in
    files: tuple[str, ...] = ()  # those of the place that are theirs; none: all
    id: str = ""
    days_late: int | None = 0  # None: late, and nobody says how much
    person: str = ""  # a name that a roster has for whoever it is


def unpacked(word: str, scratch: Path) -> Path:
    """A folder as it is, and a zip as a folder in `scratch`, of the same name."""
    path = Path(word)
    try:
        if path.is_dir():
            return path
        if not zipfile.is_zipfile(path):
            raise Fault(f"{one_line(word)} is no folder and no zip: a submission is a student's tree, or a folder with the files that were edited")
        folder = scratch / path.stem
        with zipfile.ZipFile(path) as archive:
            members = [one for one in archive.infolist() if one.file_size <= submission.LARGEST_ZIP]
            if sum(one.file_size for one in members) > LARGEST_ZIP:
                raise Fault(f"{one_line(word)} has more than {LARGEST_ZIP >> 30} GB: unpack it, and name the folder")
            archive.extractall(folder, members)
    except (OSError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
        raise Fault(f"{one_line(word)} cannot be read: {one_line(getattr(error, 'strerror', None) or str(error))}") from None
    return folder


def ids_in(place: Path, exercises: Iterable[Exercise]) -> set[str]:
    """Exercises whose markers stand in a file of their file's name."""
    wanted = {Path(e.file).name for e in exercises}
    read = submission.reader(place)
    try:
        return {id for name in submission.plain_files(place) if Path(name).name in wanted for id in read(name)[0]}
    except Fault:
        return set()  # what is wrong with it is said where it is graded


def children(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if not path.is_symlink() and (path.is_dir() or path.suffix == ".zip") and path.name != "__MACOSX")


def is_class(place: Path, exercises: Sequence[Exercise]) -> bool:
    """Whether a folder holds what several handed in: a learning platform named it, or two of its folders or zips answer one exercise."""
    if (place / "chapters").exists():
        return False  # a student's tree
    inside = children(place)
    if any(MOODLE.fullmatch(path.name) or GRADESCOPE.fullmatch(path.name) for path in inside):
        return True
    answered = [id for path in inside for id in ids_in(path, exercises)]
    return len(set(answered)) < len(answered)


def of_files(place: Path) -> list[HandedIn]:
    """A learning platform's files in a folder, by student; none if they are not those of several."""
    found: dict[str, HandedIn] = {}
    for path in sorted(place.iterdir()):
        whose = next(filter(None, (names.fullmatch(path.name) for names in FILES)), None)
        if whose and path.is_file() and not path.is_symlink():
            names = [f"{path.stem}{submission.IN_ZIP}{name}" for name in submission.files_in_zip(path)] if path.suffix == ".zip" else [path.name]
            before = found.get(whose["id"], HandedIn(whose["name"], place, id=whose["id"]))
            is_late = whose.groupdict().get("late")
            found[whose["id"]] = replace(before, files=(*before.files, *names), days_late=None if is_late else before.days_late)
    return list(found.values()) if len(found) > 1 else []


def handed_in(words: Sequence[str], exercises: Sequence[Exercise], scratch: Path, single: bool = False) -> list[HandedIn]:
    """All that is handed in in these folders and zips: a student's, or a class's, if they are not all `single`."""
    found: list[HandedIn] = []
    for word in words:
        place = unpacked(word, scratch)
        if files := [] if single else of_files(place):
            found += files
        elif not single and is_class(place, exercises):
            for path in children(place):
                whose = MOODLE.fullmatch(path.name) or GRADESCOPE.fullmatch(path.name)
                found.append(HandedIn(whose["name"], path, id=whose["id"]) if whose else HandedIn(path.name.removesuffix(".zip"), path))
        else:
            found.append(HandedIn(place.resolve().name, place))
    return found


def read_roster(file: Path) -> list[dict[str, str]]:
    """The lines of a CSV with a column id and, if there are, name, submission (what it is called) and handed_in (a date and a time)."""
    try:
        with open(file, encoding="utf-8-sig", newline="") as stream:
            lines = [{key: (value or "").strip() for key, value in line.items() if key in ROSTER} for line in csv.DictReader(stream)]
    except OSError as error:
        raise Fault(f"{file} cannot be read: {error.strerror}") from None
    if not lines or "id" not in lines[0]:
        raise Fault(f"{file}: its first line names columns, id and any of {', '.join(ROSTER[1:])}, and a line for each student follows")
    return lines


def moment(text: str, what: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise Fault(f"{what} is '{one_line(text)}': write it as 2026-12-01T23:59") from None


def days_late(when: str, due: datetime) -> int:
    """Days that have begun since then."""
    at = moment(when, "handed_in")
    if (at.tzinfo is None) != (due.tzinfo is None):
        raise Fault(f"handed_in is {at} and --due is {due}: give both a time zone, or neither")
    return max(0, math.ceil((at - due) / timedelta(days=1)))


def plain(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())


def by_name(roster: Iterable[Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    """The roster's lines by each name that they give."""
    return {plain(name): line for line in roster for name in (line.get("submission"), line.get("name"), line["id"]) if name}


def unknown(found: Iterable[HandedIn], roster: Sequence[Mapping[str, str]]) -> list[str]:
    """Those of whom the roster has no line."""
    lines = by_name(roster)
    return [one.title for one in found if plain(one.title) not in lines and plain(one.id) not in lines]


def with_roster(found: Iterable[HandedIn], roster: Sequence[Mapping[str, str]], due: datetime | None) -> list[HandedIn]:
    """Each with the id, the name and the days late that the roster knows, and those who handed in nothing."""
    lines = by_name(roster)
    everybody, there = [], set()
    for one in found:
        line = lines.get(plain(one.title)) or lines.get(plain(one.id))
        if line:
            there.add(line["id"])
            when = line.get("handed_in")
            one = replace(one, id=line["id"], person=line.get("name") or "", days_late=days_late(when, due) if due and when else one.days_late)
        everybody.append(one)
    return everybody + [HandedIn(line.get("name") or line["id"], None, id=line["id"]) for line in roster if line["id"] not in there]


def alike(grades: Iterable[Grade], exercises: Iterable[Exercise], root: Path) -> list[tuple[float, str, str, str]]:
    """Pairs whose answers are alike, the most alike first: (how much, exercise, one, the other). The other may be the book's solution."""
    found = []
    for e in exercises:
        known = similar.runs(regions.written((root / e.file).read_text(encoding="utf-8"), e.file)[0][e.id].lines)
        texts = {grade.name: similar.runs(grade.answers[e.id].lines, known) for grade in grades if e.id in grade.answers}
        texts["the book"] = (similar.of_the_book(root) if e.kind == CAPSTONE else similar.runs(answer(root, e).lines, known))
        titles = list(texts)
        for i, one in enumerate(titles):
            for other in titles[i + 1:]:
                value = similar.likeness(texts[one], texts[other])
                if value >= similar.ALIKE:
                    found.append((value, e.id, one, other))
    return sorted(found, reverse=True)
