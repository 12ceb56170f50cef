"""Tests bench/release without a GPU: it measures every number that pages quote, resumes after an interruption, and writes files that bench accepts."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest
from typing import Any
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from bench import names, parts, peers, results
from docs.tools import quote

loader = importlib.machinery.SourceFileLoader("release", str(ROOT / "bench" / "release"))
spec = importlib.util.spec_from_loader("release", loader)
release: Any = importlib.util.module_from_spec(spec)
sys.modules["release"] = release
loader.exec_module(release)

STEP = "forward/ch05/persistent/bf16/d128/full/n{}"
PROGRAM = '''
import json, pathlib, sys
out, cells = pathlib.Path(sys.argv[1]), int(sys.argv[2])
whole = json.loads(out.read_text()) if out.exists() else {"context": {"calls": []}, "benchmarks": []}
call = {"date": f"2026-01-0{len(whole['context']['calls']) + 1}T12:00:00+00:00", "machine": "gpu", "gpu": "NVIDIA H200", "commit": "abc"}
whole["context"] = {**call, "calls": [*whole["context"]["calls"], call]}
n = 64 << len(whole["benchmarks"])
whole["benchmarks"].append({"name": f"forward/ch05/persistent/bf16/d128/full/n{n}", "run_type": "iteration", "real_time": 1.0, "time_unit": "ms",
                            "FLOPS": 1e12, "bytes_per_second": 1e9, "call": len(whole["context"]["calls"]) - 1, "cell": str(n)})
out.write_text(json.dumps(whole))
sys.exit(75 if len(whole["benchmarks"]) < cells else 0)
'''


def part(name, file, *command, resumes=False, cards=1, seconds=1.0):
    return parts.Part(name, file, seconds, "a part", lambda out: [[word.replace("OUT", str(out)) for word in command]], resumes=resumes, cards=cards)


class Release(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "program.py").write_text(PROGRAM)
        self.racing = (sys.executable, str(self.folder / "program.py"), "OUT")

    def call(self, of, *words, gpu="NVIDIA H200", commit="abc"):
        """Returns the exit code and output of a call."""
        out = io.StringIO()
        with (mock.patch.object(release, "PARTS", of), mock.patch.object(release, "asked", lambda query: gpu), mock.patch.object(release, "cards", lambda: 1),
              mock.patch.object(results, "commit", lambda: commit), mock.patch.object(sys, "argv", ["release", str(self.folder / "R"), *words]),
              mock.patch.dict(os.environ), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out)):
            code = release.main()
        return code, out.getvalue()

    def measured(self, file):
        return results.read(self.folder / "R" / f"{file}.json")

    def test_every_number_that_pages_quote_is_taken(self):
        given = [re.compile(one.gives) for one in parts.PARTS]
        quoted = quote.quoted_names(page.read_text(encoding="utf-8") for page in quote.book_pages())
        self.assertGreater(len(quoted), 300)
        self.assertEqual([name for name in sorted(quoted) if not any(one.fullmatch(name) for one in given)], [])
        for unknown in ("forward/ch05/tuned/bf16/d64/causal/n4096", "forward/ch05/persistent/bf16/d128/full/n5000", "decode/fa9/bf16/d128/b1h8k8/n64"):
            self.assertFalse(any(one.fullmatch(unknown) for one in given), unknown)
        self.assertLessEqual(len(parts.FILES), 9)
        self.assertEqual({one.file for one in parts.PARTS}, set(parts.FILES))

    def test_a_part_is_found_by_its_results_and_the_readme_has_all_files(self):
        for name, giving in (("masked/ch09/dense/bf16/d128/full/n8192", "masked"), ("masked/ch09/dense/bf16/d128/full_bshd/n8192", "masked_bshd"),
                           ("machine/latency/l2", "machine"), ("decode", "")):
            self.assertEqual(release.giving(name), giving)
        readme = (ROOT / "bench" / "README.md").read_text(encoding="utf-8")
        minutes = [sum(one.seconds for one in parts.PARTS if one.cards == cards) / 60 for cards in (1, 2)]
        self.assertIn(f"{minutes[0]:.0f} minutes in total on an H200, and {minutes[1]:.0f} on two", readme)
        self.assertEqual(set(re.findall(r"^\| `(\w+)` \| [^|`]* \|$", readme, re.MULTILINE)) & set(parts.FILES), set(parts.FILES))

    def test_every_call_of_the_package_is_raced_and_known_by_its_name(self):
        from bench import as_called

        cells = as_called.pick("")
        self.assertEqual(len(cells), 98)
        for name in cells:
            self.assertRegex(f"called/ch05/persistent/bf16/{name}", f"^{parts.CALLED}$")
            self.assertIsNotNone(names.Name.parse(f"alone/fa3/bf16/{name}"))
        self.assertEqual({sum(lengths) for lengths in as_called.PACKED.values()}, {as_called.TOKENS})
        window = next(cell for cell in as_called.CELLS if cell.window == 512)
        visible = len(window.lengths) * sum(1 for row in range(window.seqlen) for _ in range(max(0, row - 512), row + 1))
        self.assertEqual(window.flops(), 4 * 128 * 32 * visible)

    def test_command_lines_are_taken(self):
        """Every Python program is called with options that it has."""
        from bench import as_called, backward, decode, long_rows, masks

        programs = {"bench/peers.py": peers, "bench/backward.py": backward, "bench/decode.py": decode, "bench/masks.py": masks,
                    "bench/as_called.py": as_called, "bench/long_rows.py": long_rows}
        seen = set()
        for one in parts.PARTS:
            for command in one.commands(self.folder / "x.json"):
                if command[0] == "python3" and command[1] in programs and "--cpu" not in command:
                    with mock.patch.object(sys, "argv", command[1:] + ["--resume", "--seconds", "5"] * one.resumes):
                        programs[command[1]].parse()
                    seen.add(command[1])
        self.assertEqual(seen, set(programs))

    def test_the_sanitizers_run_every_chapter_with_kernels(self):
        commands = parts.sanitized(self.folder)
        for tool in ("memcheck", "initcheck", "synccheck", "racecheck"):
            tested = {pathlib.Path(command[5]).name[:2] for command in commands if command[2] == tool}
            self.assertEqual(tested, {"01", *(f"{chapter:02}" for chapter in range(3, 11))})

    def test_a_race_that_was_cut_off_goes_on(self):
        of = (part("a", "forward", *self.racing, "3", resumes=True),)
        for expected, count in ((75, 1), (75, 2), (0, 3), (0, 3)):
            code, said = self.call(of)
            self.assertEqual((code, len(self.measured("forward"))), (expected, count), said)
        self.assertEqual([entry.context["date"][:10] for entry in self.measured("forward")], ["2026-01-01", "2026-01-02", "2026-01-03"])
        whole = json.loads((self.folder / "R/forward.json").read_text())
        for key in ("name", "real_time", "cpu_time", "time_unit"):  # required by Google Benchmark's compare.py
            self.assertTrue(all(key in entry for entry in whole["benchmarks"]), key)
        calls = whole["context"]["calls"]
        self.assertEqual(len(calls), 3)
        self.assertTrue(all(call["gpu_uuid"] and "program.py" in call["command"] for call in calls))

    def test_what_failed_is_said_and_tried_again_after_the_others(self):
        of = (part("bad", "forward", sys.executable, "-c", "import sys; print('row 3 is wrong'); sys.exit(1)"), part("good", "masked", *self.racing, "1"))
        code, said = self.call(of)
        self.assertEqual(code, 1)
        self.assertIn("row 3 is wrong", said)
        self.assertFalse((self.folder / "R/forward.json").exists())
        code, said = self.call((part("bad", "forward", *self.racing, "1"), of[1], part("new", "fp8", *self.racing, "1")))
        self.assertEqual(code, 0)
        self.assertLess(said.index("new  "), said.index("bad  "))
        self.assertNotIn("good  ", said)

    def test_one_release_is_of_one_card_and_commit(self):
        of = (part("a", "forward", *self.racing, "2", resumes=True),)
        self.call(of)
        for changed in ({"gpu": "NVIDIA H100"}, {"commit": "def"}):
            code, said = self.call(of, **changed)
            self.assertEqual(code, 2)
            self.assertIn("name another folder", said)
        self.assertEqual(self.call(of, gpu="")[0], 77)
        self.assertEqual(self.call(of, commit="unknown")[0], 2)

    def test_what_only_the_older_file_has_stays_with_its_own_call(self):
        entry = lambda n, time, call: {"name": STEP.format(n), "run_type": "iteration", "real_time": time, "time_unit": "ms", "call": call}
        call = lambda day: {"date": f"2026-01-0{day}T12:00:00+00:00", "machine": "gpu", "gpu": "NVIDIA H200", "commit": f"of{day}"}
        older = {"context": call(2) | {"calls": [call(1), call(2)]}, "benchmarks": [entry(64, 1.0, 0), entry(128, 2.0, 1), entry(256, 3.0, 1)]}
        newer = {"context": call(3) | {"calls": [call(3)]}, "benchmarks": [entry(64, 0.5, 0)]}
        found = release.beside_older(newer, older)
        self.assertEqual({run["name"]: (run["real_time"], found["context"]["calls"][run["call"]]["commit"]) for run in found["benchmarks"]},
                         {STEP.format(64): (0.5, "of3"), STEP.format(128): (2.0, "of2"), STEP.format(256): (3.0, "of2")})
        self.assertEqual((found["context"]["commit"], len(found["context"]["calls"])), ("of3", 2))

    def test_of_a_result_of_two_parts_the_one_with_more_contestants_is_kept(self):
        entry = lambda time, **ratios: {"name": STEP.format(64), "real_time": time, "time_unit": "ms", "call": 0} | ratios
        context = {"date": "2026-01-01T12:00:00+00:00", "machine": "gpu", "gpu": "NVIDIA H200", "commit": "abc"}
        for runs in ([entry(1.0), entry(2.0, vs_fa3=1.0)], [entry(2.0, vs_fa3=1.0), entry(1.0)]):
            found = release.beside_older({"context": context, "benchmarks": runs},
                                         {"context": context, "benchmarks": [entry(3.0, vs_fa3=1.0)]})
            self.assertEqual([run["real_time"] for run in found["benchmarks"]], [2.0])

    def filed(self, *runs_of_parts, gpu="NVIDIA H200"):
        """Returns the output of --file, and the folder of results."""
        (self.folder / "program.py").write_text(PROGRAM.replace("NVIDIA H200", gpu))
        of = tuple(part(name, "forward", *self.racing, cells, resumes=True) for name, cells in runs_of_parts)
        self.call(of, gpu=gpu)
        done = mock.Mock(returncode=0)
        with mock.patch.object(results, "RESULTS", self.folder / "results"), mock.patch.object(results, "ROOT", self.folder), \
                mock.patch.object(release, "ROOT", self.folder), mock.patch.object(release, "lacking", lambda state: []), \
                mock.patch.object(release.subprocess, "run", return_value=done) as self.ran:
            code, said = self.call(of, "--file", gpu=gpu)
        self.assertEqual(code, 0, said)
        return said, self.folder / "results"

    def test_a_release_is_filed_condensed(self):
        said, folder = self.filed(("a", "1"))
        self.assertIn("results/h200/forward.tsv", said)
        [entry] = results.load(folder / "h200").history
        self.assertEqual((entry.name, entry.milliseconds, entry.values["FLOPS"], entry.context["commit"]), (STEP.format(64), 1.0, 1e12, "abc"))
        self.assertIn("program.py", entry.context["command"])
        self.assertEqual({path.name for path in (folder / "h200").iterdir()}, {"forward.tsv", results.CONTEXT})
        self.assertEqual([call.args[0][1:] for call in self.ran.call_args_list], [["docs/tools/quote.py"], ["bench/rungs.py"]])


if __name__ == "__main__":
    unittest.main()
