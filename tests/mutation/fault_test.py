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
    def test_compares_what_every_compiler_says(self):
        fence = "```text\n{}\n```\n"
        self.assertEqual(page.comparable(fence.format("data race on 16\n  thread 0")), page.comparable(fence.format("data race on 32\n  warp 1")))
        self.assertEqual(page.comparable(fence.format("lane 31 is not")), page.comparable(fence.format("lane 30 is not")))
        self.assertNotEqual(page.comparable(fence.format("lane 31 is not")), page.comparable(fence.format("lane 31 is")))


if __name__ == "__main__":
    unittest.main()
