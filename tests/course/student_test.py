#!/usr/bin/env python3
"""What students run: what course try and course watch show, without building anything."""
import sys
import unittest
from pathlib import Path

COURSE = Path(__file__).resolve().parents[2] / "course"
sys.path.insert(0, str(COURSE))

import attempt  # noqa: E402
import gtest  # noqa: E402
import manifest  # noqa: E402
import try_exercise  # noqa: E402
import watch  # noqa: E402


def tried(id, *passed, file="a.cuh", needs=(), errors=""):
    tests = [manifest.Test(f"A.{i}", f"test {i}", 5) for i in range(len(passed) or 2)]
    e = manifest.Exercise(id, f"about {id}", "write", file, "Think twice.", list(needs), "01_one", tests)
    verdicts = [gtest.Verdict(ok, "" if ok else f"{test.name} is wrong\nvery") for ok, test in zip(passed, tests)]
    return attempt.Attempt(e, errors, verdicts)


class Try(unittest.TestCase):
    def test_shows_the_message_and_nothing_of_the_machinery(self):
        text = try_exercise.text(tried("ch01-a", True, False))
        self.assertEqual(text.splitlines(), ["", "  pass  test 0", "  FAIL  test 1", "        A.1 is wrong", "        very", "",
                                             "ch01-a: 1 of 2 tests pass"])
        self.assertTrue(try_exercise.text(tried("ch01-a", True)).endswith("ch01-a: solved"))

    def test_of_a_log_only_the_errors(self):
        log = f"[1/2] Building\n{manifest.ROOT}/a.cuh:3:1: error: expected ;\n  3 | x\nninja: stopped\n"
        self.assertTrue(attempt.errors_of(log).startswith("a.cuh:3:1: error: expected ;"))
        self.assertEqual(attempt.errors_of("cmake: gone"), "cmake: gone")


class Watch(unittest.TestCase):
    def test_shows_the_first_failure_only(self):
        attempts = [tried("ch01-a", True, True), tried("ch01-b", True, False, False), tried("ch01-c", False, file="c.cuh")]
        text = watch.screen(attempts, watch.focus_of(attempts))
        self.assertIn("1 of 3 exercises, 15 of 30 points", text)
        self.assertIn("A.1 is wrong", text)
        self.assertNotIn("A.2 is wrong", text)
        self.assertNotIn("A.0 is wrong", text)
        self.assertNotIn("Think twice", text)
        self.assertIn("Hint: Think twice.", watch.screen(attempts, watch.focus_of(attempts), hint=True))

    def test_stays_with_the_file_that_was_saved(self):
        attempts = [tried("ch01-a", False), tried("ch01-c", False, file="c.cuh"), tried("ch01-d", True, file="d.cuh")]
        self.assertEqual(watch.focus_of(attempts).exercise.id, "ch01-a")
        self.assertEqual(watch.focus_of(attempts, "c.cuh").exercise.id, "ch01-c")
        self.assertEqual(watch.focus_of(attempts, "d.cuh").exercise.id, "ch01-a")
        self.assertIn("All solved.", watch.screen([tried("ch01-a", True)], watch.focus_of([tried("ch01-a", True)])))

    def test_an_error_of_the_compiler_comes_first(self):
        broken = tried("ch01-a", errors="a.cuh:3:1: error")
        self.assertIn("FAIL  it does not compile\n  a.cuh:3:1: error", watch.screen([broken], watch.focus_of([broken])))

    def test_what_stands_on_a_saved_file_is_run_again(self):
        exercises = [tried("ch01-a", True).exercise, tried("ch01-b", True, file="b.cuh", needs=["ch01-a"]).exercise,
                     tried("ch01-c", True, file="c.cuh").exercise]
        self.assertEqual([e.id for e in watch.touched(exercises, {"a.cuh"})], ["ch01-a", "ch01-b"])
        self.assertEqual([e.id for e in watch.touched(exercises, {"c.cuh"})], ["ch01-c"])


if __name__ == "__main__":
    unittest.main()
