"""Checks what chapter 0's program prints, writes and rejects.

machine_test.py PROGRAM [traced]: with `traced`, for a build that counts, compares the kernels' counts with numbers worked out manually.
Exits with 77 if a GPU build has no GPU.
"""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TRACED = sys.argv[-1] == "traced" and bool(sys.argv.pop())
PROGRAM = sys.argv.pop()
SKIPPED = 77


def run(*options, **environment):
    return subprocess.run([PROGRAM, *options], capture_output=True, text=True, env={**os.environ, **environment})


class Machine(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "machine.json"
            cls.done = run("--json", str(file), FLASHBOOK_COMMIT="abc")
            if cls.done.returncode == SKIPPED:
                print("no GPU", file=sys.stderr)
                os._exit(SKIPPED)
            cls.result = json.loads(file.read_text())
        cls.entries = {entry["name"]: entry for entry in cls.result["benchmarks"]}
        cls.simulated = cls.result["context"]["machine"] == "simulator"

    def test_every_kernel_is_right(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        for name in self.entries:
            self.assertIn(name.removeprefix("machine/"), self.done.stdout)

    def test_the_file_says_where_and_when(self):
        context = self.result["context"]
        self.assertEqual(context["commit"], "abc")
        self.assertRegex(context["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$")
        for key in ("cpu", "host_compiler", *(() if self.simulated else ("gpu", "driver", "runtime", "toolkit"))):
            self.assertTrue(context[key], key)

    def test_names_are_unique_and_entries_complete(self):
        self.assertEqual(len(self.entries), len(self.result["benchmarks"]))
        for entry in self.entries.values():
            self.assertEqual((entry["run_type"], entry["time_unit"]), ("iteration", "ms"))
            values = [entry.get(key, 0) for key in ("clocks", "per_clock", "bytes_per_second", "sectors", "wavefronts")]
            self.assertEqual(sum(value > 0 for value in values), 0 if entry.get("error_occurred") else 1, entry)

    def test_the_simulator_times_nothing(self):
        if self.simulated:
            for name, entry in self.entries.items():
                self.assertEqual(entry["real_time"], 0, name)
                self.assertFalse({"clocks", "per_clock", "bytes_per_second"} & entry.keys(), name)

    def test_counts_sectors_and_wavefronts(self):
        # A warp loads floats `stride` apart: 4 bytes per lane, up to one 32-byte sector per lane. In shared memory, the
        # number of wavefronts is that of the lanes whose words share a bank.
        for stride in (1, 2, 4, 8, 16, 32):
            sectors, wavefronts = self.entries[f"machine/stride/s{stride}"], self.entries[f"machine/bank/s{stride}"]
            if not TRACED:
                self.assertFalse({"sectors", "wavefronts"} & (sectors.keys() | wavefronts.keys()))
                continue
            self.assertEqual(sectors["sectors"], min(4 * stride, 32))
            self.assertEqual(wavefronts["wavefronts"], stride)

    def test_clocks_are_those_of_a_gpu(self):
        if self.simulated:
            return
        hops = [self.entries[f"machine/latency/{level}"]["clocks"] for level in ("shared", "l1", "l2", "device")]
        for near, far in itertools.pairwise(hops):  # while other programs run, the L2 may retain nothing and look as slow as memory
            self.assertLess(near, 1.02 * far)
        self.assertGreater(self.entries["machine/rate/multiply_add"]["per_clock"], 100)

    def test_refuses_in_one_line(self):
        for code, options in ((2, ["--nonsense"]), (2, ["--device", "abacus"]), (2, ["--json", "/nowhere/at/all.json"]), (2, ["--json", ""])):
            done = run(*options)
            self.assertEqual(done.returncode, code, options)
            self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), options)
        done = run("--device", "gpu" if self.simulated else "sim")
        self.assertEqual(done.returncode, 77 if self.simulated else 2)
        self.assertIn("cmake --preset", done.stderr)

    def test_help(self):
        done = run("--help")
        self.assertEqual(done.returncode, 0)
        self.assertIn("--json", done.stdout)


if __name__ == "__main__":
    unittest.main()
