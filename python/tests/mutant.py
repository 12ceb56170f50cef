#!/usr/bin/env python3
"""A kernel that drops a tile turns the tests of this package red.

    mutant.py FOLDER

Plants the fault into a copy of the book in FOLDER, builds the library there for the simulator, and runs tests of chapter 5 on it, which must
fail, and of chapter 2, which must pass. Exit code 1 if not.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNEL = pathlib.Path("common") / "hopper" / "problem.h"
RIGHT = "return max(last_key(last_query), 0) / keys + 1;"
WRONG = "return max(max(last_key(last_query), 0) / keys, 1);"  # the last tile of keys, if it is not the only one


def run_tests(library: pathlib.Path, which: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(ROOT / "python" / "tests"), "-k", which]
    return subprocess.run(command, env=os.environ | {"FLASHBOOK_LIBRARY": str(library)}, capture_output=True, text=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder.resolve()
    book, build = folder / "book", folder / "build"
    shutil.rmtree(book, ignore_errors=True)
    for part in ("cmake", "common", "chapters", "library"):
        shutil.copytree(ROOT / part, book / part, ignore=shutil.ignore_patterns("results", "__pycache__"))
    shutil.copy(ROOT / "CMakeLists.txt", book)
    text = (book / KERNEL).read_text(encoding="utf-8")
    if text.count(RIGHT) != 1:
        print(f"mutant.py: {KERNEL} has changed: bring RIGHT and WRONG up to date", file=sys.stderr)
        return 1
    (book / KERNEL).write_text(text.replace(RIGHT, WRONG), encoding="utf-8")
    subprocess.run(["cmake", "-G", "Ninja", "-S", book, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DFLASHBOOK_LIBRARY_ONLY=ON"], check=True)
    subprocess.run(["cmake", "--build", build, "--target", "flashbook_shared"], check=True)
    library = build / "lib" / "libflashbook.so"
    sound = run_tests(library, "test_chapter_2_on_the_cpu")
    ill = run_tests(library, "test_forward_and_backward and float16 and 64 and full")
    print(ill.stdout.splitlines()[-1])
    if sound.returncode == 0 and ill.returncode == 1 and "plain attention's" in ill.stdout:
        return 0
    print(sound.stdout, ill.stdout, "mutant.py: chapter 2's test should pass here, and chapter 5's fail by its error", sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
