#!/usr/bin/env python3
"""Kernels use concepts to query types. In a `requires` expression without parameters that calls a member function of the surrounding class,
nvcc 13.0 silently evaluates to false and omits code that g++ and clang++ compile."""
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_PARAMETERS = re.compile(r"\brequires\s*\{")


def faults(folders):
    """'file:line' of each such expression in code that nvcc compiles."""
    for folder in folders:
        for path in sorted(path for path in folder.rglob("*") if path.suffix in (".cuh", ".cu", ".h")):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if not line.lstrip().startswith("//|") and WITHOUT_PARAMETERS.search(line):
                    yield f"{path.relative_to(ROOT)}:{number}"


class KernelSources(unittest.TestCase):
    def test_no_requires_without_parameters(self):
        self.assertEqual(list(faults(ROOT / folder for folder in ("chapters", "common/hopper", "common/ptx", "bench"))), [])


if __name__ == "__main__":
    unittest.main()
