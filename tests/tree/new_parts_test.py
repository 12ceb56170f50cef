#!/usr/bin/env python3
"""Adds a mask (new_mask.py) and a step (new_step.py) to one copy of the tree and tests both: new_parts_test.py CXX."""
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import new_mask
import new_step
from new_mask import NewMask
from new_step import NewStep

ROOT = Path(__file__).resolve().parents[2]
COMPILER = sys.argv[1] if len(sys.argv) > 1 else "c++"
QUICK = ("-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1")  # the compiler takes most of the time


def build_tree(folder):
    tree, build = folder / "tree", folder / "build"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns("build", ".git", "__pycache__"))
    new_mask.add_mask(tree)
    new_step.add_step(tree)
    for command in (["cmake", "-S", tree, "--preset", "sim", "-B", build, f"-DCMAKE_CXX_COMPILER={COMPILER}", *QUICK],
                    ["cmake", "--build", build, "--target", *new_mask.TARGETS, *new_step.TARGETS]):
        done = subprocess.run(command, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:]
    for case in (NewMask, NewStep):
        case.tree, case.bin = tree, build / "bin"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        build_tree(Path(temporary))
        unittest.main(argv=sys.argv[:1])
