"""Renders GitHub's Markdown as HTML: markdown-it parses it, and this module adds the book's own forms.

Links and images become `repo:PATH#ANCHOR`, which finish.py resolves when it knows every page; formulas are put between
\\( and \\) or \\[ and \\] for formulas.py to render."""
import html
import itertools
import posixpath
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pygments
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments.formatters import HtmlFormatter
from pygments.lexers import CppLexer, PythonLexer

from docs.tools.pages import FENCE

BOXES = re.compile(r"\[!(?P<alert>NOTE|TIP|IMPORTANT|WARNING|CAUTION)\]\s*|\*\*(?P<words>Before you start)\.\*\*\s*")
STEP = re.compile(r"\*\*(Bottleneck|Change|Prediction|Result|Lesson)\.\*\*\s*")  # labels of the paragraphs in a step's box
QUOTED = re.compile(r"([ >]*)<!-- num\b[^>]*-->")  # at the start of a line, where Markdown would take the whole line for HTML
EXCERPT = re.compile(r"\s*<!-- excerpt (\S+)(?: .*\bto (\S+?))?(?: .*)?-->\s*")
SHOWN_FAULT = re.compile(r"<!-- excerpt fault (\w+) -->\s*")
LEXERS = {"cpp": CppLexer, "c++": CppLexer, "cuda": CppLexer, "c": CppLexer, "python": PythonLexer, "py": PythonLexer}
SUMMARY = re.compile(r"<summary>(.*?)</summary>", re.DOTALL)
ADDRESS = re.compile(r'\b(href|src|srcset)="([^"]+)"')


def slug(heading: str) -> str:
    """Returns the anchor that GitHub gives a heading."""
    text = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def repo_address(target: str, source: str) -> str:
    """Resolves `target` as written in `source`: web addresses are unchanged, all others become paths from the
    repository's root."""
    if re.match(r"[a-z]+:", target):
        return target
    path, _, anchor = target.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path)) if path else source
    return f"repo:{path}#{anchor}" if anchor else f"repo:{path}"


def without_quote_marks(lines: Iterable[str]) -> Iterator[str]:
    """Yields the lines without the marks of docs/tools/quote.py at their start. Marks in fenced code are examples and
    are kept."""
    fenced = False
    for text in lines:
        fenced ^= bool(FENCE.fullmatch(text))
        found = None if fenced else QUOTED.match(text)
        yield found[1] + text[found.end():] if found else text


def code_block(code: str, language: str) -> str:
    """Returns code highlighted for its language and dedented; lines of a difference are marked as removed or added."""
    if language == "diff":
        looks = {"-": "line goes", "+": "line comes"}
        shown = "".join(f'<div class="{looks.get(line[:1], "line")}">{html.escape(line, quote=False)}</div>\n' for line in code.splitlines())
        return f'<div class="diff"><div class="fragment">{shown}</div><!-- fragment --></div>\n'
    code = textwrap.dedent(code)
    if language not in LEXERS:
        is_wide = any(len(line) > 130 for line in code.splitlines())
        look = "fragment output" if is_wide and language == "text" else "fragment"  # a program's output may wrap; columns may not
        return f'<pre class="{look}">{html.escape(code, quote=False)}</pre>\n'
    coloured = pygments.highlight(code, LEXERS[language](stripnl=False), HtmlFormatter(nowrap=True))
    shown = "".join(f'<div class="line">{line}</div>\n' for line in coloured.rstrip("\n").split("\n"))
    return f'<div class="fragment">{shown}</div><!-- fragment -->\n'


class Document:
    """A page. Its texts are rendered one after another, and heading anchors stay unique across them."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.anchors: Counter[str] = Counter()
        self.fault = ""  # the fault being shown
        self.markdown = MarkdownIt("commonmark").enable("table").use(
            dollarmath_plugin, allow_space=False, allow_labels=False, double_inline=True)
        self.markdown.renderer.rules |= {  # type: ignore[attr-defined]
            "code_inline": lambda tokens, i, *_: self.code(tokens[i]), "image": lambda tokens, i, *_: self.image(tokens[i]),
            "math_inline": lambda tokens, i, *_: self.formula(tokens[i]), "math_inline_double": lambda tokens, i, *_: self.formula(tokens[i]),
            "math_block": lambda tokens, i, *_: self.display(tokens[i]), "fence": lambda tokens, i, *_: self.fence(tokens[i]),
            "code_block": lambda tokens, i, *_: code_block(tokens[i].content, ""),
            "html_block": lambda tokens, i, *_: self.html_block(tokens[i]), "html_inline": lambda tokens, i, *_: self.tags(tokens[i].content)}

    def render(self, lines: Iterable[str]) -> str:
        tokens = self.markdown.parse("\n".join(without_quote_marks(lines)))
        for i, token in enumerate(tokens):
            if token.type == "heading_open":
                token.attrSet("id", self.anchor(tokens[i + 1].content))
            elif token.type == "blockquote_open":
                self.box(tokens, i)
            elif token.type in ("th_open", "td_open") and token.attrs:
                token.attrs = {"class": str(token.attrs["style"]).removeprefix("text-align:")}
            for child in token.children or []:
                if child.type == "link_open":
                    child.attrSet("href", repo_address(str(child.attrs["href"]), self.source))
        return str(self.markdown.renderer.render(tokens, self.markdown.options, {}))

    def anchor(self, heading: str) -> str:
        found = slug(heading)
        self.anchors[found] += 1
        return found if self.anchors[found] == 1 else f"{found}-{self.anchors[found] - 1}"

    def box(self, tokens: list[Token], at: int) -> None:
        """Turns a block quote that begins with one of the book's keywords into a box."""
        text = tokens[at + 2]
        if text.type != "inline":
            return
        end = next(i for i in range(at, len(tokens)) if tokens[i].type == "blockquote_close" and tokens[i].level == tokens[at].level)
        if STEP.match(text.content):
            self.step_box(tokens, at, end)
            return
        found = BOXES.match(text.content)
        if not found:
            return
        title = found["words"] or found["alert"].capitalize()
        tokens[at] = Token("html_block", "", 0, content=f'<div class="box {title.lower().replace(" ", "-")}"><p class="box-title">{title}</p>\n')
        tokens[end] = Token("html_block", "", 0, content="</div>\n")
        text.content = text.content[found.end():]
        text.children = self.markdown.parseInline(text.content)[0].children

    def step_box(self, tokens: list[Token], at: int, end: int) -> None:
        """Returns a step's box, whose paragraphs each have a label next to them."""
        tokens[at] = Token("html_block", "", 0, content='<div class="box step">\n')
        tokens[end] = Token("html_block", "", 0, content="</div>\n")
        for paragraph, text in itertools.pairwise(tokens[at + 1:end]):
            if paragraph.type == "paragraph_open" and (found := STEP.match(text.content)):
                paragraph.attrSet("class", slug(found[1]))
                label = Token("html_inline", "", 0, content=f'<span class="box-title">{found[1]}</span>\n')
                text.children = [label, *(self.markdown.parseInline(text.content[found.end():])[0].children or [])]

    # ---- Rendering of tokens ---------------------------------------------------------------------------------------

    def code(self, token: Token) -> str:
        look = ' class="short"' if len(token.content) <= 24 else ""  # short code does not wrap
        return f"<code{look}>{html.escape(token.content, quote=False)}</code>"

    def image(self, token: Token) -> str:
        alt = self.markdown.renderer.renderInlineAsText(token.children, self.markdown.options, {})  # type: ignore[attr-defined]
        return f'<img class="figure" src="{repo_address(str(token.attrs["src"]), self.source)}" alt="{html.escape(alt)}"/>'

    def formula(self, token: Token) -> str:
        return rf"\({html.escape(token.content.strip('`'), quote=False)}\)"

    def display(self, token: Token) -> str:
        return f'<p class="formulaDsp">\\[{html.escape(token.content, quote=False)}\\]</p>\n'

    def fence(self, token: Token) -> str:
        language = token.info.partition(" ")[0]
        return self.display(token) if language == "math" else code_block(token.content, language)

    def html_block(self, token: Token) -> str:
        text = token.content
        files: Sequence[Any] = ()
        if found := SHOWN_FAULT.fullmatch(text):
            self.fault = found[1]
        elif self.fault and text.strip() == "<!-- /excerpt -->":  # modules.py puts a panel here
            fault, self.fault = self.fault, ""
            return f'<div data-shown-fault="{fault}"></div>\n'
        elif found := EXCERPT.fullmatch(text):
            files = tuple(dict.fromkeys(name for name in found.groups() if name and name != "fault"))
        links = " → ".join(f'<a href="{repo_address(name, self.source)}">{name.replace("../", "")}</a>' for name in files)
        return f'<p class="from">{links}</p>\n' if links else self.tags(text)

    def tags(self, text: str) -> str:
        """Returns HTML without comments, with addresses treated as in Markdown, and with Markdown in summaries."""
        text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL)
        text = SUMMARY.sub(lambda found: f"<summary>{self.markdown.renderInline(found[1])}</summary>", text)
        return ADDRESS.sub(lambda found: f'{found[1]}="{repo_address(found[2], self.source)}"', text)
