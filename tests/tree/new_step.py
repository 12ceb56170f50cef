"""Adding a step takes a row and a kernel file. A step is inserted before chapter 4's third in a copy of the tree (new_parts_test.py).
Everything that names a step must still mean the same one."""
import json
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ["04_flash_attention_2_quick"]
CHAPTER = Path("chapters/04_flash_attention_2")
NEW, NEXT = "one_stage", "two_stages"  # the new step, and the step that moves from 3 to 4
INCLUDE = f'#include "{CHAPTER}/step2_ldmatrix.cuh"\n'
ROW = f"""\
    row("{NEW}", "one stage", "The kernel of two stages under another name.",
        []<typename T, int kHeadDim>(For<T, kHeadDim>) {{ return tiled<kHeadDim>({NEW}<T, kHeadDim>, 5); }}),
"""
SEEN_BY_PYTHON = f"""\
import json, sys
sys.path[:0] = ["tests/mutation"]
import faults
from bench import parts, steps
from bench.names import Name
from docs.web import planted
print(json.dumps({{
    "numbers": {{step.slug: step.number for step in steps.of(4)}},
    "of a result": Name.parse("forward/ch04/{NEXT}/bf16/d64/full/n512").step,
    "measured": "ch04/{NEW}" in parts.BOOK_STEPS,
    "unknown to faults": [name for name, fault in faults.FAULTS.items() if not set(fault.steps) <= set(faults.ALL[int(name[-2:])])],
    "on the page": {{fault["name"]: fault["steps"] for fault in planted.about("04_flash_attention_2")["faults"]}}}}))
"""


def add_step(tree):
    """Writes the kernel file, and the row with its include."""
    kernel = (tree / CHAPTER / "step3_two_stages.cuh").read_text()
    (tree / CHAPTER / f"{NEW}.cuh").write_text(re.sub(rf"\b{NEXT}\(", f"{NEW}(", kernel))
    table = (tree / CHAPTER / "host" / "chapter.cu").read_text()
    before = table.index(f'    row("{NEXT}"')
    table = table[:before] + ROW + table[before:]
    (tree / CHAPTER / "host" / "chapter.cu").write_text(table.replace(INCLUDE, INCLUDE + f'#include "{CHAPTER}/{NEW}.cuh"\n'))


def row_of(tree, title):
    """Returns (number, cells) of a step's row in the chapter's table of results."""
    [(number, cells)] = re.findall(rf"^\| (\d+): {title} (\|.*)$", (tree / CHAPTER / "appendix.md").read_text(encoding="utf-8")
                                   + (tree / CHAPTER / "README.md").read_text(encoding="utf-8"), re.M)
    return number, cells


class NewStep(unittest.TestCase):
    tree = bin = Path()  # folders, set by new_parts_test.py

    def run_in_tree(self, *command):
        return subprocess.run(command, cwd=self.tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)

    def test_programs_know_it_by_slug_and_number(self):
        reports = []
        for step in (NEW, "3", NEXT, "4"):
            done = self.run_in_tree(self.bin / "04_flash_attention_2_quick", "--seqlen", "64", "--step", step, "--json", "report.json")
            self.assertEqual(done.returncode, 0, done.stdout)
            [report] = json.loads((self.tree / "report.json").read_text())["steps"]
            reports.append((report["step"], report["slug"]))
            # The book's time and TFLOP/s belong to the step that was measured. (A simulated time may be the same.)
            self.assertEqual(re.search(r"2\.24 ms +246\b", done.stdout) is not None, report["slug"] == NEXT, done.stdout)
        self.assertEqual(reports, [(3, NEW), (3, NEW), (4, NEXT), (4, NEXT)])
        done = self.run_in_tree(self.bin / "04_flash_attention_2_quick", "--step", "three_stages")
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"give split_q, ldmatrix, {NEW}, {NEXT}, ", done.stdout)

    def test_python_takes_numbers_from_the_table(self):
        done = self.run_in_tree(sys.executable, "-c", SEEN_BY_PYTHON)
        self.assertEqual(done.returncode, 0, done.stdout)
        found = json.loads(done.stdout)
        self.assertEqual(list(found["numbers"].items())[2:4], [(NEW, 3), (NEXT, 4)])
        self.assertEqual((found["of a result"], found["measured"], found["unknown to faults"]), (4, True, []))
        self.assertEqual(found["on the page"]["no_wait_04"], [found["numbers"]["tuned"]])

    def test_results_and_pages_still_belong_to_their_steps(self):
        self.assertEqual(row_of(ROOT, "two stages")[0], "3")
        for command in (["bench/rungs.py", "--check"], ["docs/tools/quote.py"], ["docs/tools/quote.py", "--check"]):
            done = self.run_in_tree(sys.executable, *command)
            self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(row_of(self.tree, "two stages"), ("4", row_of(ROOT, "two stages")[1]))
        self.assertEqual(row_of(self.tree, "one stage")[0], "3")
