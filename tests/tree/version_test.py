#!/usr/bin/env python3
"""The version in CMakeLists.txt matches CITATION.cff, the Python package and the newest release in CHANGELOG.md."""
import importlib
import re
import sys
import types
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]


def found(file: str, pattern: str) -> list[tuple[str, ...]]:
    return [match.groups() for match in re.finditer(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)]


class Version(unittest.TestCase):
    def test_every_file_names_the_newest_release(self):
        [(version,)] = found("CMakeLists.txt", r"^project\(flashbook VERSION (\d+\.\d+\.\d+) ")
        releases = found("CHANGELOG.md", r"^## \[(.+?)\] - (\d{4}-\d\d-\d\d)\b")
        self.assertEqual(releases[0][0], version)
        self.assertEqual(found("CITATION.cff", r"^version: (.+)\ndate-released: (.+)"), releases[:1])
        dates = [date for _, date in releases]
        self.assertEqual(dates, sorted(dates, reverse=True))

    def test_the_python_package_takes_it(self):
        sys.path.insert(0, str(ROOT / "python" / "backend"))
        with mock.patch.dict(sys.modules, scikit_build_core=types.SimpleNamespace(build=mock.MagicMock()),
                             **{"scikit_build_core.build": mock.MagicMock()}):
            flashbook_build = importlib.import_module("flashbook_build")
        [(version,)] = found("CMakeLists.txt", r"^project\(flashbook VERSION (\S+) ")
        flashbook_build.build_state("sdist")
        self.assertEqual(flashbook_build.dynamic_metadata({}, {}), {"version": version})


if __name__ == "__main__":
    unittest.main()
