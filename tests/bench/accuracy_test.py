#!/usr/bin/env python3
"""The study of accuracy, on a small shape: accuracy_test.py ACCURACY. Exits 77 where the program needs a GPU and there is none."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from bench import results

PROGRAM = sys.argv.pop()
KINDS = ("normal", "outliers", "channels")


def run(*options):
    return subprocess.run([PROGRAM, *options], capture_output=True, text=True)


class Study(unittest.TestCase):
    table: dict[Any, Any]

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "accuracy.json"
            done = run("--batch", "1", "--heads", "1", "--seqlen", "200", "--head-dim", "128", "--out", str(path))
            if done.returncode == 77:
                sys.exit(77)
            assert done.returncode == 0, done.stderr
            whole = json.loads(path.read_text())
            whole["context"]["commit"] = "abc"  # known, as ./flashbook accuracy makes it
            path.write_text(json.dumps(whole))
            measured = results.Results([path])
        cls.table = {variant: {kind: entry.values["relative_rms"] for kind, entry in by_kind.items()}
                     for variant, by_kind in results.accuracy(measured, "gpu").items()}

    def error(self, who, kind, dtype="e4m3"):
        return self.table[who, dtype][kind]

    def test_every_variant_has_every_kind(self):
        self.assertEqual(len(self.table), 12)
        for by_kind in self.table.values():
            self.assertEqual(tuple(by_kind), KINDS)

    def test_sixteen_bits_are_near_and_eight_are_not(self):
        for kind in KINDS:
            self.assertLess(self.error("rounded", kind, "f16"), self.error("plain", kind, "f16"))
            self.assertLess(self.error("ch05/step5", kind, "f16"), 0.01)
            for step in ("step1_tensor", "step3_tensor", "step3_block", "step4_tensor", "step4_block", "step5_tensor", "step5_rotated"):
                self.assertTrue(0.02 < self.error(f"ch06/{step}", kind) < 0.5, (step, kind))

    def test_a_rotation_is_for_what_meets_in_one_channel(self):
        for plain, rotated in (("step3_tensor", "step4_tensor"), ("step3_block", "step4_block"), ("step5_tensor", "step5_rotated")):
            gain = {kind: self.error(f"ch06/{plain}", kind) / self.error(f"ch06/{rotated}", kind) for kind in KINDS}
            self.assertTrue(0.9 < gain["normal"] < 1.1)
            self.assertGreater(gain["channels"], 2)

    def test_says_what_it_cannot_do(self):
        self.assertEqual(run("--head-dim", "96").returncode, 2)
        self.assertEqual(run("--seqlen", "many").returncode, 2)


unittest.main()
