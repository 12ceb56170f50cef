"""Checks a traced program's output.

profile_test.py PROGRAM: runs chapter 1's traced program and compares its tables and its JSON with the known behaviour of its kernels.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Any

PROGRAM = sys.argv.pop()
N, D = 64, 64  # one head, bf16


def run(*options):
    return subprocess.run([PROGRAM, *options], capture_output=True, text=True)


class Profile(unittest.TestCase):
    done: subprocess.CompletedProcess[str]
    profile: dict[Any, Any]

    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "profile.json"
            cls.done = run("--heads", "1", "--seqlen", str(N), "--head-dim", str(D), "--json", str(file))
            cls.profile = json.loads(file.read_text())

    def launches(self, step):
        return self.profile["steps"][step - 1]["launches"]

    def test_names_kernels_and_lines(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.assertEqual([launch["kernel"] for launch in self.launches(1)], ["textbook_scores<bf16>", "textbook_softmax<bf16>", "textbook_output<bf16>"])
        for launch in [launch for step in range(1, 6) for launch in self.launches(step)]:
            self.assertIn(launch["kernel"] + ", grid", self.done.stdout)
            for line in launch["lines"]:
                self.assertRegex(line["place"], r"^(step[1-5]_\w+|softmax)\.cuh:\d+$")

    def test_sorts_by_waste(self):
        for step in range(1, 6):
            for launch in self.launches(step):
                waste = [line["waste"] for line in launch["lines"]]
                self.assertEqual(waste, sorted(waste, reverse=True))

    def test_counts_what_the_text_says(self):
        # A warp of 16 x 2 threads reads one element from each of 16 rows of K and of 2 rows of Q.
        scores = [line for line in self.launches(1)[0]["lines"] if line["access"] == "load"]
        self.assertEqual([line["sectors"] / line["requests"] for line in scores], [16, 2])
        self.assertEqual([line["requests"] for line in scores], [N * N * D // 32] * 2)
        # K is transposed: 32 adjacent keys take 64 bytes, and all lanes share one query.
        scores = [line for line in self.launches(2)[1]["lines"] if line["access"] == "load"]
        self.assertEqual(sorted(line["sectors"] / line["requests"] for line in scores), [1, 2])
        # One number from each of two tiles per multiply-add, without bank conflicts.
        lines = [line for line in self.launches(3)[0]["lines"] if line["memory"] == "shared"]
        self.assertEqual(sum(line["requests"] for line in lines if line["access"] == "load"), 2 * N * N * D // 32)
        self.assertEqual([line["wavefronts"] for line in lines], [line["requests"] for line in lines])
        # Chunks are transposed while they are stored to shared memory: 4-way conflicts.
        store = next(line for line in self.launches(4)[0]["lines"] if line["memory"] == "shared" and line["access"] == "store")
        self.assertEqual(store["wavefronts"], 4 * store["requests"])

    def test_counts_barriers(self):
        # Two barriers per chunk of 32 dims, or of 64 in step 5; the textbook's kernels have none.
        blocks = lambda launch: math.prod(launch["grid"])
        self.assertEqual([launch["barriers"] for launch in self.launches(1)], [0, 0, 0])
        for step, chunks in ((3, 2), (4, 2), (5, 1)):
            self.assertEqual(self.launches(step)[0]["barriers"], 2 * chunks * blocks(self.launches(step)[0]))

    def test_distinct_bytes_are_the_cost_model(self):
        for step in self.profile["steps"][1:]:
            distinct = sum(launch["bytes_distinct_read"] + launch["bytes_distinct_written"] for launch in step["launches"])
            self.assertEqual(distinct, step["model_bytes"])

    def test_refuses_what_the_program_refuses(self):
        self.assertEqual(run("--seqlen", "0").returncode, 2)
        self.assertEqual(run("--nonsense").returncode, 2)
        self.assertIn("--seqlen", run("--help").stdout)


if __name__ == "__main__":
    unittest.main()
