"""What exercises there are: chapters/NN_name/exercises/exercises.json, a list of

    {"id": "ch01-scores",           its region, its program exercise.ch01-scores and that program's source in tests/exercises
     "title": "One score a thread",
     "kind": "write",               write: a piece of a kernel. predict: numbers. mend: a kernel that is broken
     "file": "textbook.cuh",        the one place to edit, from the chapter's folder
     "hint": "...",                 the one hint, as the chapter's README.md has it
     "needs": ["ch01-other"]}       optional: exercises that have to be solved before
"""
import json
import re
from dataclasses import dataclass
from pathlib import Path

from regions import Fault

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("write", "predict", "mend")


@dataclass
class Exercise:
    id: str
    title: str
    kind: str
    file: str  # from the repository's root
    hint: str
    needs: list
    chapter: str  # its folder: "01_naive_attention"

    @property
    def program(self):
        return f"exercise.{self.id}"


def chapter_exercises(manifest, root):
    """The exercises of one exercises.json."""
    where, chapter = manifest.relative_to(root), manifest.parents[1]
    try:
        entries = json.loads(manifest.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Fault(f"{where}: {error}") from None
    exercises = []
    for number, entry in enumerate(entries, 1):
        name = entry.get("id", f"exercise {number}")
        needs = entry.pop("needs", [])
        if set(entry) != {"id", "title", "kind", "file", "hint"}:
            raise Fault(f"{where}: {name} has {', '.join(entry)}; it takes id, title, kind, file, hint and, if it must, needs")
        for key, value in entry.items():
            if not isinstance(value, str) or not value.strip():
                raise Fault(f"{where}: {name}: {key} must be a text")
        if not re.fullmatch(rf"ch{chapter.name[:2]}-[a-z0-9-]+", name):
            raise Fault(f"{where}: {name}: an id reads ch{chapter.name[:2]}-name, in small letters")
        if entry["kind"] not in KINDS:
            raise Fault(f"{where}: {name}: kind is one of {', '.join(KINDS)}, not {entry['kind']}")
        if not set(needs) <= {before.id for before in exercises}:
            raise Fault(f"{where}: {name}: what it needs comes before it in the same file")
        file = chapter.relative_to(root) / entry.pop("file")
        if not (root / file).is_file():
            raise Fault(f"{where}: {name}: there is no {file}")
        exercises.append(Exercise(**entry, file=str(file), needs=needs, chapter=chapter.name))
    return exercises


def load(root=ROOT):
    """All exercises in the order of the book."""
    exercises = []
    for manifest in sorted(root.glob("chapters/*/exercises/exercises.json")):
        exercises += chapter_exercises(manifest, root)
    seen = set()
    for exercise in exercises:
        if exercise.id in seen:
            raise Fault(f"the exercise {exercise.id} is there twice")
        seen.add(exercise.id)
    return exercises
