#!/usr/bin/env python3
"""Tests what the site adds to a page: captions, colours of differences; and that colours have enough contrast."""
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "docs" / "figures"))

import svg

from docs.tools import finish, formulas
from docs.tools.book import Page
from docs.tools.github_markdown import Document


class Markdown(unittest.TestCase):
    """The book's own Markdown forms; markdown-it handles the rest."""

    def of(self, *lines):
        return Document("chapters/05_a/README.md").render(lines)

    def test_marks_of_numbers_are_not_shown_and_hide_nothing(self):
        for text in ("<!-- num a ms .1f -->18.0<!-- /num --> ms, *measured*", "It takes <!-- num a ms .1f -->18.0<!-- /num --> ms, *measured*"):
            self.assertRegex(self.of(text), r"^<p>(It takes )?18\.0 ms, <em>measured</em></p>$")
        self.assertIn("18.0<!-- /num", self.of("`<!-- num a -->18.0<!-- /num -->`").replace("&lt;", "<"))

    def test_formulas_stay_as_they_are(self):
        self.assertEqual(self.of("$a_1*b*c < d$, step 2"), "<p>\\(a_1*b*c &lt; d\\), step 2</p>\n")
        self.assertIn(r"\[\sum_i", self.of("```math", r"\sum_i x_i", "```"))

    def test_headings_have_githubs_anchors_once_each(self):
        self.assertEqual(re.findall(r'id="(.*?)"', self.of("## Step 1: `two` passes", "", "## Step 1: two passes")), ["step-1-two-passes", "step-1-two-passes-1"])


class Timelines(unittest.TestCase):
    def links(self, title, body=""):
        return re.findall(r"slug=(\w+/\w+)", finish.with_timelines(body, Page("kernel", "", title, chapter="05_flash_attention_3")))

    def test_a_step_links_to_both_of_its_timelines(self):
        self.assertEqual(self.links("Step 3: pingpong"), ["ch05/pingpong"] * 2)
        self.assertEqual(self.links("", '<h2 id="a">Step 1: TMA and WGMMA</h2><p>Step 2</p>'), ["ch05/single_warpgroup"] * 2)
        self.assertEqual(self.links("Steps 4 to 5: the rest"), ["ch05/overlap"] * 2 + ["ch05/persistent"] * 2)
        self.assertEqual(self.links("Step 6"), [])


class Formulas(unittest.TestCase):
    def test_no_line_begins_with_the_mark_behind_a_formula(self):
        bodies, complaints = formulas.render({"page": r"with \(d = 128\), and \(n\) keys"})
        self.assertEqual(complaints, [])
        self.assertRegex(bodies["page"], r'<span class="with-mark"><span class="base">(?:(?!"base").)*128</span></span><span>,</span></span></span></span><!-- end --> and')
        self.assertEqual(bodies["page"].count("with-mark"), 1)


def luminance(colour):
    parts = (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


class Contrast(unittest.TestCase):
    """Contrast of at least 4.5 to 1, which WCAG's level AA requires for text."""

    def test_figures(self):
        for colours in (svg.LIGHT, svg.DARK):
            for text in ("ink", "soft"):
                for ground in ("paper", "plain-fill", "blue-fill", "amber-fill", "green-fill"):
                    self.assertGreaterEqual(contrast(colours[text], colours[ground]), 4.5, (text, ground))
            for text in ("blue", "amber", "green", "red"):
                grounds = ["paper", "plain-fill", *([f"{text}-fill"] if f"{text}-fill" in colours else [])]
                for ground in grounds:
                    self.assertGreaterEqual(contrast(colours[text], colours[ground]), 4.5, (text, ground))

    def test_pages(self):
        css = (ROOT / "docs" / "site" / "site.css").read_text(encoding="utf-8")
        blocks = re.findall(r"html[^{}]*\{([^{}]*)\}", css)
        modes = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in blocks]
        modes = [mode for mode in modes if "page-foreground-color" in mode]
        self.assertEqual(len(modes), 3)  # light, dark by system setting, dark by choice
        self.assertEqual(modes[1], modes[2])
        for colours in modes:
            ground = colours.get("page-background-color", "#ffffff")
            for name in ("page-foreground-color", "page-secondary-foreground-color", "primary-color", "predicted", "measured", "careful"):
                for behind in (ground, colours["side-nav-background"]):
                    self.assertGreaterEqual(contrast(colours[name], behind), 4.5, (name, behind))
            for name in (name for name in colours if re.fullmatch(r"fragment-(?!background)\w+", name)):
                self.assertGreaterEqual(contrast(colours[name], colours["fragment-background"]), 4.5, name)


if __name__ == "__main__":
    unittest.main()
