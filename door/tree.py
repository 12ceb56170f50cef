"""The chapters and exercises in this copy."""

from __future__ import annotations

import argparse
import re
import textwrap

from door.console import ROOT, fail

STUDENT = not (ROOT / "course/handout.py").exists()  # a student's copy cannot make hand-outs
CAPSTONE = "capstone"  # all capstones; used in place of a chapter's number


def folders() -> list[str]:
    return sorted(path.name for path in (ROOT / "chapters").glob("[0-9][0-9]_*"))


def folder_of(number: str) -> str:
    found = [name for name in folders() if name.startswith(f"{number}_")]
    return found[0] if found else fail(f"unknown chapter {number}: use one of {' '.join(folders())}")


def has_kernels(name: str) -> bool:
    return (ROOT / "chapters" / name / "host/chapter.cu").exists()


def for_any_gpu() -> list[str]:
    """Chapters whose CMakeLists.txt does not restrict their kernels to one architecture."""
    texts = {
        path.parts[-3]: path.read_text(encoding="utf-8")
        for path in (ROOT / "chapters").glob("[0-9][0-9]_*/host/CMakeLists.txt")
    }
    return sorted(
        name
        for name, text in texts.items()
        if ".cu" in text and not re.search(r"flashbook_chapter\([^)]*ARCHITECTURES", text)
    )


def exercises() -> list[str]:
    return sorted(path.stem for path in (ROOT / "tests/exercises").glob("c*-*.c*"))


def known_exercise(id: str) -> str:
    """Returns `id`, or exits and suggests similar names."""
    meant = re.sub(r"^ch(?=\d-)", "ch0", id)
    near = " ".join(other for other in exercises() if meant in other)
    hint = (
        f"; did you mean {near}?"
        if near
        else f". The exercises are:\n{textwrap.fill(' '.join(exercises()), 110, break_on_hyphens=False)}"
    )
    return id if id in exercises() else fail(f"unknown exercise {id}{hint}")


def number_of(word: str) -> str:
    """Returns the two digits of a chapter."""
    if re.fullmatch(r"\d\d?", word):
        return f"{int(word):02}"
    meant = [name[:2] for name in folders() if word in name]
    raise argparse.ArgumentTypeError(
        f"'{word}' is not a chapter: chapters are numbers such as {' '.join(meant) or '01'}, and options follow --"
    )


def number_or_capstone(word: str) -> str:
    return word if word == CAPSTONE else number_of(word)


def number_or_exercise(word: str) -> str:
    return number_of(word) if word[:1].isdigit() else known_exercise(word)
