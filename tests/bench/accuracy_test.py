#!/usr/bin/env python3
"""Runs the accuracy study on a small shape: accuracy_test.py ACCURACY. Exits with 77 if the program needs a GPU and there is none."""

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
    said: str

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "accuracy.json"
            done = run("--batch", "1", "--heads", "1", "--seqlen", "200", "--head-dim", "128", "--out", str(path))
            if done.returncode == 77:
                sys.exit(77)
            assert done.returncode == 0, done.stderr
            cls.said = done.stderr
            whole = json.loads(path.read_text())
            whole["context"]["commit"] = "abc"  # set as in ./flashbook accuracy
            path.write_text(json.dumps(whole))
            cls.table = {}
            for entry in results.Results([path]).history:
                cls.table.setdefault((entry.cell.who, entry.cell.dtype), {})[entry.cell.inputs] = entry.values["relative_rms"]

    def error(self, who, kind, dtype="e4m3"):
        return self.table[who, dtype][kind]

    def test_every_variant_has_every_kind(self):
        self.assertEqual(len(self.table), 16)
        for by_kind in self.table.values():
            self.assertEqual(tuple(by_kind), KINDS)

    def test_says_beforehand_what_it_computes(self):
        self.assertTrue(self.said.startswith("16 ways to compute attention, of 3 inputs each, the last with batch 1, heads 1, N 200, d 128, full, f16, compared"))

    def test_sixteen_bits_are_near_and_eight_are_not(self):
        for kind in KINDS:
            self.assertLess(self.error("rounded", kind, "f16"), self.error("plain", kind, "f16"))
            self.assertLess(self.error("ch05/persistent", kind, "f16"), 0.01)
            for step in ("straight_tensor", "block_scales_tensor", "block_scales_block", "hadamard_tensor", "hadamard_block", "persistent_tensor", "persistent_rotated"):
                self.assertTrue(0.02 < self.error(f"ch06/{step}", kind) < 0.5, (step, kind))

    def test_a_rotation_is_for_what_meets_in_one_channel(self):
        for plain, rotated in (("block_scales_tensor", "hadamard_tensor"), ("block_scales_block", "hadamard_block"), ("persistent_tensor", "persistent_rotated")):
            gain = {kind: self.error(f"ch06/{plain}", kind) / self.error(f"ch06/{rotated}", kind) for kind in KINDS}
            self.assertTrue(0.9 < gain["normal"] < 1.1)
            self.assertGreater(gain["channels"], 2)

    def test_means_are_for_channels_of_one_sign(self):
        for plain, centred in (("persistent_tensor", "persistent_centred"), ("persistent_rotated", "persistent_centred_rotated")):
            gain = {kind: self.error(f"ch06/{plain}", kind) / self.error(f"ch06/{centred}", kind) for kind in KINDS}
            self.assertTrue(0.9 < gain["normal"] < 1.1)
            self.assertGreater(gain["channels"], 1.3)
        for step in ("row_sums", "linear_exp"):
            self.assertLess(self.error(f"ch06/{step}_centred_rotated", "normal"), 1.1 * self.error("ch06/persistent_centred_rotated", "normal"))

    def test_long_rows_of_one_sign_lose_unless_centred(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "long.json"
            done = run("--long", "--batch", "1", "--heads", "1", "--seqlen", "4096", "--head-dim", "64", "--out", str(path))
            self.assertEqual(done.returncode, 0, done.stderr)
            left = {entry["name"]: entry["left"] for entry in json.loads(path.read_text())["benchmarks"]}
        self.assertEqual(len(left), 4 * 2 * 8)
        self.assertAlmostEqual(left["long/one/ch06/persistent/e4m3/d64/full/n4096"], 0.95, delta=0.003)
        for name, rest in left.items():
            if "centred" in name:
                self.assertAlmostEqual(rest, 1, delta=0.003, msg=name)

    def test_says_what_it_cannot_do(self):
        self.assertEqual(run("--head-dim", "96").returncode, 2)
        self.assertEqual(run("--seqlen", "many").returncode, 2)


unittest.main()
