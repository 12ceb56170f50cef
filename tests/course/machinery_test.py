#!/usr/bin/env python3
"""Tests the course's machinery on small generated trees: regions, manifests, hand-outs, and the faults that the check reports."""
import json
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

COURSE = Path(__file__).resolve().parents[2] / "course"
sys.path.insert(0, str(COURSE.parent))

from course import check, digests, handout, manifest, progress, proof, regions

STUB = """\
int answer() {
  // BEGIN EXERCISE ch01-answer: the answer
  // TODO: the answer.

  return 0;
  // END EXERCISE ch01-answer
}
"""
SOLUTION = """\
  const int six = 6;  // half a dozen
  return six * 7 + some_longer_expression;
"""
FILE, SOLUTION_FILE = "chapters/01_one/exercises/answer.cuh", "course/solutions/01_one/ch01-answer.cuh"
ENTRY: dict[str, Any] = {"id": "ch01-answer", "title": "the answer", "kind": "mend", "file": "exercises/answer.cuh", "hint": "It is a `number`.",
         "tests": [{"name": "Answer.IsRight", "title": "the answer", "points": 60},
                   {"name": "Answer.IsReallyRight", "title": "really", "points": 40, "hidden": True}]}
PAGE = """\
# One

## Exercises

### ch01-answer: the answer

In exercises/answer.cuh.

    ./flashbook course try ch01-answer

<details>
<summary>Hint</summary>

It is a
`number`.

</details>
"""


class Written(unittest.TestCase):
    """Tests that the text between a student's markers is read and replaced."""

    def faults(self, *lines):
        return regions.written("\n".join(lines), "a.cuh")[1]

    def test_between_the_markers_only(self):
        text = STUB.replace("return 0;", "return 42;").replace("int answer()", "int hacked()")
        found, faults = regions.written(text, "a.cuh")
        self.assertEqual(faults, {})
        self.assertEqual(found["ch01-answer"].lines, ["  // TODO: the answer.", "", "  return 42;"])
        self.assertEqual(regions.graft(STUB, found), STUB.replace("return 0;", "return 42;"))
        self.assertEqual(regions.graft(STUB, {}), STUB)
        grafted = regions.graft(STUB, found, "a.cuh")
        self.assertEqual(grafted.splitlines(), [
            "int answer() {", "  // BEGIN EXERCISE ch01-answer: the answer", '#line 3 "a.cuh"', "  // TODO: the answer.", "", "  return 42;",
            '#line 6 "a.cuh"', "  // END EXERCISE ch01-answer", "}"])

    def test_what_is_wrong_is_said_with_its_line(self):
        begin, end = "// BEGIN EXERCISE x: y", "// END EXERCISE x"
        gone = "x never ends: put the line '// END EXERCISE x' back"
        self.assertEqual(self.faults("code", begin, "code"), {"x": f"a.cuh:2: {gone}"})
        self.assertEqual(self.faults("code", end), {"x": "a.cuh:2: x ends but never began: put the line '// BEGIN EXERCISE x' back"})
        self.assertEqual(self.faults(begin, "// BEGIN EXERCISE z: y", "// END EXERCISE z"), {"x": f"a.cuh:1: {gone}"})
        self.assertEqual(set(self.faults(begin, "// END EXERCISE z")), {"x", "z"})
        self.assertEqual(self.faults(begin, end, begin, end), {"x": "a.cuh:3: x occurs twice: keep one of them"})
        self.assertEqual(self.faults(begin, end), {})

    def test_what_the_grader_does_not_read(self):
        self.assertEqual(regions.around("a\n// BEGIN EXERCISE x: y\nb\n// END EXERCISE x\nc \n"),
                         "a\n// BEGIN EXERCISE x: y\n// END EXERCISE x\nc")


class Tree(unittest.TestCase):
    """A book of one chapter with one exercise, in a temporary folder."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name)
        self.root = self.top / "book"
        self.write("chapters/01_one/kernel.cuh", "kernel\n")
        self.write(FILE, STUB)
        self.write(SOLUTION_FILE, SOLUTION)
        self.write("chapters/01_one/README.md", PAGE)
        self.write("chapters/01_one/exercises/exercises.json", json.dumps([ENTRY]))
        self.write("chapters/01_one/host/CMakeLists.txt", "one()\n")
        self.write("tests/exercises/CMakeLists.txt", "all()\n")
        self.write("tests/course/CMakeLists.txt", "not for students\n")
        self.write("tests/exercises/ch01-answer.cpp", "test\n")
        self.write("course/agents.md", "Explain, and solve nothing.\n")
        self.write("course/workflow.yml", "on: push\n")
        self.write("course/student.md", "Welcome.\n\n<!-- exercises -->\n")
        self.write("flashbook", "#!/bin/sh\n").chmod(0o755)
        self.write("notes.txt", "not for students\n")
        self.write("tests/exercises/hidden/ch01-answer.cpp", "hidden test\n")
        self.write("chapters/01_one/draft.txt", "not for students\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def entries(self, *entries):
        self.write("chapters/01_one/exercises/exercises.json", json.dumps(entries))

    def files(self, folder):
        return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


class Handout(Tree):
    def test_has_what_students_need_and_nothing_else(self):
        target = self.top / "student"
        handout.make(self.root, target)
        self.assertEqual(self.files(target), {
            "README.md", "AGENTS.md", ".github/workflows/exercises.yml", "course/as_handed_out.json", "flashbook", "chapters/01_one/host/CMakeLists.txt", "tests/exercises/CMakeLists.txt", "chapters/01_one/README.md", "chapters/01_one/kernel.cuh",
            FILE, "chapters/01_one/exercises/exercises.json", "tests/exercises/ch01-answer.cpp"})
        self.assertEqual((target / FILE).read_text(), STUB)
        self.assertIn('"title": "really"', (target / "chapters/01_one/exercises/exercises.json").read_text())  # the title only
        self.assertIn("| mend: the answer | `chapters/01_one/exercises/answer.cuh` | 100 |  |", (target / "README.md").read_text())
        self.assertTrue((target / "flashbook").stat().st_mode & 0o111)

    def test_up_to_a_chapter(self):
        self.write("chapters/02_two/kernel.cuh", "kernel\n")
        self.write("chapters/02_two/exercises/answer.cuh", STUB.replace("ch01", "ch02"))
        self.write("chapters/02_two/exercises/exercises.json", json.dumps([{**ENTRY, "id": "ch02-answer"}]))
        self.write("chapters/02_two/host/CMakeLists.txt", "two()\n")
        self.write("tests/exercises/ch02-answer.cpp", "test\n")
        self.write("chapters/01_one/README.md", PAGE + "[next](../02_two/kernel.cuh)\n")
        one, two, both = self.top / "one", self.top / "two", self.top / "both"
        self.assertEqual([e.id for e in handout.make(self.root, one, chapters=["01"])], ["ch01-answer"])
        self.assertFalse([name for name in self.files(one) if "02" in name])
        self.assertEqual((one / "chapters/01_one/README.md").read_text(), PAGE + "next\n")
        self.assertEqual([e.id for e in handout.make(self.root, two, chapters=["02"])], ["ch01-answer", "ch02-answer"])
        handout.make(self.root, both)
        self.assertEqual(self.files(two), self.files(both))
        with self.assertRaisesRegex(regions.Fault, "chapter 03 has no exercises: give any of 01, 02"):
            handout.make(self.root, self.top / "three", chapters=["01", "03"])

    def three_chapters(self):
        for number, name in (("02", "02_two"), ("03", "03_three")):
            self.write(f"chapters/{name}/exercises/answer.cuh", STUB.replace("ch01", f"ch{number}"))
            self.write(f"chapters/{name}/exercises/exercises.json", json.dumps([{**ENTRY, "id": f"ch{number}-answer", "minutes": 20}]))
            self.write(f"course/solutions/{name}/ch{number}-answer.cuh", SOLUTION.replace("six", f"six_of_{number}"))

    def test_chosen_chapters_with_those_between_them_solved(self):
        self.three_chapters()
        tree = self.top / "some"
        self.assertEqual([e.id for e in handout.make(self.root, tree, chapters=["01", "03"])], ["ch01-answer", "ch03-answer"])
        for folder, solved in (("01_one", False), ("02_two", True), ("03_three", False)):
            self.assertEqual("six_of_02" in (tree / "chapters" / folder / "exercises/answer.cuh").read_text(), solved)
        self.assertIn("exercises/answer.cuh` | solved | |", (tree / "README.md").read_text())
        self.assertIn("exercises/answer.cuh` | 100 | 20 |", (tree / "README.md").read_text())
        self.assertEqual(list(json.loads((tree / "course/as_handed_out.json").read_text())), [FILE, "chapters/03_three/exercises/answer.cuh"])
        with mock.patch("course.manifest.ROOT", tree), mock.patch("course.manifest.load", return_value=manifest.load(tree)):
            self.assertEqual([e.id for e in progress.to_be_done()], ["ch01-answer", "ch03-answer"])

    def test_warns_of_what_answers_an_exercise(self):
        self.three_chapters()
        loop = "for (int i = 0; i < count; ++i) {\n  const float next = exp(values[i] - largest);\n  sum += next * weights[i];\n}\nreturn sum / seen;\n"
        self.write("course/solutions/02_two/ch02-answer.cuh", loop)
        self.write(SOLUTION_FILE, loop.replace("sum", "total").replace("next", "e"))
        self.write("chapters/03_three/README.md", f"```cpp\n{SOLUTION.replace('six', 'six_of_03')}```\n")
        exercises = handout.make(self.root, self.top / "some", chapters=["01", "03"])
        self.assertEqual(list(handout.answering(self.root, self.top / "some", exercises)), [
            "chapters/02_two/exercises/answer.cuh contains the solution of ch01-answer with other names",
            "chapters/03_three/README.md contains the solution of ch03-answer"])
        self.write("tests/exercises/ch01-answer.cpp", "PREDICTION(Counts, Maximum, maximum) { return p.first; }\n")
        handout.make(self.root, self.top / "formulas", chapters=["01"])
        self.assertIn("tests/exercises/ch01-answer.cpp contains the formulas that it asks for", list(handout.answering(self.root, self.top / "formulas", exercises)))
        self.write("tests/exercises/ch01-answer.cpp", "test\n")
        clean = handout.make(self.root, self.top / "clean", chapters=["01"])
        self.assertEqual(list(handout.answering(self.root, self.top / "clean", clean)), [])

    def test_marks_of_scripts_are_left_out_of_pages(self):
        self.write("chapters/01_one/README.md", PAGE + "<!-- table x -->\n| a |\n<!-- /table -->\nIt has <!-- num a b .0f -->7<!-- /num --> rows.\n")
        handout.make(self.root, self.top / "student")
        self.assertEqual((self.top / "student/chapters/01_one/README.md").read_text(), PAGE + "| a |\nIt has 7 rows.\n")

    def test_links_to_what_stays_at_home_become_text(self):
        kept = "[there](kernel.cuh#L3) [a folder](exercises) [web](https://a.org) `[x](gone)` [up](#exercises) ![plot](gone.svg)\n"
        self.write("chapters/01_one/README.md", PAGE + "[`here`](../../bench/results#now), " + kept)
        handout.make(self.root, self.top / "student")
        self.assertEqual((self.top / "student/chapters/01_one/README.md").read_text(), PAGE + "`here`, " + kept)

    def test_refuses_a_folder_with_something_in_it(self):
        for occupied in (self.root, self.root / "flashbook"):
            before = self.files(self.root)
            with self.assertRaisesRegex(regions.Fault, "already there: name a folder that is new or empty"):
                handout.make(self.root, occupied)
            self.assertEqual(self.files(self.root), before)

    def test_does_not_take_what_git_ignores(self):
        self.write(".gitignore", "old.cuh\n")
        self.write("chapters/01_one/old.cuh", "old\n")
        subprocess.run(["git", "init", "-q", self.root], check=True)
        handout.make(self.root, self.top / "student")
        files = self.files(self.top / "student")
        self.assertIn("chapters/01_one/kernel.cuh", files)
        self.assertNotIn("chapters/01_one/old.cuh", files)


class Check(Tree):
    def in_handout(self, change=lambda tree: None):
        tree = self.top / "student"
        exercises = handout.make(self.root, tree)
        change(tree)
        return list(check.handout_faults(self.root, tree, exercises))

    def test_a_solution_that_is_somewhere_else_too(self):
        copy = "x;\nconst int six  = 6;\n\n// why not\n return six * 7 + some_longer_expression;\n"
        self.write("chapters/01_one/copy.cuh", copy)
        self.write("chapters/01_one/README.md", PAGE + f"```cpp\n{SOLUTION}```\n")
        self.assertEqual(self.in_handout(), [f"hand-out: chapters/01_one/{name} contains the solution of ch01-answer" for name in ("README.md", "copy.cuh")])


class TheBook(unittest.TestCase):
    """Tests of the real tree that need no build."""

    def test_no_answer_is_in_memory_while_a_kernel_runs(self):
        """Tests that no solution is where a student's kernel could read it."""
        for file in sorted((manifest.ROOT / "tests/exercises").rglob("*.cu")):
            text = file.read_text()
            run, want = re.search(r"\brun(?:_on_ranks)?\(", text), re.search(r"\bwant\b|\bmake_gradient_reference\(", text)
            if run and want:
                self.assertLess(run.start(), want.start(), file.name)

    def test_has_no_fault(self):
        root = manifest.ROOT
        exercises = manifest.load(root)
        self.assertEqual([*check.region_faults(root, exercises), *check.page_faults(root, exercises)], [])
        for whole, own in manifest.wholes(exercises).items():
            self.assertEqual(manifest.points_fault(own), "", whole)
        for e in exercises:
            if e.kind == "predict":  # cheats must not find a formula here
                test = (root / "tests/exercises" / digests.source(root, e).name).read_text()
                self.assertIn("DIGESTS(", test)
                self.assertNotRegex(test, r"PREDICTION|return", e.id)
        self.assertGreaterEqual(len(proof.wrong_solutions(root, exercises)), proof.AT_LEAST)
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "student"
            handout.make(root, tree)
            self.assertEqual(list(check.handout_faults(root, tree, exercises)), [])
            told = subprocess.run([sys.executable, tree / "course/progress.py", "next"], capture_output=True, text=True, check=True).stdout
            self.assertIn(f"./flashbook course try {told.split()[1].rstrip(',')}\n", (tree / "README.md").read_text())

    def test_a_chapter_s_first_exercise_has_code(self):  # the hand-out begins with it and traces it
        for whole, own in manifest.wholes(manifest.load()).items():
            self.assertNotEqual(own[0].kind, "predict", whole)


class Derivations(unittest.TestCase):
    """The written questions of weeks.md, which a teacher grades."""
    WEEKS = re.split(r"^### Week ", (manifest.ROOT / "docs/pages/weeks.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]

    def test_each_week_has_one_of_ten_points(self):
        self.assertEqual([int(week.partition(":")[0]) for week in self.WEEKS], list(range(1, 13)))
        for week in self.WEEKS:
            self.assertEqual(sum(map(int, re.findall(r"\*\*(\d+)\*\*$", week, re.MULTILINE))), 10, week[:40])


if __name__ == "__main__":
    unittest.main()
