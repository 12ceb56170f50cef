#!/usr/bin/env python3
"""Plants the faults that a chapter's page offers: planted.py CHAPTER FOLDER

Writes the chapter's files that have faults, with all faults in them, below FOLDER, where an include finds them first;
FOLDER/faults.json, the page's description of each fault with a digest of the sources; and FOLDER/texts, which changes
with the files. Exits with 1 and a message if a fault's text is not in the chapter any more.
"""
import hashlib
import json
import sys
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "mutation")]

import plant
from faults import Fault

from bench import steps
from docs.web import page_chapters


def offered(chapter: str) -> dict[str, Fault]:
    """Returns the chapter's faults that its pages offer."""
    return {name: fault for name, fault in plant.of_chapter(chapter).items() if fault.about}


def number(chapter: str, slug: str) -> int:
    """Returns the number by which a page knows a step."""
    return [step.slug for step in steps.of(int(chapter[:2]))].index(slug) + 1


def on_page(name, fault):
    """Returns the page's data about a fault: the lines before and after, and its settings."""
    line, old, new = plant.shown(name, fault)
    settings = fault.settings | ({"step": number(name[-2:], str(fault.settings["step"]))} if "step" in fault.settings else {})
    return {"name": name, "about": fault.about, "file": fault.path, "line": line, "old": old, "new": new,
            "steps": [number(name[-2:], slug) for slug in fault.broken_steps], "settings": settings, "unseen": fault.unseen}


def about(chapter):
    """Returns the data that a page needs about a chapter before it loads the module."""
    page = page_chapters.CHAPTERS[chapter[:2]]
    masks = {name: asdict(mask) | {"steps": [number(chapter, slug) for slug in mask.steps]} for name, mask in page.masks.items()}
    return {"digest": digest(chapter), "masks": masks, "keys": page.keys,
            "of_step": {number(chapter, slug): options for slug, options in page.of_step.items()},
            "faults": [on_page(name, fault) for name, fault in offered(chapter).items()]}


def digest(chapter: str) -> str:
    """Returns a digest of the chapter's sources that the page shows, and of its faults."""
    files = [*ROOT.glob(f"chapters/{chapter}/*.*h"), *ROOT.glob(f"chapters/{chapter}/host/*.*"), *ROOT.glob("common/hopper/*.h")]
    mine = repr(offered(chapter)) + repr(page_chapters.CHAPTERS[chapter[:2]])
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files)) + mine.encode()).hexdigest()


def write_if_new(path, text):
    """Writes a file only if its text changes, so that nothing is recompiled needlessly."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def main():
    chapter, folder = sys.argv[1], Path(sys.argv[2])
    mine = offered(chapter)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        plant.plant(folder, mine, mine)
    except plant.Refused as reason:
        sys.exit(f"planted.py: {reason}")
    write_if_new(folder / "faults.json", json.dumps(about(chapter), indent=1) + "\n")
    texts = b"".join(file.read_bytes() for file in sorted(folder.glob("*/**/*.*h")))
    write_if_new(folder / "texts", hashlib.sha256(texts).hexdigest() + "\n")


if __name__ == "__main__":
    main()
