"""Which pages the site has, in reading order, and where each comes from."""
import re
from dataclasses import dataclass
from pathlib import Path

from docs.tools import kernel_source

ROOT = Path(__file__).resolve().parents[2]

# docs/pages in the order in which they read best; a page that is not named here follows them.
PAGE_ORDER = ("glossary", "which_one_when", "in_pytorch", "claims", "measuring", "memory_hierarchy", "roofline", "simulator", "mutations",
              "simulator_limits", "golden", "instructor", "hardening")


# Pages about the house: file and its name on the site.
HOUSE = {"CONTRIBUTING.md": "contributing", "docs/README.md": "writing", "bench/README.md": "bench", "bench/results/peers/README.md": "peers",
         "course/README.md": "course", "python/README.md": "python"}


@dataclass
class Page:
    kind: str  # main, chapter, appendix, kernel, page or house
    source: str  # the file it is made of, from the repository's root
    title: str
    name: str = ""  # of its file on the site, without .html

    @property
    def path(self) -> Path:
        return ROOT / self.source

    @property
    def url(self) -> str:
        return self.name + ".html"

    @property
    def chapter(self) -> str:
        """The chapter's folder; empty outside chapters."""
        return self.source.split("/")[1] if self.source.startswith("chapters/") else ""

    @property
    def number(self) -> str:
        """The chapter's number; empty outside chapters."""
        return str(int(self.chapter[:2])) if self.chapter else ""


def title_of(path: Path, otherwise: str) -> str:
    """What the first line `# Title` of a Markdown file says."""
    found = re.match(r"# +(.+)", path.read_text(encoding="utf-8")) if path.exists() else None
    return found[1].strip() if found else otherwise


def kernel_files(chapter: Path) -> list[Path]:
    """The files of a chapter that have an annotated page: first as the README names them, last what the host does, the descriptor at the end."""
    readme = chapter / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""

    def order(path: Path) -> tuple[bool, int, str]:
        mentioned = text.find(str(path.relative_to(chapter)))
        return (path.stem == "chapter", mentioned if mentioned >= 0 else len(text), path.name)

    folders = (chapter, chapter / "host", chapter / "serving")
    files = [p for folder in folders for p in folder.glob("*.*") if p.suffix in (".cuh", ".cu", ".h", ".cpp")]
    return sorted((p for p in files if kernel_source.is_annotated(p)), key=order)


def pages() -> list[Page]:
    """Every page that is written by people; the reference is Doxygen's."""
    found = [Page("main", "README.md", title_of(ROOT / "README.md", "Flashbook"), "index")]
    for chapter in sorted(ROOT.glob("chapters/[0-9][0-9]_*")):
        source = f"chapters/{chapter.name}/README.md"
        found.append(Page("chapter", source, title_of(chapter / "README.md", chapter.name), f"chapter-{chapter.name}"))
        if (chapter / "appendix.md").exists():
            appendix = f"chapters/{chapter.name}/appendix.md"
            found.append(Page("appendix", appendix, title_of(ROOT / appendix, "Appendix"), f"chapter-{chapter.name}-appendix"))
        for file in kernel_files(chapter):
            name = f"chapter-{chapter.name}-{file.name.replace('.', '-')}"
            found.append(Page("kernel", str(file.relative_to(ROOT)), kernel_source.title_of(file), name))
    texts = sorted(ROOT.glob("docs/pages/*.md"), key=lambda p: (*(p.stem != name for name in PAGE_ORDER), p.stem))
    found += [Page("page", f"docs/pages/{p.name}", title_of(p, p.stem), p.stem) for p in texts]
    for source, name in HOUSE.items():
        if (ROOT / source).exists():
            found.append(Page("house", source, title_of(ROOT / source, source), name))
    return found
