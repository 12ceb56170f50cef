#!/usr/bin/env python3
""".ci/run lint, in a small tree whose tools say what they are told to; and which lines .ci/columns.py finds too long."""
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAID = """clang-format.............................................................Passed
typos....................................................................Failed
- hook id: typos
  exit code: 2, and many words
schema of workflows..................................(no files to check)Skipped
mypy.....................................................................Passed
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


class Columns(unittest.TestCase):
    def faults(self, name: str, *lines: str) -> list[int]:
        """The numbers of the lines that are too long."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, name)
            file.write_text("\n".join(lines) + "\n")
            done = subprocess.run([sys.executable, ROOT / ".ci/columns.py", file], capture_output=True, text=True, check=False)
        found = [int(line.split(":")[1]) for line in done.stdout.splitlines()]
        self.assertEqual(done.returncode, int(bool(found)), done.stderr)
        return found

    def test_the_limit_is_that_of_the_language(self):
        for name, limit in (("a.md", 120), ("a.cuh", 110), ("a.cpp", 110)):
            text = "word " * 30
            self.assertEqual(self.faults(name, text[:limit], text[:limit - 1] + "xx"), [2])
        self.assertEqual(self.faults("a.h", "//| " + "word " * 30, "  /// " + "word " * 30, "f(" + "1, " * 50), [1, 2, 3])

    def test_a_line_that_cannot_be_broken_is_allowed(self):
        mark = f"<!-- num forward/{'n' * 99} ms .1f -->12.3<!-- /num -->"
        words = "word " * 30
        self.assertEqual(self.faults(
            "a.md", f"| {words} |", f"> | {words} |", f"* [link](https://{'a' * 120}),", f"takes {mark}", f"> {mark}, {mark}.",
            f"<!-- diff {words}-->", f"$${words}$$", f"> `{words}`", "```sh", words, "```", f"    {words}"), [])
        self.assertEqual(self.faults("a.md", f"takes {mark} ms", f"a [link](https://{'a' * 120})", f"{words}`code`"), [1, 2, 3])
        self.assertEqual(self.faults("a.cuh", f"//| | {words} |", f"/// https://{'a' * 120}", f"    {words};"), [3])


if __name__ == "__main__":
    unittest.main()
