"""GitHub's Markdown in Doxygen 1.9's dialect.

Lines travel as (number, text), so that a warning of Doxygen's can name the line that a person wrote. Links and images become
`repo:PATH#ANCHOR`, which finish.py resolves when it knows every page."""
import html
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence

Line = tuple[int, str]
Match = re.Match[str]

BOXES = {"NOTE": "Note", "TIP": "Tip", "IMPORTANT": "Important", "WARNING": "Warning", "CAUTION": "Caution"}
ALERT = re.compile(r"> ?\[!(\w+)\]\s*")
PREDICTION = re.compile(r"> ?\*\*(Before you start|Predicted|Measured)\.\*\* ?(.*)")
HEADING = re.compile(r"(#{1,4}) +(.+?) *#*")
FENCE = re.compile(r"(\s*)(```+|~~~+)\s*(\w*).*")
LIST_ITEM = re.compile(r"([-*+]|\d+[.)]) ")
# Marks of bench/quote.py around numbers and tables: the reader sees what stands between them.
QUOTED = re.compile(r"<!-- /?(num|table)\b[^>]*-->")
SNIPPET = re.compile(r"\s*<!-- from (\S+) -->\s*")
DIFFERENCE = re.compile(r"<!-- diff (\S+) .*\bto (\S+?)( .*)?-->\s*")
HIGHLIGHTED = {"cpp": "cpp", "c++": "cpp", "cuda": "cpp", "c": "cpp", "python": "py", "py": "py"}

CODE = re.compile(r"(`+)((?:(?!\1).)+?)\1(?!`)")
FORMULA_IN_CODE = re.compile(r"\$`([^`]+)`\$")
FORMULA = re.compile(r"\$\$([^$]+)\$\$|(?<![\\$\w])\$(?!\s)([^$\x00]+?)(?<!\s)\$(?![\d$])|\\f\$(.+?)\\f\$")
LINK = re.compile(r'(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]*)(?:\s+"[^"]*")?\)')
TAG = re.compile(r"</?(details|picture|source|div|figure|figcaption|p|img|kbd|a)\b[^>]*>", re.IGNORECASE)
MARK = "&zwj;"
DIFF = "diff"  # the class around a difference, whose lines finish.py colours
SUMMARY = re.compile(r"<summary>(.*?)</summary>")
ADDRESS = re.compile(r'\b(href|src|srcset)="([^"]+)"')
BLOCK_TAGS = ("details", "div", "figure", "figcaption", "p")


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def repo_address(target: str, source: str) -> str:
    """`target`, as written in `source`: an address of the web as it is, anything else from the repository's root."""
    if re.match(r"[a-z]+:", target):
        return target
    path, _, anchor = target.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), path)) if path else source
    return f"repo:{path}#{anchor}" if anchor else f"repo:{path}"


def without_quote_marks(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines without the marks of bench/quote.py, except in fenced code, where they are an example."""
    fenced = False
    for number, text in lines:
        fenced ^= bool(FENCE.fullmatch(text))
        yield number, text if fenced else QUOTED.sub("", text)


def raw(text: str, block: bool = True) -> str:
    return rf"\htmlonly{'[block]' if block else ''}{text}\endhtmlonly"


def code_span(text: str, before: str) -> str:
    """Past Doxygen, which reads commands, quotations and the bars of tables in code, too. It also puts a space in front; finish.py
    removes it where there was none."""
    text = html.escape(text.replace("\\|", "|"), quote=False)
    glued = "" if before.isspace() else " data-glued"
    return raw(f"<code{glued}>" + re.sub(r"[^\w\s&;]", lambda found: f"&#{ord(found[0])};", text) + "</code>", block=False)


class Translator:
    def __init__(self, source: str, page_name: str) -> None:
        self.source, self.page_name = source, page_name
        self.slugs: dict[str, int] = {}
        self.in_list = False

    def heading(self, found: Match) -> str:
        anchor = slug(found[2])
        seen = self.slugs[anchor] = self.slugs.get(anchor, -1) + 1
        if seen:
            anchor += f"-{seen}"
        return f"{found[1]} {self.inline(found[2], plain_code=True)} {{#{self.page_name}--{anchor}}}"

    def inline(self, text: str, plain_code: bool = False) -> str:
        """One line outside code blocks. Headings need code that Doxygen knows."""
        kept = []

        def keep(piece: str) -> str:
            kept.append(piece)
            return f"\x00{len(kept) - 1}\x00"

        def code(found: Match) -> str:
            before = found.string[found.start() - 1] if found.start() else " "
            return keep(found[0] if plain_code else code_span(found[2], before))

        def formula(found: Match) -> str:
            return keep(rf"\f${next(filter(None, found.groups()))}\f$")

        def link(found: Match) -> str:
            address = repo_address(found[3], self.source)
            if found[1]:
                alt = html.escape(re.sub(r"\x00\d+\x00", "", found[2]))
                return keep(raw(f'<img class="figure" src="{address}" alt="{alt}"/>', block=False))
            return keep(f'<a href="{address}">') + found[2] + keep("</a>")

        def summary(found: Match) -> str:
            inner = re.sub(r"`([^`]+)`", lambda code: f"<code>{html.escape(code[1], quote=False)}</code>", found[1])
            inner = FORMULA.sub(lambda tex: rf"\({next(filter(None, tex.groups()))}\)", inner)
            return keep(raw(f"<summary>{inner}</summary>"))

        def tag(found: Match) -> str:
            with_addresses = ADDRESS.sub(lambda m: f'{m[1]}="{repo_address(m[2], self.source)}"', found[0])
            name = found[1].lower()
            return keep(with_addresses if name == "a" else raw(with_addresses, block=name in BLOCK_TAGS))

        text = SUMMARY.sub(summary, text)
        text = FORMULA_IN_CODE.sub(formula, text)
        text = CODE.sub(code, text)
        text = FORMULA.sub(formula, text)
        text = LINK.sub(link, text)
        text = TAG.sub(tag, text)
        text = re.sub(r"\\(?=[A-Za-z])", r"\\\\", text).replace("@", r"\@")
        while "\x00" in text:
            text = re.sub(r"\x00(\d+)\x00", lambda found: kept[int(found[1])], text)
        # A paragraph that began with a formula would become part of a list before it; finish.py removes the mark.
        return MARK + text if text.startswith(r"\f$") else text

    def quote(self, lines: Sequence[Line], kind: str, title: str) -> Iterator[Line]:
        """A box: the lines of a blockquote, whose first is what remains behind the title."""
        yield lines[0][0], raw(f'<div class="box {kind}"><p class="box-title">{title}</p>')
        yield lines[0][0], ""
        yield from self.translate(lines)
        yield lines[-1][0], ""
        yield lines[-1][0], raw("</div>")
        yield lines[-1][0], ""

    def fence(self, lines: Sequence[Line], found: Match) -> Iterator[Line]:
        """A code block or a formula; `lines` are those between the fences."""
        indent, _, language = found.groups()
        number = lines[0][0] if lines else 0
        if language == "math":
            yield number, indent + r"\f["
            yield from lines
            yield number, indent + r"\f]"
            return
        if language == "diff":
            yield number, raw(f'<div class="{DIFF}">')
            yield number, ""
        yield number, f"{indent}```{{.{HIGHLIGHTED.get(language, 'unparsed')}}}"
        yield from lines
        yield number, indent + "```"
        if language == "diff":
            yield number, ""
            yield number, raw("</div>")
            yield number, ""

    def translate(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines in Doxygen's dialect; one line may become several."""
        lines, i = list(without_quote_marks(lines)), 0
        while i < len(lines):
            number, text = lines[i]
            i += 1
            if text and not text.startswith(" "):
                self.in_list = bool(LIST_ITEM.match(text))
            if found := FENCE.fullmatch(text):
                end = i
                while end < len(lines) and lines[end][1].strip() != found[2]:
                    end += 1
                yield from self.fence(lines[i:end], found)
                i = end + 1
            elif text.strip() == "$$":
                end = i
                while end < len(lines) and lines[end][1].strip() != "$$":
                    end += 1
                yield from [(number, r"\f["), *lines[i:end], (number, r"\f]")]
                i = end + 1
            elif found := re.fullmatch(r"\s*\$\$(.+)\$\$([.,]?)\s*", text):
                yield number, rf"\f[ {found[1]}{found[2]} \f]"
            elif (alert := ALERT.fullmatch(text)) or (prediction := PREDICTION.fullmatch(text)):
                end = i
                while end < len(lines) and lines[end][1].startswith(">") and not PREDICTION.match(lines[end][1]):
                    end += 1
                rest = [(n, re.sub("> ?", "", line, count=1)) for n, line in lines[i:end]]
                if alert:
                    yield from self.quote(rest, alert[1].lower(), BOXES[alert[1]])
                elif prediction:
                    yield from self.quote([(number, prediction[2]), *rest], prediction[1].lower().replace(" ", "-"), prediction[1])
                i = end
            elif found := SNIPPET.fullmatch(text):
                yield number, raw(f'<p class="from"><a href="{repo_address(found[1], self.source)}">{found[1]}</a></p>')
            elif found := DIFFERENCE.fullmatch(text):
                files = [f'<a href="{repo_address(name, self.source)}">{name}</a>' for name in dict.fromkeys(found.groups()[:2])]
                yield number, raw(f'<p class="from">{" → ".join(files)}</p>')
            elif text.startswith("<!--"):
                while "-->" not in lines[i - 1][1]:
                    i += 1
            elif text.startswith("    ") and not self.in_list:  # a code block
                yield number, text
            elif found := HEADING.fullmatch(text):
                yield number, self.heading(found)
            else:
                yield number, self.inline(text)
