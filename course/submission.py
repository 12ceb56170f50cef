"""Extracts the graded part of a submission, the text between each exercise's markers. Everything else is ignored. Only plain files are read, and
links are never followed. Zips inside are read like folders, and never unpacked."""
import functools
import io
import os
import stat
import weakref
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from course import regions
from course.manifest import Exercise
from course.regions import Fault, Written
from course.sandbox import one_line

LARGEST = 256 << 10  # bytes of a file; larger ones are ignored
LARGEST_ZIP = 32 << 20
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # for other methods, zipfile expands everything it reads at once, whatever the size
IN_ZIP = ".zip!/"  # separates a zip's name from the name of a file in it
MOST = 8 << 20  # bytes read from a submission
MOST_FILES = 20000  # including folders
DEEPEST = 16  # nested folders

Read = tuple[dict[str, Written], dict[str, str]]  # the result of regions.written
Reader = Callable[[str], Read]  # called with a file's name


def opened(file: Path) -> io.BufferedReader:
    """Opens a file without following links or waiting for pipes."""
    return open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")


def archive_of(file: Path) -> zipfile.ZipFile:
    """Returns an open zip; its file is closed when the archive is garbage-collected."""
    stream = opened(file)
    try:
        archive = zipfile.ZipFile(stream)
    except BaseException:
        stream.close()
        raise
    weakref.finalize(archive, stream.close)
    return archive


def files_in_zip(file: Path) -> Iterator[str]:
    """Yields the names of the files to read in a zip; none if it is damaged."""
    try:
        entries = archive_of(file).infolist()
    except Exception:
        return
    if len(entries) > MOST_FILES:
        raise Fault(f"{one_line(str(file))} has more than {MOST_FILES} files: hand in only the files that you edited")
    for entry in entries:
        parts = entry.filename.split("/")
        ignored = {"build", ".git", "__MACOSX"} & set(parts) or len(parts) > DEEPEST or entry.is_dir() or entry.flag_bits & 1
        if not ignored and entry.filename.isprintable() and entry.file_size <= LARGEST and entry.compress_type in METHODS:
            yield entry.filename


def plain_files(folder: Path) -> Iterator[str]:
    """Returns the relative names of the plain files in a folder and in its zips, or in a zip. Links and unprintable
    names are skipped."""
    if folder.is_file():
        yield from files_in_zip(folder)
        return
    count, folders = 0, [(folder, 0)]  # `folders` are still to be searched
    while folders:
        place, depth = folders.pop()
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError:
            continue  # an unreadable or deleted folder
        inside: list[tuple[Path, int]] = []
        for entry in entries:
            count += 1
            if count > MOST_FILES:
                raise Fault(f"{one_line(str(folder))} has more than {MOST_FILES} files: hand in only the files that you edited")
            if not entry.name.isprintable():
                continue
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode) and depth < DEEPEST and entry.name not in ("build", ".git"):
                inside.append((Path(entry.path), depth + 1))
            elif stat.S_ISREG(status.st_mode) and entry.name.endswith(".zip") and status.st_size <= LARGEST_ZIP:
                zipped = str(Path(entry.path).relative_to(folder)).removesuffix(".zip")
                names = list(files_in_zip(Path(entry.path)))
                count += len(names)
                yield from (f"{zipped}{IN_ZIP}{name}" for name in names)
            elif stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST:
                yield str(Path(entry.path).relative_to(folder))
        folders += reversed(inside)


def contents(folder: Path, name: str, most: int, archive: Callable[[Path], zipfile.ZipFile] = archive_of) -> bytes:
    """Returns the first `most` bytes of one of plain_files(); empty if its zip is damaged. `archive` opens a zip."""
    zipped, inside, inner = (str(folder.with_suffix("")), IN_ZIP, name) if folder.is_file() else str(folder / name).partition(IN_ZIP)
    if not inside:
        with opened(folder / name) as file:
            return file.read(most)
    try:
        with archive(Path(zipped + ".zip")).open(inner) as member:
            return member.read(most)
    except Exception:  # each compression method raises its own exceptions
        return b""


def reader(folder: Path) -> Reader:
    """Returns a cached reader that raises a Fault once more than MOST bytes are read."""
    left, archive = MOST, functools.lru_cache(4)(archive_of)  # a zip with thousands of files takes long to open

    @functools.cache
    def read(name: str) -> Read:
        nonlocal left
        data = contents(folder, name, min(LARGEST, left + 1), archive)
        left -= len(data)
        text = data.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
        if left < 0:
            raise Fault(f"{one_line(str(folder))} has more than {MOST >> 20} MB of sources: hand in only the files that you edited")
        return regions.written(text, name)

    return read


def answer(written: Reader, names: Sequence[str], exercise: Exercise) -> tuple[Written | None, str]:
    """Returns (the answer, why there is none) for one exercise. Looks at the file's place in the tree, then at any file with its name, then at any
    with the exercise's markers, since some students submit single files and some rename them."""
    def holding(candidates: Iterable[str]) -> list[tuple[str, dict[str, Written], dict[str, str]]]:
        return [(name, *written(name)) for name in candidates]

    name, suffix = Path(exercise.file).name, Path(exercise.file).suffix
    in_place = [file for file in names if file == exercise.file or file.endswith("/" + exercise.file)]
    named = [file for file in names if Path(file).name == name]
    files = holding(in_place) or [file for file in holding(named) if exercise.id in file[1] | file[2]]
    files = files or [file for file in holding(file for file in names if Path(file).suffix == suffix) if exercise.id in file[1] | file[2]]
    if len(files) > 1 and any(exercise.id not in found or found[exercise.id].lines != files[0][1][exercise.id].lines for _, found, _ in files):
        return None, f"{name} was handed in more than once: {', '.join(file for file, *_ in files[:3])}. Hand in only one"
    if not files:
        lost = f": {named[0]} lacks the lines '// BEGIN EXERCISE {exercise.id}' and '// END EXERCISE {exercise.id}'" if named else ""
        return None, f"{name} was not handed in{lost}"
    file, found, faults = files[0]  # if there are several, they are identical
    if exercise.id in found:
        return found[exercise.id], ""
    return None, faults.get(exercise.id, regions.absent(exercise.id, file))


def answers(folder: str | Path, exercises: Sequence[Exercise], files: Sequence[str] = ()) -> tuple[dict[str, Written], dict[str, str]]:
    """Returns ({id: the answer}, {id: why there is none}). `files`: those of the student; empty: all."""
    folder = Path(folder)
    if not folder.is_dir() and not zipfile.is_zipfile(folder):
        allowed = ("unpack it and name the folder" if folder.suffix in (".gz", ".tar", ".rar", ".7z") else
                   "name a student's tree, a folder with the edited files, or a zip of these")
        raise Fault(f"{one_line(str(folder))} is neither a folder nor a zip: {allowed}")
    names, written = list(files or plain_files(folder)), reader(folder)
    both = {exercise.id: answer(written, names, exercise) for exercise in exercises}
    return {id: one for id, (one, _) in both.items() if one}, {id: why for id, (one, why) in both.items() if not one}
