#!/usr/bin/env python3
"""Checks the site in build/docs/html against the repository. Prints a line for each fault, and exits with 1 if there are any."""
import html
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that python3 docs/check.py finds the packages

from docs.tools import book, kernel_source

SITE = book.ROOT / "build" / "docs" / "html"

# A chapter's page, without its code and comments.
WORDS_OF_A_CHAPTER = 3300
WITHOUT_BOX = {"02_online_softmax": ("Step 1:", "Step 2:", "Step 3:")}  # they explain an idea; one table has their times

# Scripts that Doxygen writes into its own pages. Our pages have no inline code: scripts are files.
HANDLERS_OF_DOXYGEN = re.compile(
    r"(?:javascript:|return )?(?:toggle(?:Inherit|Folder|Level)|dynsection\.toggle\w+|codefold\.\w+|searchBox\.\w+)\([^()]*\);?$")


class Addresses(HTMLParser):
    """A page's links, its anchors, and the code in its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: Counter[str] = Counter()
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in ("href", "src", "srcset", "action", "formaction") and value:
                self.links.append(value)
            elif name.startswith("on") and not HANDLERS_OF_DOXYGEN.match(value or ""):
                self.handlers.append(f'{name}="{value}"')
            elif name == "id" and value:
                self.anchors[value] += 1


def check_pages(found: Iterable[book.Page]) -> Iterator[str]:
    """Checks that every chapter has a text and every file has a page."""
    for page in found:
        if not page.path.exists():
            yield f"there is no {page.source}"
        if not (SITE / page.url).exists():
            yield f"{page.source} has no page: {page.url}"


def check_lines(page: book.Page) -> Iterator[str]:
    """Checks that a page shows every line of code, with its number and text, once and in order."""
    text = (SITE / page.url).read_text(encoding="utf-8")
    found = re.findall(r'<span class="line" id="l(\d+)">.*?<span class="text">(.*?)</span></span>(?=<span class="line"|</pre>)', text)
    shown = [(int(number), html.unescape(re.sub(r"<[^>]*>", "", line))) for number, line in found]
    wanted = [(number, line.replace("\t", "  ")) for number, line in enumerate(kernel_source.lines_of(page.path), 1)
              if line.strip() and kernel_source.prose_of(line) is None]
    if [pair for pair in shown if pair[1].strip()] == wanted:
        return
    for number, count in Counter(number for number, _ in shown).items():
        if count > 1:
            yield f"{page.url}: line {number} occurs {count} times"
    for number, line in sorted(set(wanted) - set(shown)):
        yield f"{page.url}: line {number} of {page.source} is missing: {line}"
    for number, line in sorted(set(shown) - set(wanted)):
        if line.strip():
            yield f"{page.url}: line {number} is not in {page.source}: {line}"


def check_names(page: book.Page) -> Iterator[str]:
    """Checks that names in an annotated source never link to another chapter, since a kernel includes no other
    chapter's files."""
    text = (SITE / page.url).read_text(encoding="utf-8")
    for target in sorted(set(re.findall(r'<a class="code" href="(chapter-[^"#]+)', text))):
        if not target.startswith(f"chapter-{page.chapter}-"):
            yield f"{page.url}: a name leads to {target}"


def check_links() -> Iterator[str]:
    """Checks that every link leads to a file of the site, every #anchor exists there, and nothing is fetched from the
    network."""
    site = {file.name: Addresses(file.read_text(encoding="utf-8")) for file in SITE.glob("*.html")}
    for name, page in site.items():
        for anchor, count in page.anchors.items():
            if count > 1:
                yield f"{name}: the anchor {anchor} occurs {count} times"
        for handler in page.handlers:
            yield f"{name}: code in an attribute, {handler}: put it into a script"
        for link in page.links:
            if re.match(r"https?:|mailto:", link):
                continue
            path, _, anchor = unquote(link).partition("#")
            target = path or name
            figure, asked, _ = anchor.partition("?")
            if asked and target in site:  # the state of an interactive figure
                if not any(source.endswith(f"/{figure}.svg") for source in site[target].links):
                    yield f"{name}: {link} names a figure that {target} does not show"
                continue
            if not (SITE / target).is_file():
                yield f"{name}: {link} leads nowhere"
            elif anchor and target in site and anchor not in site[target].anchors:
                yield f"{name}: {link} names an anchor that {target} does not have"
            if path.endswith(".md.txt"):
                yield f"{name}: {link} is a page without the site around it: name it in docs/tools/book.py"
        text = (SITE / name).read_text(encoding="utf-8")
        for source in re.findall(r'<(?:script|img|source|link)\b[^>]*"(https?:[^"]+)"', text):
            yield f"{name}: {source} needs a network"


def check_length(page: book.Page) -> Iterator[str]:
    """Checks that a chapter's page can be read in one sitting."""
    words = len(re.findall(r"\w\S*", re.sub(r"<!--.*?-->|^```.*?^```", "", page.path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)))
    if words > WORDS_OF_A_CHAPTER:
        yield f"{page.source}: {words} words; {WORDS_OF_A_CHAPTER} are allowed: move what a first reading does not need to the appendix"


def check_boxes(page: book.Page) -> Iterator[str]:
    """Checks that every step ends in a box with its paragraphs in order, except those in WITHOUT_BOX. A prediction
    contains a number, is called a guess, or says that there is none."""
    wanted = re.compile(r"(Bottleneck Change Prediction Result (Lesson )?)+")
    for section in re.split(r"^## ", page.path.read_text(encoding="utf-8"), flags=re.MULTILINE):
        title = section.partition("\n")[0]
        paragraphs = re.findall(r"^> \*\*(Bottleneck|Change|Prediction|Result|Lesson)\.\*\*((?:.|\n>.)*)", section, flags=re.MULTILINE)
        found = " ".join(name for name, _ in paragraphs)
        needs_one = title.startswith("Step ") and not title.startswith(WITHOUT_BOX.get(page.path.parent.name, ()))
        if (needs_one or found) and not wanted.fullmatch(f"{found} "):
            yield f"{page.source}: {title}: its box says {found or 'nothing'}; docs/README.md has the order"
        for name, text in paragraphs:
            if name == "Prediction" and not re.search(r"\d|\b[Gg]uess|^ None\b", text):
                yield f"{page.source}: {title}: its prediction is neither a number nor a guess"


def check_figures() -> Iterator[str]:
    """Checks that every figure matches its script's output."""
    figures = book.ROOT / "docs" / "figures"
    with tempfile.TemporaryDirectory() as folder:
        copies = Path(folder) / "docs" / "figures"
        copies.mkdir(parents=True)
        for name in ("bench", "chapters", "common", "docs/tools"):  # sources of some figures
            (Path(folder) / name).symlink_to(book.ROOT / name)
        for file in (*figures.glob("*.py"), *figures.glob("*.json")):
            shutil.copy(file, copies)
        shutil.copytree(figures / "interactive", copies / "interactive")  # data of interactive figures
        for script in sorted(copies.glob("*.py")):
            if script.name != "svg.py":
                subprocess.run([sys.executable, script], check=True)
        for committed in (*sorted(figures.glob("*.svg")), *sorted(figures.glob("interactive/*_data.js"))):
            drawn = copies / committed.relative_to(figures)
            if not drawn.exists() or drawn.read_bytes() != committed.read_bytes():
                yield f"docs/figures/{committed.relative_to(figures)} is not what its script writes: run it"


def main() -> None:
    if not (SITE / "index.html").exists():
        sys.exit("docs/check.py: no site found: run docs/build first")
    all_pages = book.pages()
    faults = [*check_pages(all_pages), *check_links(), *check_figures()]
    for page in all_pages:
        if page.kind == "kernel" and (SITE / page.url).exists():
            faults += [*check_lines(page), *check_names(page)]
        if page.kind in ("chapter", "second"):
            faults += [*check_length(page), *check_boxes(page)]
    for fault in faults:
        print(fault)
    kernels = sum(page.kind == "kernel" for page in all_pages)
    print(f"{len(all_pages)} pages, {kernels} of them annotated sources: {len(faults) or 'no'} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
