#!/usr/bin/env python3
"""Tests the students' commands, such as course try and course watch, without building anything."""
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

COURSE = Path(__file__).resolve().parents[2] / "course"
sys.path.insert(0, str(COURSE.parent))

from course import attempt, gtest, manifest, progress, try_exercise
from course.score import possible


def tried(id, *passed, file="a.cuh", trouble="", hidden=0, **change):
    """Returns an attempt whose visible tests pass as in `passed`, with `hidden` more tests that only the grader has."""
    shown = [manifest.Test(f"A.{i}", f"test {i}", 5) for i in range(len(passed) or 2)]
    kept = [manifest.Test(f"A.Hidden{i}", f"hidden test {i}", 2, hidden=True) for i in range(hidden)]
    e = manifest.Exercise(id, f"about {id}", "write", file, "Think twice.", "01_one", [*shown, *kept])
    verdicts = {test.name: gtest.Verdict(ok, "" if ok else f"{test.name} is wrong\nvery") for ok, test in zip(passed, shown)}
    return attempt.Attempt(e, trouble, verdicts=verdicts, **change)


class Try(unittest.TestCase):
    def test_shows_the_message_and_nothing_of_the_machinery(self):
        one = tried("ch01-a", False)
        [test] = one.exercise.tests
        causes = gtest.Causes()
        self.assertEqual(try_exercise.shown(test, one.verdicts[test.name], causes), "  FAIL  test 0\n        A.0 is wrong\n        very")
        self.assertEqual(try_exercise.shown(test, gtest.Verdict(True), causes), "  pass  test 0")

    def test_a_cause_is_told_in_full_once(self):
        causes, race = gtest.Causes(), "data race at a.cuh:{}: thread {} reads\nand a.cuh:9 wrote"
        first = f"{race.format(5, 1)} (0x7f620ce4a7d4)"
        self.assertEqual([causes.told(first, "six"), causes.told(first.replace("0ce4a", "1be07"), "seven")], [first, "The same as in the test 'six'."])
        for message, title, told in ((race.format(3, 7), "one", race.format(3, 7)), (race.format(3, 8), "two", "The same as in the test 'one'."),
                                     (race.format(4, 8), "three", race.format(4, 8)), (race.format(3, 9), "one", race.format(3, 9)),
                                     ("1 of 8 numbers are wrong", "four", "1 of 8 numbers are wrong"), ("2 of 8 numbers are wrong", "five", "2 of 8 numbers are wrong")):
            self.assertEqual(causes.told(message, title), told)
        self.assertEqual(gtest.each_once(["lane 1 is 3", "lane 1 is 3", "no", "lane 2 is 4"]), ["lane 1 is 3\nThe same 1 more time with other numbers.", "no"])

    def test_a_broken_guard_leaves_no_points(self):
        one = tried("ch01-a", True, False)
        one.exercise.tests[1].points = 0
        self.assertEqual((one.points, possible([one])), (0, 5))
        self.assertNotIn("no points while", try_exercise.summary(tried("ch01-a", False)))
        self.assertIn('It earns no points while a test "as before" fails', try_exercise.summary(one))

    def test_of_a_log_the_first_errors_and_what_they_show(self):
        root = manifest.ROOT
        log = (f"[1/2] Building\nFAILED: a.o\n/usr/bin/g++ -I{root}\n{root}/a.cuh:3:1: error: expected ;\n  3 | x\n    | ^\n"
               f"{root}/a.cuh:4:1: note: here\n{root}/b.h:9:1: error: no\nninja: build stopped\n")
        self.assertEqual(attempt.errors_of(log), "a.cuh:3:1: error: expected ;\n  3 | x\n    | ^\nb.h:9:1: error: no")
        self.assertEqual(attempt.errors_of("cmake: gone"), "cmake: gone")


class Source(unittest.TestCase):
    """Tests the checks before anything is built."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        patched = mock.patch("course.manifest.ROOT", Path(folder.name))
        patched.start()
        self.addCleanup(patched.stop)

    def write(self, *lines):
        (manifest.ROOT / "a.cuh").write_text("\n".join(lines) + "\n")

    def refusal(self, *lines):
        self.write(*lines)
        return attempt.refusal(tried("ch01-a", True).exercise)

    def test_what_the_grader_takes(self):
        self.assertEqual(self.refusal("// BEGIN EXERCISE ch01-a: a", "x = 1;", "// END EXERCISE ch01-a"), "")

    def test_what_the_grader_refuses(self):
        self.assertIn("a.cuh:2: preprocessor directives", self.refusal("// BEGIN EXERCISE ch01-a: a", "#define X", "// END EXERCISE ch01-a"))
        self.assertIn("put the line '// END EXERCISE ch01-a' back", self.refusal("// BEGIN EXERCISE ch01-a: a", "x = 1;"))
        self.assertIn("a.cuh has no lines", self.refusal("x = 1;"))
        (manifest.ROOT / "a.cuh").unlink()
        self.assertIn("a.cuh is gone", attempt.refusal(tried("ch01-a", True).exercise))

    def test_what_is_changed_where_the_grader_does_not_look(self):
        text = ["int a;", "// BEGIN EXERCISE ch01-a: a", "x", "// END EXERCISE ch01-a"]
        self.write(*text)
        one = tried("ch01-a", True).exercise
        self.assertEqual(attempt.strayed(one), [])  # the book itself
        (manifest.ROOT / "course").mkdir()
        digest = attempt.digest_outside((manifest.ROOT / "a.cuh").read_text())
        (manifest.ROOT / attempt.AS_HANDED_OUT).write_text(json.dumps({"a.cuh": digest}))
        self.write(*[line.replace("x", "y;\nz") + "\r" for line in text])
        self.assertEqual(attempt.strayed(one), [])
        self.write("int helper();", *text)
        self.assertIn("a.cuh was changed outside its exercise,", attempt.strayed(one)[0])


class Run(unittest.TestCase):
    def test_after_an_endless_test_no_other_runs(self):
        one, clock = tried("ch01-a"), iter([0, 20, 20, 20])
        with mock.patch("course.gtest.run", side_effect=[gtest.Verdict(False, "endless")]), mock.patch("time.monotonic", lambda: next(clock)):
            attempt.run(one, "lazy", attempt.nothing, one.exercise.tests)
        self.assertEqual([v.message for v in one.verdicts.values()], ["endless", "not run: an earlier test did not end"])

    def test_an_endless_test_and_a_deadlock_are_not_traced(self):
        launch, traced = "launch <<<(1,1,1), (256,1,1), 0>>>: ", gtest.Verdict(False, "data race at a.cuh:3")
        for verdict, is_traced in ((gtest.Verdict(False, "", gtest.STOPPED), False), (gtest.Verdict(False, f"{launch}deadlock in block (0,0,0): every thread waits"), False),
                                   (gtest.Verdict(False, f"{launch}livelock in block (0,0,0): threads poll"), False), (gtest.Verdict(False, "1 of 8 numbers are wrong."), True)):
            one = tried("ch01-a", False)
            one.verdicts["A.0"] = verdict
            with tempfile.TemporaryDirectory() as folder, mock.patch("course.attempt.BUILD", Path(folder)), \
                    mock.patch("course.attempt.has_twin", return_value=True), mock.patch("course.attempt.build", return_value=(True, "")) as build, \
                    mock.patch("course.modes.of", return_value=["traced"]), mock.patch("course.gtest.run", return_value=traced):
                self.assertEqual(attempt.race(one), traced.message if is_traced else "")
            self.assertEqual(build.called, is_traced)

    def test_says_in_which_mode_it_failed(self):
        one = tried("ch01-a")
        with mock.patch("course.gtest.run", side_effect=[gtest.Verdict(True), gtest.Verdict(False, "wrong")]):
            attempt.run(one, "random", attempt.nothing, one.exercise.tests)
        self.assertEqual([one.verdicts[test.name].message for test in one.failed], ["wrong\nIn the simulator's mode random; it passes in lazy."])


class Progress(unittest.TestCase):
    """Tests the records of attempts, in a copy where one of two exercises was tried."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for patched in (mock.patch("course.manifest.ROOT", Path(folder.name)), mock.patch("course.attempt.BUILD", Path(folder.name) / "build")):
            patched.start()
            self.addCleanup(patched.stop)
        self.one, self.two = tried("ch01-a", True, False, file="a.cuh"), tried("ch01-b", True, file="b.cuh")
        self.one.exercise.minutes = 20
        self.exercises = [self.one.exercise, self.two.exercise]
        for e in self.exercises:
            self.write(e, "x")

    def write(self, e, text):
        (manifest.ROOT / e.file).write_text(f"// BEGIN EXERCISE {e.id}: a\n{text}\n// END EXERCISE {e.id}\n")

    def test_shows_what_was_found_and_what_comes_next(self):
        self.assertIn("ch01-a               0/10   20 min  not tried", progress.table(self.exercises))
        self.assertIn("01_one: 0 of 15 points, about 20 minutes left", progress.table(self.exercises))
        progress.keep(self.one)
        progress.keep(self.two)
        self.assertIn("ch01-a               5/10   20 min  1 of 2 tests pass", progress.table(self.exercises))
        self.assertIn("ch01-b               5/5            solved", progress.table(self.exercises))
        self.assertIn("Next: ch01-a, write: about ch01-a (10 points, about 20 minutes; 1 of 2 tests pass)", progress.next_step(self.exercises))
        self.assertEqual(progress.next_step(self.exercises[1:]), "All exercises here are solved.")


PRINTS = """\
#!/bin/sh
for word; do case $word in --gtest_output=json:*) report=${word#*json:};; esac; done
echo 'Running main() from gtest_main.cc'
echo 'row_max 3'
echo '[1] mine'
printf '/a/b.cu:3: Failure\\nFailed\\n4 of 9 numbers are wrong\\n\\n[  FAILED  ] A.0 (0 ms)\\n 1 FAILED TEST\\n'
echo 'After 5 s it still runs, at a.h:7.'
sleep "$SECONDS_TO_RUN"
failures='{"failure": "/a/b.cu:3\\nFailed\\n4 of 9 numbers are wrong"}'
printf '{"testsuites": [{"testsuite": [{"status": "RUN", "failures": [%s]}]}]}' "$failures" >"$report"
"""


class Output(unittest.TestCase):
    """Messages show a student's output without GoogleTest's frame."""

    def verdict(self, seconds, sleeps):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program"
            program.write_text(PRINTS)
            program.chmod(0o755)
            return gtest.run(program, "A.0", {"SECONDS_TO_RUN": sleeps}, seconds)

    def test_of_a_test_that_fails(self):
        self.assertEqual(self.verdict(20, "0").message.splitlines(), [
            "4 of 9 numbers are wrong", "Its last output:", "row_max 3", "[1] mine", "After 5 s it still runs, at a.h:7."])

    def test_of_a_test_that_never_ends(self):
        message = self.verdict(3, "30").message
        self.assertIn("a loop that never ends?\nIts last output:\nrow_max 3\n", message)
        self.assertIn("at a.h:7", message)


if __name__ == "__main__":
    unittest.main()
