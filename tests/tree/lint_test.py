#!/usr/bin/env python3
""".ci/run lint, in a small tree whose tools say what they are told to."""
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAID = """clang-format.............................................................Passed
typos....................................................................Failed
- hook id: typos
  exit code: 2, and many words
schema of workflows..................................(no files to check)Skipped
mypy of the front door...................................................Passed
"""


class Lint(unittest.TestCase):
    def lint(self, said: str, code: int, formatted: int = 0) -> tuple[int, list[str]]:
        """Exit code and lines of .ci/run lint where pre-commit says so, and clang-format ends with the code `formatted`."""
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder)
            (tree / "course").mkdir()
            (tree / "course/handout.py").write_text("import os\nos.makedirs('build/lint/solved/chapters/01_one/exercises')\n"
                                                    "open('build/lint/solved/chapters/01_one/exercises/a.cuh', 'w')\n")
            (tree / ".ci").mkdir()
            shutil.copy(ROOT / ".ci/run", tree / ".ci/run")
            (tree / "build/lint/bin").mkdir(parents=True)
            for name, text in {"pip": "", "pre-commit": f"cat <<'END'\n{said}END\nexit {code}", "clang-format": f"exit {formatted}"}.items():
                (tree / "build/lint/bin" / name).write_text(f"#!/bin/sh\n{text}\n")
                (tree / "build/lint/bin" / name).chmod(0o755)
            done = subprocess.run([tree / ".ci/run", "lint"], capture_output=True, text=True, check=False)
            return done.returncode, done.stdout.splitlines()

    def test_what_failed_is_named_last(self):
        code, lines = self.lint(SAID, 1)
        self.assertEqual((code, lines[-3]), (1, "failed: typos"))
        self.assertRegex(lines[-2], "^FAIL  lint ")
        self.assertEqual(self.lint(SAID, 1, formatted=1)[1][-4:-2], ["failed: typos", "failed: clang-format of course/solutions"])

    def test_nothing_is_named_where_nothing_failed(self):
        code, lines = self.lint(SAID.replace("Failed", "Passed"), 0)
        self.assertEqual((code, len(lines)), (0, 2))
        self.assertRegex(lines[0], "^ok    lint ")


if __name__ == "__main__":
    unittest.main()
