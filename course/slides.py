#!/usr/bin/env python3
"""Prints a chapter's or a week's figures as slides: python3 course/slides.py NN|week_NN ... [--out FILE]. In the order of the page, each with its
section, its number on the site and its caption; a week of docs/pages/weeks.md has the figures of what is read before it. By headless Chromium,
into build/slides; the HTML that it prints stays next to the PDF. Exit code 2 if there is no such page, or no Chromium."""
import argparse
import html
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the packages, for python3 course/slides.py

from course import manifest
from course.regions import Fault

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FIGURE = re.compile(r"^(?:##+ (?P<section>.*)|!\[(?P<caption>[^\]]*)\]\((?P<file>[^)\s]+)\))$", re.MULTILINE)
WEEKS = Path("docs/pages/weeks.md")
WEEK = re.compile(r"^\| (?P<number>\d+): (?P<title>[^|]*) \| (?P<read>[^|]*) \|", re.MULTILINE)  # a row of its table
READ = re.compile(r"\]\((?P<page>[^)\s]*chapters/[^)\s]*README\.md)\)(?:, (?P<until>up to)? ?(?:from)? ?step (?P<step>\d))?")
PAGE = """\
<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8"><title>{title}</title>
<style>
  @page {{ size: 32cm 18cm; margin: 0 }}
  :root {{ color-scheme: light }}
  body {{ margin: 0; font-family: sans-serif; color: #222 }}
  section {{ box-sizing: border-box; width: 32cm; height: 18cm; padding: 1cm 1.4cm; display: flex; flex-direction: column; break-after: page }}
  section:last-child {{ break-after: auto }}
  h1 {{ margin: auto 0; font-size: 1.4cm }}
  h2 {{ margin: 0 0 .5cm; font-size: .8cm }}
  img {{ flex: 1; min-height: 0; object-fit: contain }}
  p {{ margin: .5cm 0 0; font-size: .52cm }}
</style>
{slides}
</html>
"""


@dataclass
class Figure:
    number: str  # as the site has it: 3.2
    section: str
    caption: str
    file: Path


def plain(text: str) -> str:
    """Markdown's text without its marks."""
    return re.sub(r"[`*$]|\[([^\]]*)\]\([^)]*\)", lambda found: found[1] or "", text)


def title_of(page: Path) -> str:
    return plain(page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# "))


def figures_of(page: Path, chapter: str = "") -> list[Figure]:
    """Those that stand alone on a line, in order."""
    found: list[Figure] = []
    section = title_of(page)
    for one in FIGURE.finditer(page.read_text(encoding="utf-8")):
        section = plain(one["section"]) if one["section"] else section
        if one["file"]:
            number = f"{chapter}.{len(found) + 1}" if chapter else ""
            found.append(Figure(number, section, one["caption"], (page.parent / one["file"]).resolve()))
    return found


def of_chapter(page: Path) -> list[Figure]:
    return figures_of(page, str(int(page.parent.name[:2])))


def step_of(figure: Figure) -> int:
    """The step that a figure's section is about: of what stands before the first 0, of what is behind the last as large as can be."""
    found = re.match(r"Step (\d)", figure.section)
    return int(found[1]) if found else -1


def weeks(root: Path) -> dict[str, tuple[str, str]]:
    """{name: (title, what to read before it)}, as slides are asked for: week_05."""
    text = (root / WEEKS).read_text(encoding="utf-8")
    return {f"week_{int(row['number']):02}": (f"Week {row['number']}: {row['title']}", row["read"]) for row in WEEK.finditer(text)}


def read_before(root: Path, text: str) -> Iterator[Figure]:
    """The figures of the chapters that a week reads, as far as it reads them."""
    for read in READ.finditer(text):
        step, latest = int(read["step"] or 0), 0
        for figure in of_chapter((root / WEEKS.parent / read["page"]).resolve()):
            latest = max(latest, step_of(figure))
            if not read["step"] or (latest <= step if read["until"] else latest >= step):
                yield figure


def figures(root: Path, name: str) -> tuple[str, list[Figure]]:
    """(title, figures) of a chapter, by its two digits, or of a week, such as week_05."""
    if name.startswith("week_"):
        if week := weeks(root).get(name):
            return week[0], list(read_before(root, week[1]))
    elif found := sorted(root.glob(f"chapters/{name}_*/README.md")):
        return title_of(found[0]), of_chapter(found[0])
    raise Fault(f"there are no slides of {name}: name a chapter, such as 03, or a week, such as week_04")


def slides(title: str, shown: list[Figure]) -> str:
    """The page that is printed."""
    text = f"<section><h1>{html.escape(title)}</h1><p>Flashbook</p></section>\n"
    for figure in shown:
        number = f"<b>Figure {figure.number}.</b> " if figure.number else ""
        text += (f'<section><h2>{html.escape(figure.section)}</h2><img src="{figure.file.as_uri()}" alt="">'
                 f"<p>{number}{html.escape(figure.caption)}</p></section>\n")
    return PAGE.format(title=html.escape(title), slides=text)


def browser() -> str | None:
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def write(root: Path, name: str, out: Path) -> int:
    """Writes the PDF, and the HTML beside it; returns how many figures it has."""
    title, shown = figures(root, name)
    page = out.with_suffix(".html")
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(slides(title, shown), encoding="utf-8")
    program = browser()
    if not program:
        raise Fault(f"there is no Chromium, so {page} is not printed: apt-get install chromium, or print it in any browser")
    done = subprocess.run([program, "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", f"--print-to-pdf={out.resolve()}",
                           page.resolve().as_uri()], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode or not out.exists():
        raise Fault(f"{program} did not print {page}: {done.stderr[-500:]}")
    return len(shown)


def main() -> None:
    parser = argparse.ArgumentParser(prog="course slides", description="Prints a chapter's or a week's figures as slides.")
    parser.add_argument("names", metavar="NN|week_NN", nargs="+", help="chapters, two digits each, or weeks")
    parser.add_argument("--out", type=Path, help="the PDF (default: build/slides/NAME.pdf); of one chapter or week")
    arguments = parser.parse_args()
    try:
        if arguments.out and len(arguments.names) > 1:
            raise Fault("--out is for one chapter or week")
        for name in arguments.names:
            out = arguments.out or manifest.ROOT / "build" / "slides" / f"{name}.pdf"
            print(f"{out}: {write(manifest.ROOT, name, out)} figures", flush=True)
    except (Fault, OSError, subprocess.TimeoutExpired) as fault:
        print(f"course slides: {fault}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
