#!/usr/bin/env python3
"""Adding a chapter takes only its folder and its test: new_chapter_test.py CXX. A copy of chapter 1 serves as the new chapter, in a copy of the
tree that is configured but not built."""
import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPILER = sys.argv[1] if len(sys.argv) > 1 else "c++"
NEW, DESCRIPTOR = "99_new_chapter", "kNewChapter"


def add_chapter(tree):
    """Adds what an author writes: the folder, its tests, and one exercise with its tests."""
    chapter = tree / "chapters" / NEW
    shutil.copytree(tree / "chapters/01_naive_attention", chapter)
    for path in (path for path in chapter.rglob("*.*") if path.is_file()):
        path.write_text(path.read_text().replace("01_naive_attention", NEW).replace("kNaiveAttention", DESCRIPTOR))
    shutil.copy(tree / "tests/chapters/01_naive_attention_test.cpp", tree / f"tests/chapters/{NEW}_test.cpp")
    shutil.copy(tree / "tests/exercises/ch01-scores.cu", tree / "tests/exercises/ch99-new.cu")
    (chapter / "exercises/exercises.json").write_text(json.dumps([{"id": "ch99-new", "file": "exercises/new.cuh"}]))
    (tree / "course/solutions" / NEW).mkdir()
    (tree / "course/solutions" / NEW / "ch99-new.cuh").touch()


class NewChapter(unittest.TestCase):
    def test_is_known_to_everything_else(self):
        with tempfile.TemporaryDirectory() as folder:
            tree, build = Path(folder) / "tree", Path(folder) / "build"
            shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns("build", ".git", "__pycache__"))
            add_chapter(tree)
            configured = subprocess.run(["cmake", "-S", tree, "--preset", "sim", "-B", build, f"-DCMAKE_CXX_COMPILER={COMPILER}"],
                                        cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            self.assertEqual(configured.returncode, 0, configured.stdout)
            rules = (build / "build.ninja").read_text()
            for program in (NEW, f"{NEW}_traced", f"test_{NEW}", f"test_{NEW}_traced", "exercise.ch99-new", "exercise.ch99-new_solved"):
                self.assertIn(f"build bin/{program}:", rules)
            tests = "".join(path.read_text() for path in build.rglob("CTestTestfile.cmake"))
            for test in (f"test_{NEW}.full", f"numpy.{NEW}"):
                self.assertIn(f"add_test([=[{test}]=]", tests)
            for file in ("library/chapters.cpp", "generated/tests/chapters/every_chapter.h"):
                listed = (build / file).read_text()
                self.assertIn(f"#include \"chapters/{NEW}/host/chapter.h\"", listed)
                self.assertIn(f"&{DESCRIPTOR}", listed)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
