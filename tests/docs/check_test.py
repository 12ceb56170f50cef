#!/usr/bin/env python3
"""What docs/check.py says of kernel pages with too little prose, and of code in a page's text."""
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs import check
from docs.tools import book

FIGURE = "//| ![What one sees](figure.svg)"


def code(lines):
    return [f"int x{i};" for i in range(lines)]


def prose(words):
    return ["//| " + "word " * words]


class Handlers(unittest.TestCase):
    def test_code_in_attributes_is_ours_or_doxygens(self):
        for tag in ('<img src=x onerror="alert(1)">', "<b ONCLICK='toggleLevel(alert(1))'>", "<svg onload=x()>", "<a onfocus=toggleLevel(1);x()>"):
            self.assertEqual(len(check.Addresses(tag).handlers), 1, tag)
        for tag in ('<span onclick="javascript:toggleLevel(2);">', "<img onclick=\"toggleFolder('0_')\">", '<p data-on="x()"></p>'):
            self.assertEqual(check.Addresses(tag).handlers, [], tag)


class Prose(unittest.TestCase):
    def faults(self, *parts):
        """What is said of a file of these lines."""
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "kernel.cuh"
            file.write_text("\n".join(line for part in parts for line in part) + "\n", encoding="utf-8")
            return list(check.check_prose(book.Page("kernel", str(file), "A kernel")))

    def test_enough_is_enough(self):
        self.assertEqual(self.faults([FIGURE], prose(50), code(25), prose(50), code(25)), [])

    def test_words(self):
        (fault,) = self.faults([FIGURE], prose(20), code(25))  # and three in the figure's words
        self.assertRegex(fault, r"words of prose for 25 lines of code")

    def test_lines_without_a_word(self):
        (fault,) = self.faults([FIGURE], prose(100), code(26))
        self.assertRegex(fault, r"kernel.cuh:3: 26 lines of code without a word")

    def test_a_figure(self):
        (fault,) = self.faults(prose(50), code(25))
        self.assertRegex(fault, "there is no figure")

    def test_empty_lines_do_not_count(self):
        self.assertEqual(self.faults([FIGURE], prose(50), code(25), ["", ""]), [])


class Chapters(unittest.TestCase):
    def test_only_device_code_is_held_to_it(self):
        def names():
            return {page.path.name for page in book.pages() if check.has_prose_to_check(page)}

        self.assertIn("step1_split_q.cuh", names())
        self.assertIn("softmax.h", names())  # of common/hopper
        self.assertNotIn("chapter.cu", names())

    def faults(self, check_page, text):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "README.md"
            file.write_text(text, encoding="utf-8")
            return list(check_page(book.Page("chapter", str(file), "A chapter")))

    def test_length_counts_neither_code_nor_comments(self):
        hidden = "<!-- " + "word " * 5000 + "-->\n```text\n" + "word " * 5000 + "\n```\n"
        self.assertEqual(self.faults(check.check_length, hidden + "word " * 4500), [])
        (fault,) = self.faults(check.check_length, hidden + "word " * 4501)
        self.assertRegex(fault, "4501 words; 4500 are allowed")

    def test_boxes_have_an_order(self):
        def page(*labels):
            return "## Step 1: one\n\n" + "\n>\n".join(f"> **{label}.** So." for label in labels) + "\n"

        for middle in (["Predicted", "Measured"], ["Predicted", "Measured", "Explained"], ["Explained", "Measured"]):
            self.assertEqual(self.faults(check.check_boxes, page("Limit before", "Removed", *middle, "Limit now")), [])
        for labels in ([], ["Limit before", "Removed", "Measured", "Limit now"], ["Removed", "Limit before", "Predicted", "Measured", "Limit now"]):
            (fault,) = self.faults(check.check_boxes, page(*labels))
            self.assertRegex(fault, "Step 1: one: its box says")


if __name__ == "__main__":
    unittest.main()
