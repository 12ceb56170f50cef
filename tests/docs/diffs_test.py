#!/usr/bin/env python3
"""What changes from step to step, as pages draw it from the compiled files."""
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from docs.tools import diffs, pages

BEFORE = """
//| Prose.
void step(int tile) {
  load(tile);  // a reason
  multiply(tile);
}
"""
AFTER = """
template <bool kAhead>
void step(int tile) {
  // Another reason.
  if constexpr (kAhead) {
#pragma unroll
    load(tile + 1);
    commit();
  } else {
    load(tile);
  }
  if constexpr (!kAhead) wait(tile,
                              0);
  multiply(kAhead ? one : two);
  record(tile);
}
void other() {}
"""


class Difference(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "before.cuh").write_text(BEFORE, encoding="utf-8")
        (self.folder / "after.cuh").write_text(AFTER, encoding="utf-8")

    def drawn(self, words):
        return diffs.excerpt(pages.Marked("excerpt", tuple(words.split()), "", 0, 1, True), self.folder)

    def test_a_switch_that_is_on(self):
        self.assertEqual(self.drawn('before.cuh "void step" to after.cuh "void step" kAhead=1 -record'),
                         "```diff\n void step(int tile) {\n-  load(tile);\n-  multiply(tile);\n+#pragma unroll\n+  load(tile + 1);\n+  commit();\n"
                         "+  multiply(one);\n }\n```\n")

    def test_a_switch_that_is_off(self):
        self.assertEqual(self.drawn('before.cuh "void step" to after.cuh "void step" kAhead=0 context=0'),
                         "```diff\n-  multiply(tile);\n+  wait(tile,\n+                            0);\n+  multiply(two);\n+  record(tile);\n```\n")

    def test_one_file_with_a_switch(self):
        text = self.drawn('after.cuh "void step" kAhead=0 to after.cuh "void step" kAhead=1')
        self.assertIn("-  load(tile);\n", text)
        self.assertIn("+  commit();\n", text)
        self.assertIn("\n   record(tile);\n", text)

    def test_anchors_narrow(self):
        self.assertEqual(self.drawn('before.cuh "void step" "load(" to after.cuh "void step" "record("'),
                         "```diff\n-load(tile);\n+record(tile);\n```\n")

    def test_what_cannot_be_drawn_says_why(self):
        for words, why in (("before.cuh after.cuh", "a difference is"), ("before.cuh to none.cuh", "no none.cuh"),
                           ('before.cuh "void walk" to after.cuh', "has no 'void walk'"), ("before.cuh to before.cuh", "the same"),
                           ('before.cuh "void step to after.cuh', "quotation")):
            with self.assertRaisesRegex(pages.Refused, why):
                self.drawn(words)

    def test_lines_of_one_file_must_be_in_it(self):
        def excerpt(code):
            text = f"```cuda\n{code}\n```\n"
            self.assertEqual(diffs.excerpt(pages.Marked("excerpt", ("before.cuh",), text, 0, 1, True), self.folder), text)

        excerpt("  multiply(tile);\n}")
        excerpt("multiply(tile);")
        for code in ("multiply(tile)", "load(tile);\nmultiply(tile);", "Prose.", ""):
            with self.assertRaisesRegex(pages.Refused, "before.cuh has no such lines"):
                excerpt(code)


if __name__ == "__main__":
    unittest.main()
