#!/usr/bin/env python3
"""Tests what docs/check.py reports about code in a page's attributes, and about a chapter's length and boxes."""
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs import check
from docs.tools import book


class Handlers(unittest.TestCase):
    def test_code_in_attributes_is_ours_or_doxygens(self):
        for tag in ('<img src=x onerror="alert(1)">', "<b ONCLICK='toggleLevel(alert(1))'>", "<svg onload=x()>", "<a onfocus=toggleLevel(1);x()>"):
            self.assertEqual(len(check.Addresses(tag).handlers), 1, tag)
        for tag in ('<span onclick="javascript:toggleLevel(2);">', "<img onclick=\"toggleFolder('0_')\">", '<p data-on="x()"></p>'):
            self.assertEqual(check.Addresses(tag).handlers, [], tag)


class Chapters(unittest.TestCase):
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
