"""The site's pages in reading order, and the source of each."""
import re
from dataclasses import dataclass
from pathlib import Path

from docs.tools import kernel_source

ROOT = Path(__file__).resolve().parents[2]

# docs/pages in reading order, followed by pages not listed here.
PAGE_ORDER = ("symptoms", "glossary", "which_one_when", "often_said", "in_pytorch", "measuring", "memory_hierarchy", "roofline",
              "blackwell", "reading_sources", "reading", "simulator", "timelines", "dialect", "mutations", "simulator_limits", "golden",
              "exercises", "instructor", "weeks", "hardening")


# Pages about the project: the file and its name on the site.
HOUSE = {"CONTRIBUTING.md": "contributing", "CHANGELOG.md": "changelog", "docs/README.md": "writing", "bench/README.md": "bench",
         "bench/results/peers/README.md": "peers", "chapters/capstones/README.md": "capstones", "course/README.md": "course",
         "python/README.md": "python"}


# Code that chapter 5 teaches and later chapters share: its files are pages of the first chapter whose text links to them.
ROOM = ROOT / "common" / "hopper"


@dataclass
class Page:
    kind: str  # main, chapter, second, appendix, kernel, page or house
    source: str  # path relative to the repository's root
    title: str
    name: str = ""  # file name on the site, without .html
    chapter: str = ""  # the chapter's folder; empty outside chapters

    @property
    def path(self) -> Path:
        return ROOT / self.source

    @property
    def url(self) -> str:
        return self.name + ".html"

    @property
    def number(self) -> str:
        """The chapter's number; empty outside chapters."""
        return str(int(self.chapter[:2])) if self.chapter else ""


def title_of(path: Path, otherwise: str) -> str:
    """Returns the title in the first `# Title` line of a Markdown file."""
    found = re.match(r"# +(.+)", path.read_text(encoding="utf-8")) if path.exists() else None
    return found[1].strip() if found else otherwise


def name_in_text(path: Path, chapter: Path) -> str:
    """Returns a file by the name that a chapter's text uses."""
    return str(path.relative_to(chapter if path.is_relative_to(chapter) else ROOT))


def taught_in(path: Path) -> Path | None:
    """Returns the chapter that has a file of ROOM as a page."""
    chapters = sorted(ROOT.glob("chapters/[0-9][0-9]_*"))
    return next((c for c in chapters if f"../../{name_in_text(path, c)})" in (c / "README.md").read_text(encoding="utf-8")), None)


def kernel_files(chapter: Path) -> list[Path]:
    """Returns the files of a chapter that have an annotated page: in the README's order, then host code, and the
    descriptor last."""
    readme = chapter / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""

    def order(path: Path) -> tuple[bool, int, str]:
        mentioned = text.find(name_in_text(path, chapter))
        return (path.stem == "chapter", mentioned if mentioned >= 0 else len(text), path.name)

    folders = (chapter, chapter / "host", chapter / "serving")
    files = [p for folder in folders for p in folder.glob("*.*") if p.suffix in (".cuh", ".cu", ".h", ".cpp")]
    files += [p for p in ROOM.glob("*.h") if taught_in(p) == chapter]
    return sorted((p for p in files if kernel_source.is_annotated(p)), key=order)


def pages() -> list[Page]:
    """Returns every page except the reference, which Doxygen writes."""
    found = [Page("main", "README.md", title_of(ROOT / "README.md", "Flashbook"), "index")]
    for chapter in sorted(ROOT.glob("chapters/[0-9][0-9]_*")):
        source = f"chapters/{chapter.name}/README.md"
        found.append(Page("chapter", source, title_of(chapter / "README.md", chapter.name), f"chapter-{chapter.name}", chapter.name))
        for second in sorted(chapter.glob("*.md")):  # additional pages other than appendices
            if second.stem not in ("README", "appendix"):
                text = f"chapters/{chapter.name}/{second.name}"
                found.append(Page("second", text, title_of(second, second.stem), f"chapter-{chapter.name}-{second.stem}", chapter.name))
        if (chapter / "appendix.md").exists():
            appendix = f"chapters/{chapter.name}/appendix.md"
            found.append(Page("appendix", appendix, title_of(ROOT / appendix, "Appendix"), f"chapter-{chapter.name}-appendix", chapter.name))
        for file in kernel_files(chapter):
            folder = "hopper" if file.parent == ROOM else f"chapter-{chapter.name}"
            name = f"{folder}-{file.name.replace('.', '-')}"
            found.append(Page("kernel", str(file.relative_to(ROOT)), kernel_source.title_of(file), name, chapter.name))
    texts = sorted(ROOT.glob("docs/pages/*.md"), key=lambda p: (*(p.stem != name for name in PAGE_ORDER), p.stem))
    found += [Page("page", f"docs/pages/{p.name}", title_of(p, p.stem), p.stem) for p in texts]
    for source, name in HOUSE.items():
        if (ROOT / source).exists():
            found.append(Page("house", source, title_of(ROOT / source, source), name))
    return found
