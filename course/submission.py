"""What of a submission counts: the text between the markers of each exercise. Everything else in it is left alone, and nothing in it is
followed: no links, nothing that is not a plain file."""
import os
import stat
from pathlib import Path

import regions
from regions import Fault

LARGEST = 1 << 20  # bytes of a file that is looked at
MOST_FILES = 20000


def plain_files(folder):
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


def text_of(folder, name):
    with open(os.open(Path(folder) / name, os.O_RDONLY | os.O_NOFOLLOW), encoding="utf-8", errors="replace", newline=None) as file:
        return file.read()


def answers(folder, exercises):
    """({exercise's id: what was Written}, {id: why there is nothing}). An exercise is looked for in its own file, wherever the submission
    has a file of that name: at its place in the tree, else anywhere, since some hand in the files alone."""
    folder = Path(folder)
    if not folder.is_dir():
        raise Fault(f"{folder} is no folder: a submission is a student's tree, or a folder with the files that were edited")
    names = list(plain_files(folder))
    found, missing = {}, {}
    for exercise in exercises:
        in_place = [name for name in names if name == exercise.file or name.endswith("/" + exercise.file)]
        alone = [name for name in names if Path(name).name == Path(exercise.file).name]
        candidates = in_place or alone
        if len(candidates) != 1:
            missing[exercise.id] = (f"{Path(exercise.file).name} was not handed in" if not candidates else
                                    f"{exercise.file} is there more than once: {', '.join(candidates[:3])}")
            continue
        try:
            written = regions.written(text_of(folder, candidates[0]), candidates[0])
        except Fault as fault:
            missing[exercise.id] = str(fault)
            continue
        if exercise.id in written:
            found[exercise.id] = written[exercise.id]
        else:
            missing[exercise.id] = f"{candidates[0]} has no lines '// BEGIN EXERCISE {exercise.id}' and '// END EXERCISE {exercise.id}'"
    return found, missing
