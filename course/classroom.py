"""Finds a class's submissions in exports of Moodle, Canvas and Gradescope or in a teacher's own folders, and matches them with a roster: who
submitted nothing."""
import csv
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from course import regions, similar, submission
from course.manifest import CAPSTONE, Exercise
from course.regions import Fault
from course.sandbox import one_line
from course.score import Grade
from course.solution import answer

LARGEST_ZIP = 2 << 30  # limit on a class's unpacked size
# Names that identify the student: folders from Moodle and Gradescope; plain files from Moodle without folders, and from Canvas.
MOODLE = re.compile(r"(?P<name>.+)_(?P<id>\d+)_assignsubmission_\w+")
GRADESCOPE = re.compile(r"(?P<name>submission_(?P<id>\d+))")
FILES = (re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_file_.*"), re.compile(r"(?P<name>[^_]+)(?:_LATE)?_(?P<id>\d+)_\d+_.+"))
ROSTER = ("id", "name", "submission")


@dataclass(frozen=True)
class HandedIn:
    """One student's submission."""
    title: str
    place: Path | None  # a folder or a zip; None if nothing was handed in
    files: tuple[str, ...] = ()  # the student's files in `place`; empty means all
    id: str = ""
    person: str = ""  # name of the student on the roster


def unpacked(word: str, scratch: Path) -> Path:
    """Returns a folder itself; a zip unpacked into a folder of the same name in `scratch`."""
    path = Path(word)
    try:
        if path.is_dir():
            return path
        if not zipfile.is_zipfile(path):
            raise Fault(f"{one_line(word)} is neither a folder nor a zip: name a student's tree, a folder with the edited files, or a zip of these")
        folder = scratch / path.stem
        with zipfile.ZipFile(path) as archive:
            members = [one for one in archive.infolist() if one.file_size <= submission.LARGEST_ZIP]
            if sum(one.file_size for one in members) > LARGEST_ZIP:
                raise Fault(f"{one_line(word)} has more than {LARGEST_ZIP >> 30} GB: unpack it and name the folder")
            if any(one.compress_type not in submission.METHODS for one in members):
                raise Fault(f"{one_line(word)} has a compression method other than stored or deflated: unpack it and name the folder")
            archive.extractall(folder, members)
    except Fault:
        raise
    except Exception as error:  # each method raises its own exceptions
        raise Fault(f"{one_line(word)} cannot be read: {one_line(getattr(error, 'strerror', None) or str(error))}") from None
    return folder


def ids_in(place: Path, exercises: Iterable[Exercise]) -> set[str]:
    """Returns the ids of the exercises whose markers are in a file of the expected name."""
    wanted = {Path(e.file).name for e in exercises}
    read = submission.reader(place)
    try:
        return {id for name in submission.plain_files(place) if Path(name).name in wanted for id in read(name)[0]}
    except Fault:
        return set()  # the grader reports the fault


def children(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if not path.is_symlink() and (path.is_dir() or path.suffix == ".zip") and path.name != "__MACOSX")


def is_class(place: Path, exercises: Sequence[Exercise]) -> bool:
    """Returns whether a folder holds several students' submissions: a learning platform named them, or two of them answer the same
    exercise."""
    if (place / "chapters").exists():
        return False  # a student's tree
    inside = children(place)
    if any(MOODLE.fullmatch(path.name) or GRADESCOPE.fullmatch(path.name) for path in inside):
        return True
    answered = [id for path in inside for id in ids_in(path, exercises)]
    return len(set(answered)) < len(answered)


def grouped_files(place: Path) -> list[HandedIn]:
    """Returns a learning platform's plain files in a folder, grouped by student; empty unless there are several
    students."""
    found: dict[str, HandedIn] = {}
    for path in sorted(place.iterdir()):
        whose = next(filter(None, (names.fullmatch(path.name) for names in FILES)), None)
        if whose and path.is_file() and not path.is_symlink():
            names = [f"{path.stem}{submission.IN_ZIP}{name}" for name in submission.files_in_zip(path)] if path.suffix == ".zip" else [path.name]
            before = found.get(whose["id"], HandedIn(whose["name"], place, id=whose["id"]))
            found[whose["id"]] = replace(before, files=(*before.files, *names))
    return list(found.values()) if len(found) > 1 else []


def handed_in(words: Sequence[str], exercises: Sequence[Exercise], scratch: Path, single: bool = False) -> list[HandedIn]:
    """Returns all submissions in these folders and zips. `single`: each is from one student; otherwise it may be
    from a class."""
    found: list[HandedIn] = []
    for word in words:
        place = unpacked(word, scratch)
        if files := [] if single else grouped_files(place):
            found += files
        elif not single and is_class(place, exercises):
            for path in children(place):
                whose = MOODLE.fullmatch(path.name) or GRADESCOPE.fullmatch(path.name)
                found.append(HandedIn(whose["name"], path, id=whose["id"]) if whose else HandedIn(path.name.removesuffix(".zip"), path))
        else:
            found.append(HandedIn(place.resolve().name, place))
    return found


def read_roster(file: Path) -> list[dict[str, str]]:
    """Returns the lines of a CSV with a column id and optionally name and submission (its title)."""
    try:
        with open(file, encoding="utf-8-sig", newline="") as stream:
            lines = [{key: (value or "").strip() for key, value in line.items() if key in ROSTER} for line in csv.DictReader(stream)]
    except OSError as error:
        raise Fault(f"{file} cannot be read: {error.strerror}") from None
    if not lines or "id" not in lines[0]:
        raise Fault(f"{file}: there is no column id, or no student: the first line names the columns, id and any of {', '.join(ROSTER[1:])}; then "
                    "each student has a line")
    return lines


def plain(name: str) -> str:
    return "".join(c for c in name.casefold() if c.isalnum())


def by_name(roster: Iterable[Mapping[str, str]]) -> dict[str, Mapping[str, str]]:
    """Returns the roster's lines by submission, name and id."""
    return {plain(name): line for line in roster for name in (line.get("submission"), line.get("name"), line["id"]) if name}


def unknown(found: Iterable[HandedIn], roster: Sequence[Mapping[str, str]]) -> list[str]:
    """Returns the titles of submissions that the roster does not list."""
    lines = by_name(roster)
    return [one.title for one in found if plain(one.title) not in lines and plain(one.id) not in lines]


def with_roster(found: Iterable[HandedIn], roster: Sequence[Mapping[str, str]]) -> list[HandedIn]:
    """Returns the submissions with the roster's id and name, followed by students who submitted nothing."""
    lines = by_name(roster)
    everyone, found_ids = [], set()
    for one in found:
        line = lines.get(plain(one.title)) or lines.get(plain(one.id))
        if line:
            found_ids.add(line["id"])
            one = replace(one, id=line["id"], person=line.get("name") or "")
        everyone.append(one)
    return everyone + [HandedIn(line.get("name") or line["id"], None, id=line["id"]) for line in roster if line["id"] not in found_ids]


def alike(grades: Iterable[Grade], exercises: Iterable[Exercise], root: Path) -> list[tuple[float, str, str, str]]:
    """Returns pairs of similar answers, the most similar first: (similarity, exercise, one, the other). The other may be the book's
    solution."""
    found = []
    for e in exercises:
        known = similar.runs(regions.written((root / e.file).read_text(encoding="utf-8"), e.file)[0][e.id].lines)
        texts = {grade.name: similar.runs(grade.answers[e.id].lines, known) for grade in grades if e.id in grade.answers}
        texts["the book"] = (similar.book_runs(root) if e.kind == CAPSTONE else similar.runs(answer(root, e).lines, known))
        titles = list(texts)
        for i, one in enumerate(titles):
            for other in titles[i + 1:]:
                value = similar.likeness(texts[one], texts[other])
                if value >= similar.ALIKE:
                    found.append((value, e.id, one, other))
    return sorted(found, reverse=True)
