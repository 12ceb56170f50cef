#!/usr/bin/env python3
"""Writes the autograder for Gradescope: python3 course/package.py [NN|ID ...] [--out FILE] [--class TEXT]. The zip contains setup.sh, run_autograder
and the parts of the book that grading needs: sources, solutions, all tests, and this folder."""
import argparse
import shlex
import sys
import zipfile
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that python3 course/package.py finds the packages

from course import handout, manifest
from course.grade import chosen
from course.regions import Fault

HERE = Path(__file__).resolve().parent
# Files for grading, in addition to those of the hand-out.
GRADERS_FILES = ("course/*.py", "course/student.md", *handout.MOVED.values(), "course/solutions/*", "tests/exercises/hidden/*")
NAMES, TARGETS, CLASS, UNFENCED = "@NAMES@", "@TARGETS@", "@CLASS@", "@UNFENCED@"


def files(root: Path) -> list[str]:
    """Returns the names of the book's files in the zip."""
    wanted = handout.handed_out_files(root)
    graders = {name for name in handout.files_of_tree(root) if any(fnmatch(name, pattern) for pattern in GRADERS_FILES)}
    left_out = ("docs/", "chapters/*/README.md")
    return sorted(graders | {name for name in wanted if not any(fnmatch(name, f"{pattern}*") for pattern in left_out)})


def add(archive: zipfile.ZipFile, name: str, data: str | bytes, executable: bool) -> None:
    entry = zipfile.ZipInfo(name, date_time=(2026, 1, 1, 0, 0, 0))  # the same book gives the same zip
    entry.external_attr = (0o100755 if executable else 0o100644) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, data)


def write(root: Path, out: Path, names: Sequence[str], class_seed: str = "", is_unfenced: bool = False) -> list[str]:
    """Writes the zip for these chapters or exercises; returns the ids of the exercises it grades. `class_seed`: draws variants."""
    exercises = chosen(manifest.load(root), names)
    with zipfile.ZipFile(out, "w") as archive:
        for script in ("setup.sh", "run_autograder"):
            targets = " ".join(f"judges_{e.id}" for e in exercises) if names else "exercises"
            text = (HERE / "gradescope" / script).read_text(encoding="utf-8").replace(NAMES, " ".join(names)).replace(TARGETS, targets)
            text = text.replace(CLASS, shlex.quote(class_seed)).replace(UNFENCED, "--unfenced" * is_unfenced)
            add(archive, script, text, executable=True)
        for name in files(root):
            executable = bool((root / name).stat().st_mode & 0o100)
            add(archive, f"flashbook/{name}", (root / name).read_bytes(), executable)
    return [e.id for e in exercises]


def main() -> None:
    parser = argparse.ArgumentParser(prog="course package", description="Writes the autograder for Gradescope.")
    parser.add_argument("names", nargs="*", help="two-digit chapters, or exercise ids (default: all chapters)")
    parser.add_argument("--out", help="the zip (default: build/autograder-NAMES.zip)")
    parser.add_argument("--class", dest="class_seed", default="", metavar="TEXT",
                        help="the class's seed: with a student's e-mail address it draws the variant")
    parser.add_argument("--unfenced", action="store_true", help="grade even if Gradescope's machine has no sandbox")
    arguments = parser.parse_args()
    out = Path(arguments.out or manifest.ROOT / "build" / f"autograder-{'-'.join(arguments.names) or 'all'}.zip")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        graded = write(manifest.ROOT, out, arguments.names, arguments.class_seed, arguments.unfenced)
    except (Fault, OSError) as fault:
        print(f"course package: {fault}", file=sys.stderr)
        sys.exit(2)
    print(f"{out}: {out.stat().st_size >> 10} KB, grades {', '.join(graded)}")


if __name__ == "__main__":
    main()
