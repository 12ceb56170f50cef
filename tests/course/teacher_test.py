"""Tests of what teachers get beside the grader: slides, derivations."""
import json
import re
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from course import manifest, slides
from course.regions import Fault

ROOT = manifest.ROOT
CHAPTERS = sorted({e.number for e in manifest.load()})
WEEKS = list(slides.weeks(ROOT))


class Slides(unittest.TestCase):
    def test_figures_in_order_with_their_sections_and_captions(self) -> None:
        title, shown = slides.figures(ROOT, "03")
        self.assertEqual(title, "Chapter 3: FlashAttention-1")
        text = (ROOT / "chapters/03_flash_attention_1/README.md").read_text(encoding="utf-8")
        self.assertEqual([f"![{one.caption}]" for one in shown], re.findall(r"^!\[[^\]]*\]", text, re.MULTILINE))
        self.assertEqual([one.number for one in shown], [f"3.{i + 1}" for i in range(len(shown))])
        self.assertEqual({one.section for one in shown if one.file.name == "split_k.svg"}, {"Step 3: tensor cores, split-K warps"})

    def test_every_chapter_and_week_has_figures_that_are_there(self) -> None:
        for name in (*(chapter for chapter in CHAPTERS if chapter.isdigit()), *WEEKS):  # capstones have no figures
            title, shown = slides.figures(ROOT, name)
            self.assertTrue(title and shown, name)
            for one in shown:
                self.assertTrue(one.file.is_file() and one.caption, f"{name}: {one}")

    def test_a_week_has_what_it_reads_of_a_chapter(self) -> None:
        chapter = [one.number for one in slides.figures(ROOT, "05")[1]]
        first, second = ([one.number for one in slides.figures(ROOT, week)[1] if one.number] for week in ("week_07", "week_08"))
        self.assertEqual(first + second, chapter)

    def test_what_is_in_a_caption_is_text(self) -> None:
        page = slides.slides("A & B", [slides.Figure("1.1", "<i>", "a < b", ROOT / "a.svg")])
        for text in ("A &amp; B", "&lt;i&gt;", "a &lt; b", "<b>Figure 1.1.</b>"):
            self.assertIn(text, page)

    def test_there_are_none_of_what_is_not_there(self) -> None:
        for name in ("44", "week_13", "3"):
            with self.assertRaisesRegex(Fault, f"no slides of {name}: name a chapter, such as 03"):
                slides.figures(ROOT, name)

    def test_without_a_browser_there_is_a_page_to_print(self) -> None:
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(slides, "browser", return_value=None):
            with self.assertRaisesRegex(Fault, "03.html is not printed: apt-get install chromium"):
                slides.write(ROOT, "03", Path(folder) / "03.pdf")
            self.assertIn("loop_orders.svg", (Path(folder) / "03.html").read_text(encoding="utf-8"))

    @unittest.skipUnless(slides.browser(), "there is no Chromium")
    def test_a_page_of_the_pdf_for_the_title_and_for_each_figure(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "week_04.pdf"
            count = slides.write(ROOT, "week_04", out)
            self.assertEqual(len(re.findall(rb"/Type\s*/Page\b", out.read_bytes())), count + 1)


class Derivations(unittest.TestCase):
    PAGE = ROOT / slides.WEEKS

    def weeks(self) -> list[str]:
        return re.split(r"^### Week ", self.PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]

    def test_each_week_has_one_of_ten_points(self) -> None:
        self.assertEqual([int(week.partition(":")[0]) for week in self.weeks()], list(range(1, len(WEEKS) + 1)))
        for week in self.weeks():
            there, wrong = week.split("| A wrong answer |")
            self.assertEqual(sum(map(int, re.findall(r"\| (\d+) \|$", there, re.MULTILINE))), 10, week[:40])
            self.assertLess(max(map(int, re.findall(r"\| (\d+) \|$", wrong, re.MULTILINE))), 10, week[:40])

    def test_wrong_answers_are_those_that_the_grader_knows(self) -> None:
        known = {(one["exercise"], one["what"]) for path in ROOT.glob("course/solutions/*/wrong.json") for one in json.loads(path.read_text())}
        for week in self.weeks():
            found = re.findall(r"^\| (.*) \| (ch\d\d-\S+) \| \d+ \|$", week, re.MULTILINE)
            self.assertTrue(found, week[:40])
            self.assertEqual({(id, what) for what, id in found} - known, set())


if __name__ == "__main__":
    unittest.main()
