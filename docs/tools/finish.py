"""Turns Doxygen's output into the site: formulas, links, annotated source, and a common frame for every page."""
import functools
import html
import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import steps
from docs.tools import book, formulas, kernel_source, made, modules
from docs.tools.book import Page
from docs.tools.github_markdown import Document
from docs.tools.interactive import data_of, scripts_of
from docs.tools.raw_page import RawPage
from docs.tools.sources import Definition, Sources, escaped

Match = re.Match[str]

THEME = Path("/usr/share/doxygen-awesome-css/doxygen-awesome.css")
SITE = book.ROOT / "docs" / "site"
INTERACTIVE = book.ROOT / "docs" / "figures" / "interactive"
PICTURES = (".svg", ".png", ".jpg", ".webp", ".gif")

ROW_END = "<!-- row -->"  # follows the prose of a row and stands for its code
REFERENCE = {"namespaces.html": "Namespaces", "annotated.html": "Types", "files.html": "Files"}
OWN_FILES = ("site.css", "site.js", "favicon.svg", "card.png")  # copied unchanged from docs/site
# Doxygen's indices of members, which the site's search replaces.
UNUSED = re.compile(r"((functions|globals|namespacemembers)(_.+)?|classes|index|hierarchy|doxygen_crawl|.*-members)\.html")


def scripts_for(body: str) -> list[str]:
    """Returns the scripts for a page's interactive figures, without duplicates."""
    known = scripts_of(INTERACTIVE)
    pictures = re.findall(r'<img [^>]*?src="[^"]*?(\w+)\.svg"', body)
    return list(dict.fromkeys(script for name in pictures for script in known.get(name, [])))


class Site:
    def __init__(self, pages: Sequence[Page], raw_folder: Path, out: Path) -> None:
        self.pages, self.raw_folder, self.out = pages, raw_folder, out
        raw = [RawPage(file) for file in sorted(raw_folder.glob("*.html")) if not UNUSED.fullmatch(file.name)]
        self.raw = {page.name: page for page in raw}
        self.doxygen_page = {page.path: page.name for page in raw if page.path}
        self.page_of = {page.source: page for page in pages}
        # A kernel file's annotated page replaces Doxygen's listing.
        self.renamed = {self.doxygen_page[page.source]: page.url for page in pages if page.kind == "kernel"}
        self.complaints: list[str] = []
        self.copied: dict[str, Path] = {}  # name on the site -> file of the repository
        self.sources = Sources(raw_folder.parent / "xml")
        self.modules = modules.built()

    # ---- links -----------------------------------------------------------------------------------------------------

    def resolve(self, address: str, where: str) -> str | None:
        """Returns the site's address of `PATH#ANCHOR` in the repository; None for a folder without a page."""
        path, _, anchor = address.partition("#")
        line = re.match(r"L(\d+)", anchor)  # GitHub's line numbers
        lines = f"#l{int(line[1]):05d}" if line else ""
        page = self.page_of.get(path) or self.page_of.get(f"{path}/README.md")
        if page:
            return page.url + (lines or (f"#{anchor}" if anchor else ""))
        if path in self.doxygen_page:
            return self.doxygen_page[path] + lines
        file = book.ROOT / path
        if file.is_dir():
            return None
        if not file.exists():
            self.complaints.append(f"{where}: there is no {path}")
            return "#"
        name = f"files/{path}" if file.suffix in PICTURES else f"files/{path}.txt"
        self.copied[name] = file
        return name

    def link(self, body: str, where: str) -> str:
        """Returns `body` with the addresses of github_markdown and Doxygen replaced by those of the site."""
        def replace(found: Match) -> str:
            url = self.resolve(found[2], where)
            return f'{found[1]}="{html.escape(url)}"' if url else ""

        body = re.sub(r'\b(href|src|srcset)="repo:([^"]+)"', replace, body)
        return re.sub(r'href="(\w+_source\.html)', lambda found: f'href="{self.renamed.get(found[1], found[1])}', body)

    def link_names(self, body: str, page: Page) -> str:
        """Returns `body` in which a code span that names a symbol of the chapter's kernels links to its definition, if
        there is only one."""
        targets: dict[str, set[str]] = {}
        for definition in self.sources.definitions.values():
            home = self.page_of.get(definition.file)
            if home and home.chapter == page.chapter:
                targets.setdefault(definition.name.rpartition("::")[2], set()).add(self.address_of(definition))

        def replace(found: Match) -> str:
            known = targets.get(found[2], set())
            known = {address for address in known if address.startswith(f"{page.url}#")} or known
            return f'<a href="{min(known)}">{found[1]}</a>' if len(known) == 1 else found[0]

        return re.sub(r"(<code[^>]*>(\w\w+)</code>)(?![^<]*</a>)", replace, body)

    def explain_terms(self, body: str, terms: dict[str, str]) -> str:
        """Returns `body` with links into the glossary that show the definition on hovering."""
        def replace(found: Match) -> str:
            said = terms.get(found[1])
            return f'<a class="term" title="{html.escape(said)}" href="{found[1]}"' if said else found[0]

        return re.sub(r'<a href="(glossary\.html#[^"]+)"', replace, body)

    # ---- annotated source ------------------------------------------------------------------------------------------

    def code_line(self, page: Page, number: int) -> str:
        """Returns a highlighted source line whose names link to their definitions in the annotated sources of the same
        chapter, or in common."""
        pieces = list(self.sources.pieces(page.source, number))
        text = ""
        for i, piece in enumerate(pieces):
            shown, after = escaped(piece.text), "".join(p.text for p in pieces[i + 1:i + 4])
            before = "".join(p.text for p in pieces[max(0, i - 3):i])
            if piece.meant and self.is_meant(piece.meant, before, after):
                address = self.address_of(piece.meant)
                if belongs(address, page.chapter):
                    shown = f'<a class="code" href="{address}" title="{html.escape(piece.meant.declaration)}">{shown}</a>'
            text += shown if piece.look == "normal" or not shown.strip() else f'<span class="{piece.look}">{shown}</span>'
        return text

    def is_meant(self, definition: Definition, before: str, after: str) -> bool:
        """Returns whether a link is meant: Doxygen links a local variable that shares a function's or enumerator's
        name."""
        if definition.kind == "namespace" or "1_1sim" in definition.address:
            return False
        if definition.kind == "function" and not after.startswith(("(", "<")):
            return False
        return definition.kind != "enumvalue" or before.endswith("::")

    def address_of(self, definition: Definition) -> str:
        """Returns its address in an annotated source or in the reference."""
        page = self.page_of.get(definition.file)
        if not page or page.kind != "kernel":
            return definition.address
        return f"{page.url}#l{definition.line:05d}" if definition.line else page.url

    def kernel(self, page: Page, body: str) -> str:
        """Returns rows of prose with code next to them."""
        rows: list[str] = []
        for text, (_, numbers) in zip(body.split(ROW_END), kernel_source.rows_of(page.path)):
            lines = (f'<span class="line" id="l{number:05d}"><a class="lineno" href="#l{number:05d}">{number}</a>'
                     f'<span class="text">{self.code_line(page, number)}</span></span>' for number in numbers)
            kind = "row" if rows else "row opening"  # the first row describes the whole file
            rows.append(f'<section class="{kind}"><div class="prose">{text.strip()}</div>'
                        f'<div class="code"><pre class="listing">{"".join(lines)}</pre></div></section>')
        return "".join(rows)

    def kernel_list(self, chapter: str) -> str:
        """Returns the end of a chapter's page."""
        kernels = (page for page in self.pages if page.kind == "kernel" and page.chapter == chapter)
        items = "".join(f'<li><a href="{page.url}"><code>{page.path.name}</code></a> '
                        f'{html.escape(page.title) if page.title != page.path.name else ""}</li>' for page in kernels)
        return f'<h2 id="source">The source, annotated</h2><ul class="sources">{items}</ul>' if items else ""

    # ---- frame -----------------------------------------------------------------------------------------------------

    def menu(self, current: str, body: str) -> str:
        """Returns the book's contents by titles, with the sections of the current page. Each chapter's list of
        pages is collapsible, and so is every part except the chapters."""
        def entry(url: str, title: str, kind: str, file: str = "") -> str:
            here = ' aria-current="page"' if url == current else ""
            found = re.findall(r'<h2 id="([^"]+)">(.*?)</h2>', body, re.DOTALL) if here else ()
            sections = "".join(f'<li><a href="#{anchor}">{re.sub("</?a.*?>", "", text)}</a></li>' for anchor, text in found)
            named = f' title="{html.escape(file)}"' if file else ""
            return f'<li class="{kind}"><a href="{url}"{here}{named}>{html.escape(title)}</a>{f"<ul>{sections}</ul>" if sections else ""}</li>'

        def folded(title: str, items: str) -> str:
            return f'<details{" open" if "aria-current" in items else ""}><summary>{title}</summary><ul>{items}</ul></details>' if items else ""

        def entries(kind: str) -> str:
            return "".join(entry(p.url, p.title, p.kind) for p in self.pages if p.kind == kind)

        def chapter(page: Page) -> str:
            own = "".join(entry(p.url, p.title, p.kind, p.path.name if p.kind == "kernel" else "")
                          for p in self.pages if p.chapter == page.chapter and p.kind not in ("chapter", "second"))
            second = "".join(entry(p.url, p.title, p.kind) for p in self.pages if p.chapter == page.chapter and p.kind == "second")
            listed = f"<ul>{second}</ul>" if second else ""
            return entry(page.url, page.title, "chapter").removesuffix("</li>") + listed + folded("Tables and source", own) + "</li>"

        chapters = "".join(chapter(page) for page in self.pages if page.kind == "chapter")
        reference = "".join(entry(url, title, "reference") for url, title in REFERENCE.items())
        return (f'<ul>{entries("main")}</ul><h2>Chapters</h2><ul>{chapters}</ul><h2>Background</h2><ul>{entries("page")}</ul>'
                + folded("The house", entries("house")) + folded("Reference", reference))

    def steps(self, page: Page) -> str:
        """Links to the previous and the next page in reading order; a chapter's text links to the neighbouring
        chapters."""
        pages = [p for p in self.pages if p.kind in ("main", "chapter")] if page.kind == "chapter" else self.pages
        at = pages.index(page)
        before, after = pages[at - 1] if at else None, pages[at + 1] if at + 1 < len(pages) else None
        return "".join(f'<a rel="{rel}" href="{p.url}"><small>{word}</small>{html.escape(p.title)}</a>'
                       for p, rel, word in ((before, "prev", "Before"), (after, "next", "Next")) if p)

    def path_above(self, page: Page) -> str:
        """Returns the chapter and path above a page that belongs to a chapter."""
        if page.kind not in ("kernel", "appendix", "second"):
            return ""
        chapter = self.page_of[f"chapters/{page.chapter}/README.md"]
        return f'<p class="above"><a href="{chapter.url}">{html.escape(chapter.title)}</a> <code>{page.source}</code></p>'

    def write(self, url: str, kind: str, title: str, above: str, body: str, steps: str, page: Page | None = None) -> None:
        of_pictures = [f"interactive/{name}" for name in scripts_for(body)]
        if page:
            body = modules.with_panels(page, body, self.modules)
        scripts = "".join(f'<script defer src="{name}"></script>\n' for name in dict.fromkeys([*of_pictures, *modules.scripts(body)]))
        values = {"kind": kind, "container": "contents" if kind == "reference" else "text", "title": html.escape(title),
                  "description": html.escape(description(body) or title), "above": above, "body": with_permalinks(body), "steps": steps,
                  "menu": self.menu(url, body), "scripts": scripts,
                  "address": html.escape(os.environ.get("FLASHBOOK_SITE", ""))}  # a social card needs an absolute address
        text = (SITE / "page.html").read_text(encoding="utf-8")
        text = re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], text)
        (self.out / url).write_text(text, encoding="utf-8")

    def copy_files(self) -> None:
        for name, file in self.copied.items():
            (self.out / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, self.out / name)
        for file in (*(SITE / name for name in OWN_FILES), THEME, formulas.KATEX / "katex.min.css", self.raw_folder / "doxygen.css"):
            shutil.copyfile(file, self.out / file.name)
        for file in [*self.raw_folder.glob("*.png"), *self.raw_folder.glob("*.svg")]:
            shutil.copyfile(file, self.out / file.name)
        for folder, files in (("fonts", (formulas.KATEX / "fonts").glob("*.woff2")), ("interactive", INTERACTIVE.glob("*.js"))):
            (self.out / folder).mkdir()
            for file in files:
                shutil.copyfile(file, self.out / folder / file.name)
        modules.write(self.out, self.pages, self.modules)

    def build(self) -> None:
        page_at = {page.url: page for page in self.pages}
        bodies, complaints = formulas.render({page.url: text_of(page) for page in self.pages}
                                             | {name: page.body for name, page in self.raw.items() if name not in self.renamed})
        self.complaints += complaints
        terms = glossary_terms(bodies["glossary.html"])
        index: list[tuple[str, str, str, str, int]] = []
        articles: dict[str, str] = {}
        for name, body in bodies.items():
            page = page_at.get(name)
            if page:
                kind, title, above, steps = page.kind, page.title, self.path_above(page), self.steps(page)
                body = with_captions(body, {"chapter": page.number, "appendix": f"{page.number}.A", "second": f"{page.number}.B"}.get(kind, ""))
                body = self.explain_terms(self.link(body, page.source), terms)
            else:
                kind, title, above, steps = "reference", self.raw[name].title, "", ""
                body = self.link(body, name)
            if page and page.chapter:
                body = self.link_names(body, page)
            if page and kind == "kernel":
                body = self.kernel(page, body)
            if page and kind in ("chapter", "second", "kernel"):
                body = with_timelines(body, page)
            if page and kind == "chapter":
                body += self.kernel_list(page.chapter)
            self.write(name, kind, title, above, body, steps, page)
            index += ((*entry, int(kind in ("reference", "kernel")) + int(kind == "reference")) for entry in search_entries(name, title, body))
            if page and kind != "house":
                articles[page.url] = f"<h1>{html.escape(title)}</h1>{above}{body}"
        self.write_book(articles)
        (self.out / "search_index.js").write_text(f"window.flashbookIndex = {json.dumps(index)};\n", encoding="utf-8")
        self.copy_files()

    def write_book(self, articles: dict[str, str]) -> None:
        """Writes book.html: the whole book on one page, to be printed. Hints are open, and links lead to places within
        it."""
        def inside(name: str, body: str) -> str:
            def target(found: Match) -> str:
                path, _, anchor = found[1].partition("#")
                page = path or name
                if page not in articles:
                    return found[0]
                return f'href="#{page[:-5]}--{anchor}"' if anchor and "?" not in anchor else f'href="#{page[:-5]}"'

            body = re.sub(r'(?<=\s)id="([^"]+)"', rf'id="{name[:-5]}--\1"', body)
            return re.sub(r'href="([^":]*)"', target, body).replace("<details>", "<details open>")

        order = [page for page in self.pages if page.url in articles]
        contents = "".join(f'<li class="{p.kind}"><a href="#{p.name}">{html.escape(p.title)}</a></li>' for p in order if p.kind != "kernel")
        texts = "".join(f'<article id="{p.name}" class="{p.kind}">{inside(p.url, articles[p.url])}</article>' for p in order)
        page = (SITE / "book.html").read_text(encoding="utf-8")
        (self.out / "book.html").write_text(page.replace("{{contents}}", contents).replace("{{texts}}", texts), encoding="utf-8")


def belongs(target: str, chapter: str) -> bool:
    """Returns whether a kernel of this chapter can refer to an address: it includes no other chapter's files."""
    if target.startswith("chapter-"):
        return target.startswith(f"chapter-{chapter}-")
    found = re.search(r"flashbook_1_1(\w+?)(_1_1|\.html)", target)
    owners = chapter_namespaces().get(found[1], set()) if found else set()
    return not owners or chapter in owners


@functools.cache
def chapter_namespaces() -> dict[str, set[str]]:
    """Returns {namespace below flashbook: the chapters that have it}."""
    owners: dict[str, set[str]] = {}
    for file in book.ROOT.glob("chapters/*/*.*h"):
        for name in re.findall(r"^namespace flashbook::(\w+)", file.read_text(encoding="utf-8"), re.MULTILINE):
            owners.setdefault(name, set()).add(file.parent.name)
    return owners


def description(body: str) -> str:
    """Returns the first sentences of a page, for search engines and previews."""
    for text in re.findall(r"<p>(.*?)</p>", body, re.DOTALL):
        words = " ".join(html.unescape(re.sub(r"<math.*?</math>|<[^>]*>", "", text, flags=re.DOTALL)).split())
        if len(words) > 60:
            return words if len(words) <= 200 else words[:200].rsplit(" ", 1)[0] + " ..."
    return ""


def text_of(page: Page) -> str:
    """Returns a page's text; for a kernel file the prose of each row, followed by ROW_END."""
    document = Document(page.source)
    if page.kind == "kernel":
        return "".join(document.render(line for _, line in prose) + ROW_END for prose, _ in kernel_source.rows_of(page.path))
    lines = list(made.expanded(page.path.read_text(encoding="utf-8").splitlines())) if page.path.exists() else []
    return document.render(lines[1:] if lines and lines[0].startswith("# ") else lines)


def with_permalinks(body: str) -> str:
    """Returns `body` with headings that link to themselves, with GitHub's anchors."""
    link = r'<\1 id="\2">\3 <a class="permalink" href="#\2" title="Link to this section">#</a></\1>'
    return re.sub(r'<(h[234]) id="([^"]+)">(.*?)</\1>', link, body, flags=re.DOTALL)


def with_captions(body: str, chapter: str) -> str:
    """Returns `body` in which each figure in a paragraph of its own is numbered and has a caption."""
    count = 0

    def figure(found: Match) -> str:
        nonlocal count
        count += 1
        number = f"{chapter}.{count}" if chapter else str(count)
        return f'<figure id="figure-{count}">{found[1]}<figcaption><b>Figure {number}.</b> {found[2]}</figcaption></figure>'

    return re.sub(r'<p>\s*(<img class="figure" src="[^"]*" alt="([^"]+)"/>)\s*</p>', figure, body)


def with_timelines(body: str, page: Page) -> str:
    """Returns `body` with links to the timelines of the steps that its title and its headings name."""
    recorded = {slug for slug, _ in data_of(INTERACTIVE, "timelines")["steps"]}

    def links(heading: str) -> str:
        found = re.match(r"Steps? (\d+)(?: (?:to|and) (\d+))?", heading)
        numbers = range(int(found[1]), int(found[2] or found[1]) + 1) if found else ()
        shown = [step for step in steps.of(int(page.number)) if step.number in numbers and step.name in recorded]
        text = ""
        for step in shown:
            block = f"Step {step.number}, one block" if len(shown) > 1 else "One block"
            address = f"timelines.html#timelines?slug={step.name}"
            text += (f'<p class="timeline">{block}, event by event: <a href="{address}">unmodified</a>, '
                     f'<a href="{address}&amp;at=report">with a planted fault</a></p>')
        return text

    return links(page.title) + re.sub(r"<h2 [^>]*>(.*?)</h2>", lambda found: found[0] + links(found[1]), body)


def glossary_terms(body: str) -> dict[str, str]:
    """Returns {address: the glossary's definition there, as plain text}."""
    found = re.findall(r'<h3 id="([^"]+)">.*?</h3>\s*<p>(.*?)</p>', body, re.DOTALL)
    return {f"glossary.html#{anchor}": " ".join(html.unescape(re.sub(r"<math.*?</math>|<[^>]*>", "", text)).split()) for anchor, text in found}


def search_entries(url: str, title: str, body: str) -> Iterator[tuple[str, str, str, str]]:
    """Yields (address, page, section, text) of every section of a page."""
    def words(text: str) -> str:
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())

    body = re.sub(r"<!-- formula -->.*?<!-- end -->", " ", body, flags=re.DOTALL)
    pieces = re.split(r'<h[23] id="([^"]+)">(.*?)</h[23]>', body, flags=re.DOTALL)
    for anchor, section, text in zip(["", *pieces[1::3]], ["", *pieces[2::3]], pieces[::3]):
        yield f"{url}#{anchor}" if anchor else url, title, words(section), words(text)


def write_site(pages: Sequence[Page], raw_folder: Path, out: Path) -> list[str]:
    """Writes the site, and returns complaints."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    site = Site(pages, raw_folder, out)
    site.build()
    return site.complaints
