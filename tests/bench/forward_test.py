"""Runs bench/forward as users do, on cells that take no time.

forward_test.py PROGRAM
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from bench import results

PROGRAM = sys.argv.pop(1)
HOST = ["--chapter", "2", "--seqlen", "16,17", "--head-dim", "64", "--max-seconds", "0.01"]


class Forward(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "results.json"

    def run_program(self, *words, code=0):
        done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, env=os.environ | {"FLASHBOOK_COMMIT": "abc123"})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def measure(self, *words):
        self.run_program(*words, "--out", str(self.file))
        return json.loads(self.file.read_text())

    def test_results_say_what_was_measured_and_on_what(self):
        whole = self.measure(*HOST, "--step", "1", "--dtype", "f32", "--mask", "full")
        self.assertEqual(whole["context"]["commit"], "abc123")
        for key in ("cpu", "date", "host_compiler", "machine", "ch01", "ch02"):
            self.assertIn(key, whole["context"])
        for key in ("host_name", "executable"):
            self.assertNotIn(key, whole["context"])
        run = whole["benchmarks"][0]
        self.assertEqual(run["time_unit"], "ms")
        self.assertAlmostEqual(run["FLOPS"] / (4 * 64 * 16 * 16 / (run["real_time"] * 1e-3)), 1, places=6)
        self.assertGreaterEqual(run["runs"], 1)
        self.assertLessEqual(run["error"], run["error_bound"])
        self.assertEqual(run["workspace_bytes"], 0)

    def test_a_cpu_chapter_needs_no_gpu_and_its_results_can_be_filed(self):
        self.measure(*HOST, "--step", "1")
        self.assertTrue(results.read(self.file))

    def test_kernels_in_the_simulator_are_no_result(self):
        words = ["--chapter", "1", "--dtype", "f32", "--head-dim", "64", "--mask", "full", "--max-seconds", "0", "--out", str(self.file)]
        done = subprocess.run([PROGRAM, *words, "--seqlen", "16", "--step", "1"], capture_output=True, text=True)
        if done.returncode == 77:
            self.assertIn("--chapter 2", done.stderr)
            self.skipTest("a GPU build without a GPU")
        self.assertEqual(done.returncode, 0, done.stderr)
        whole = json.loads(self.file.read_text())
        if whole["context"]["machine"] == "gpu":
            self.skipTest("measured on a GPU")
        self.assertEqual(whole["context"]["machine"], "simulator")
        self.assertNotIn("FLOPS", whole["benchmarks"][0])
        with self.assertRaisesRegex(results.Refused, "simulator"):
            results.read(self.file)

        # A cell that cannot run is recorded as skipped, with the reason.
        self.run_program(*words, "--seqlen", "41000", "--step", "2")
        run = json.loads(self.file.read_text())["benchmarks"][0]
        self.assertEqual((run["error_occurred"], run["label"]), (True, "skipped"))
        self.assertIn("--seqlen-k is at most", run["error_message"])

    def test_wrong_options_name_the_cure(self):
        for words, cure in ((["--chapter", "99"], "chapters 1 to"), (["--seqlen", "x"], "such as 512"), (["--dtype", "fp8"], "e4m3"),
                            (["--mask", "none"], "full, causal"), (["--nonsense"], "--help"), (["--step", "99"], "--step"),
                            (["--head-dim", "80", "--chapter", "2"], "head-dim"), (["--max-seconds", "-1"], "negative"),
                            ([*HOST, "--out", "/no/such/folder/x.json"], "cannot be written")):
            done = self.run_program(*words, code=2)
            self.assertIn(cure, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


unittest.main()
