#!/usr/bin/env python3
"""Texts between marks in pages: found, written, and told with their line where they are wrong."""
import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from docs.tools import made, pages

TABLE = "a\n<!-- traced split -->\n| 1 |\n| 2 |\n<!-- /traced -->\nb\n"


def refuse(place):
    raise pages.Refused("no such table")


class Filling(unittest.TestCase):
    def filled(self, page, text="", **options):
        return pages.filled(page, {"num": lambda _: text, "traced": lambda _: text}, **options)

    def test_writes_a_number_into_its_line(self):
        self.assertEqual(self.filled("It takes <!-- num a b .1f -->1<!-- /num --> ms.", "2"),
                         ("It takes <!-- num a b .1f -->2<!-- /num --> ms.", [(1, "says '1', and should say '2'")], []))

    def test_writes_a_table_below_its_mark(self):
        page, stale, refused = self.filled(TABLE, "| 1 |\n| 3 |\n")
        self.assertEqual(page, TABLE.replace("2", "3"))
        self.assertEqual((stale, refused), ([(4, "traced split: says\n  | 2 |\nand should say\n  | 3 |")], []))
        self.assertEqual(self.filled(page, "| 1 |\n| 3 |\n"), (page, [], []))
        self.assertEqual(self.filled("<!-- traced split --><!-- /traced -->", "| 1 |\n").page, "<!-- traced split -->\n| 1 |\n<!-- /traced -->")

    def test_a_table_that_is_too_short_is_stale(self):
        self.assertEqual([fault.line for fault in self.filled(TABLE, "| 1 |\n| 2 |\n| 3 |\n").stale], [5])
        self.assertEqual([fault.line for fault in self.filled(TABLE, "| 1 |\n").stale], [4])

    def test_makers_know_the_words(self):
        places = list(pages.marked("<!-- traced split -->\n<!-- /traced --> <!--num a  b --><!--/num-->", ["num", "traced"]))
        self.assertEqual([(place.kind, place.words) for place in places], [("traced", ("split",)), ("num", ("a", "b"))])

    def test_words_may_hold_what_ends_a_tag(self):
        self.assertEqual(self.filled('<!-- traced "run<T>(a" to b -->\n<!-- /traced -->\n', "t\n").page, '<!-- traced "run<T>(a" to b -->\nt\n<!-- /traced -->\n')

    def test_leaves_code_and_other_kinds_alone(self):
        for page in ("```\n" + TABLE + "```\n", "Write `<!-- num a -->1<!-- /num -->`.", "<!-- exercises -->\n", "<!-- table x -->\n<!-- /table -->"):
            self.assertEqual(self.filled(page, "new"), (page, [], []))

    def test_a_mark_in_a_marked_text_belongs_to_it(self):
        page = "<!-- traced a -->\n<!-- num x -->1<!-- /num -->\n<!-- /traced -->\n"
        self.assertEqual(self.filled(page, "t\n").page, "<!-- traced a -->\nt\n<!-- /traced -->\n")

    def test_says_what_is_not_closed(self):
        for page in ("<!-- num a -->1", "<!-- num a -->1 <!-- num b -->2<!-- /num -->"):
            mended, _, refused = self.filled(page, "3")
            self.assertEqual(refused[0], (1, "a num that is not closed: write <!-- /num --> behind it"))
            self.assertTrue(mended.startswith("<!-- num a -->1"))

    def test_what_cannot_be_made_stays_and_is_told(self):
        self.assertEqual(pages.filled(TABLE, {"traced": refuse}), (TABLE, [], [(2, "no such table")]))

    def test_marks_that_should_be_there_once(self):
        messages = [message for _, message in self.filled(TABLE + TABLE, "", expected=["traced split", "traced conflicts"]).refused]
        self.assertEqual(messages, ["should have <!-- traced split --> once, and has it 2 times",
                                    "should have <!-- traced conflicts --> once, and has it 0 times"])
        self.assertIn("none of those that are known", self.filled(TABLE, "", expected=["traced other"]).refused[0].message)

    def test_what_may_differ_is_not_stale_but_written(self):
        page, stale, _ = self.filled(TABLE, "| 8 |\n| 9 |\n", same=lambda text: "".join("N" if c.isdigit() else c for c in text))
        self.assertEqual((page, stale), (TABLE.replace("1", "8").replace("2", "9"), []))


class Updating(unittest.TestCase):
    def update(self, path, maker, check):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            return pages.update(path, {"traced": maker}, check), said.getvalue()

    def test_checks_without_writing_and_writes_without_complaint(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "page.md"
            path.write_text(TABLE)
            self.assertEqual(self.update(path, lambda _: "| 1 |\n| 3 |\n", check=True),
                             (False, f"{path}:4: traced split: says\n  | 2 |\nand should say\n  | 3 |\n"))
            self.assertEqual(path.read_text(), TABLE)
            self.assertEqual(self.update(path, lambda _: "| 1 |\n| 3 |\n", check=False), (True, ""))
            self.assertEqual(path.read_text(), TABLE.replace("2", "3"))
            self.assertFalse(self.update(path, refuse, check=False)[0])


class Made(unittest.TestCase):
    def test_a_mark_becomes_its_table_except_in_code(self):
        lines = ["a", "<!-- made variants Mask -->", "```", "<!-- made variants Mask -->", "```"]
        page = list(made.expanded(lines))
        self.assertEqual((page[0], page[1], page[-3:]), ("a", "| `Mask` | What it is | The formula |", lines[-3:]))

    def test_every_mark_of_a_page_is_known(self):
        for path in [*made.book.ROOT.glob("docs/pages/*.md"), *made.book.ROOT.glob("chapters/*/*.md")]:
            lines = path.read_text(encoding="utf-8").splitlines()
            self.assertEqual(bool(made.MARK.search("\n".join(lines))), list(made.expanded(lines)) != lines, path)

    def test_what_is_unknown_is_refused(self):
        for words in (["other"], ["variants"], ["variants", "Other"], ["wrong", "44"], ["mutations", "other"], ["golden", "more"]):
            with self.assertRaises(pages.Refused):
                made.table(*words)

    def test_a_fault_says_which_modes_must_report_it(self):
        table = made.table("mutations", "hopper_attention")
        self.assertIn("`two_blocks_share_the_registers` | **report:** all | `setmaxnreg_inc` |", table)
        self.assertIn("`copies_scores_before_the_wait` | **report:** traced<br>**wrong:** lazy | `accumulator register 0 is read` |", table)

    def test_a_wrong_answer_has_its_share_of_the_points(self):
        self.assertIn("| ch00-neighbours | mends the end alone | 3 of 32 |", made.table("wrong"))
        self.assertNotIn("ch00-", made.table("wrong", "01"))


if __name__ == "__main__":
    unittest.main()
