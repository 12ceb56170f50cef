"""What the lists of faults may say, and what becomes of a kernel's text."""
import unittest
from unittest.mock import patch

import fault
import page
import plant
from fault import Fault, Refused, everywhere

TEXT = "one;\ntwo;\nthree;\ntwo and a half;\n"


def a_fault(old="three;\n", new="3;\n", name="name", reports=None, **more):
    return Fault(name, "", old, new, {"lazy": "deadlock"} if reports is None else reports, **more)


class Planting(unittest.TestCase):
    def test_replaces_the_text(self):
        self.assertEqual(fault.planted("kernel", a_fault(), TEXT), "one;\ntwo;\n3;\ntwo and a half;\n")

    def test_lines_keep_their_numbers(self):
        mutant = fault.planted("kernel", a_fault("one;\ntwo;\n", "", also=[("half", "third")]), TEXT)
        self.assertEqual(mutant, "\n\nthree;\ntwo and a third;\n")

    def test_refuses_text_that_is_gone(self):
        with self.assertRaisesRegex(Refused, r"faults/kernel.py: name: its text stands 0 times in kernel.cuh"):
            fault.planted("kernel", a_fault("four;\n"), TEXT)

    def test_refuses_text_that_stands_twice(self):
        with self.assertRaisesRegex(Refused, "stands 2 times"):
            fault.planted("kernel", a_fault("two"), TEXT)

    def test_refuses_more_lines(self):
        with self.assertRaisesRegex(Refused, "1 lines more"):
            fault.planted("kernel", a_fault("one;", "one;\n"), TEXT)

    def test_a_mutant_has_a_namespace_and_says_what_it_expects(self):
        text = "#include <a>\n\nnamespace flashbook::kernel {\none;\n}  // namespace flashbook::kernel\n"
        mutant = plant.mutant("kernel", a_fault(), plant.body("tests/mutation/kernel.cuh", text))
        self.assertIn('#line 3 "tests/mutation/kernel.cuh"\nnamespace flashbook::kernel::name {\none;\n', mutant)
        self.assertIn('{{Mode::lazy, "deadlock"}}, 64, &flashbook::kernel::name::run<64>', mutant)

    def test_a_kernel_of_several_files_includes_what_is_not_its_own(self):
        files = {"a/one.cuh": '#include <a>\n#include "b.h"\n', "a/two.cuh": '#include "a/one.cuh"\n#include "b.h"\n#include "c.h"\n'}
        self.assertEqual(plant.includes(files), ["#include <a>", '#include "b.h"', '#include "c.h"'])


class Lists(unittest.TestCase):
    def refuses(self, *faults):
        with patch("importlib.import_module") as module:
            module.return_value.FAULTS = faults
            with self.assertRaises(Refused):
                fault.faults_of("kernel")

    def test_refuses_what_cannot_be_told_apart(self):
        self.refuses(a_fault(), a_fault())
        self.refuses(a_fault(name="not a name"))

    def test_refuses_what_cannot_fail(self):
        self.refuses(a_fault(reports={}))
        self.refuses(a_fault(reports=everywhere("")))
        self.refuses(a_fault(reports={"sometimes": "deadlock"}))


class Page(unittest.TestCase):
    def test_shows_a_reason_rather_than_a_wrong_result(self):
        reports = {"eager": "race at a|b 0x7f0684012e00\nmore", "lazy": "wrong result: O", "random": "", "traced": ""}
        self.assertEqual(page.told(a_fault(), reports), "`race at a\\|b 0x...`")
        self.assertEqual(page.told(a_fault(), {**reports, "eager": ""}), "a wrong result")

    def test_shows_the_thread_that_says_most(self):
        deadlock = "deadlock:\n  warp 0: exited\n  warp 1: waits for a\n  warp 2: waits for b"
        self.assertEqual(page.first_line(deadlock, "for b"), "deadlock:; warp 2: waits for b")
        self.assertEqual(page.first_line(deadlock, "for c"), "deadlock:; warp 1: waits for a")

    def test_compares_what_every_compiler_says(self):
        row = "| A fault.<br>`name` | **report:** all | `{}` |"
        same = lambda one, other: page.comparable(row.format(one)) == page.comparable(row.format(other))
        self.assertTrue(same("data race on 16: thread 0 wrote", "data race on 32: thread 1 read"))
        self.assertTrue(same("thread 31 exits", "thread 0 exits"))
        self.assertFalse(same("data race on 16", "thread 0 exits"))
        self.assertFalse(page.comparable("| 102 | 83 |") == page.comparable("| 102 | 84 |"))
        fence = "```text\n{}\n```\n"
        self.assertEqual(page.comparable(fence.format("data race on 16\n  thread 0")), page.comparable(fence.format("data race on 32\n  warp 1")))
        self.assertEqual(page.comparable(fence.format("lane 31 is not")), page.comparable(fence.format("lane 30 is not")))
        self.assertNotEqual(page.comparable(fence.format("lane 31 is not")), page.comparable(fence.format("lane 31 is")))

    def shown(self, reports, **fault):
        with patch("page.faults_of", return_value=[a_fault(**fault)]), patch("page.reports_of", return_value=reports):
            return page.shown_fault("kernel", "name", None)

    def test_shows_what_was_changed_and_the_first_report(self):
        report = "data race on 0x7f0684012e00\n  at kernel.cuh:3\n  at kernel.cuh:4\ndata race on another\n  at kernel.cuh:5"
        text = self.shown({"eager": "wrong result: O", "lazy": "", "random": "", "traced": report}, old="one;\ntwo;\n", new="one;\n2;\n")
        self.assertIn("```diff\n-two;\n+2;\n```", text)
        self.assertIn("In the traced mode", text)
        self.assertIn("```text\ndata race on 0x...\n  at kernel.cuh:3\n  at kernel.cuh:4\n```", text)

    def test_refuses_to_show_what_nobody_explains(self):
        for report in ("wrong result: O", ""):
            with self.assertRaisesRegex(Refused, "no report to show"):
                self.shown(dict.fromkeys(fault.MODES, report))


if __name__ == "__main__":
    unittest.main()
