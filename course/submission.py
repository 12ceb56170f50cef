"""What of a submission counts: the text between the markers of each exercise. Everything else in it is left alone, and nothing in it is
followed: no links, nothing that is not a plain file."""
import functools
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from course import regions
from course.manifest import Exercise
from course.regions import Fault, Written

Reader = Callable[[str], tuple[dict[str, Written], dict[str, str]]]  # regions.written of a file, by its name

LARGEST = 1 << 20  # bytes of a file that is looked at
MOST_FILES = 20000


def plain_files(folder: Path) -> Iterator[str]:
    """Names of the plain files in a folder, from there; links are not followed."""
    count = 0
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in ("build", ".git") and not os.path.islink(Path(place) / name))
        for name in sorted(names):
            count += 1
            if count > MOST_FILES:
                raise Fault(f"{folder} has more than {MOST_FILES} files: hand in the files that you edited")
            status = (Path(place) / name).lstat()
            if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST:
                yield str((Path(place) / name).relative_to(folder))


def text_of(folder: Path, name: str) -> str:
    with open(os.open(Path(folder) / name, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8", errors="replace", newline=None) as file:
        return file.read()


def answer(written: Reader, names: Sequence[str], exercise: Exercise) -> tuple[Written | None, str]:
    """(what was Written, why there is nothing) for one exercise. It is looked for in its own file: at its place in the tree, else wherever a
    file has its name or its markers, since some hand in the files alone and some rename them. `written`: regions.written of a name."""
    def holding(candidates: Iterable[str]) -> list[tuple[str, dict[str, Written], dict[str, str]]]:
        return [(name, *written(name)) for name in candidates]

    name, suffix = Path(exercise.file).name, Path(exercise.file).suffix
    in_place = [file for file in names if file == exercise.file or file.endswith("/" + exercise.file)]
    named = [file for file in names if Path(file).name == name]
    files = holding(in_place) or [file for file in holding(named) if exercise.id in file[1] | file[2]]
    files = files or [file for file in holding(file for file in names if Path(file).suffix == suffix) if exercise.id in file[1] | file[2]]
    if len(files) > 1:
        return None, f"{name} is there more than once: {', '.join(file for file, *_ in files[:3])}. Hand in one: the grader does not choose"
    if not files:
        lost = f", and {named[0]} has not the lines '// BEGIN EXERCISE {exercise.id}' and '// END EXERCISE {exercise.id}'" if named else ""
        return None, f"{name} was not handed in{lost}"
    [(file, found, faults)] = files
    if exercise.id in found:
        return found[exercise.id], ""
    return None, faults.get(exercise.id, regions.absent(exercise.id, file))


def answers(folder: str | Path, exercises: Sequence[Exercise]) -> tuple[dict[str, Written], dict[str, str]]:
    """({exercise's id: what was Written}, {id: why there is nothing})."""
    folder = Path(folder)
    if not folder.is_dir():
        unpack = ": unpack it, and name the folder" if folder.suffix in (".zip", ".gz", ".tar") else ""
        raise Fault(f"{folder} is no folder{unpack}: a submission is a student's tree, or a folder with the files that were edited")
    names = list(plain_files(folder))
    written = functools.cache(lambda name: regions.written(text_of(folder, name), name))
    both = {exercise.id: answer(written, names, exercise) for exercise in exercises}
    return {id: one for id, (one, _) in both.items() if one}, {id: why for id, (one, why) in both.items() if not one}
