"""Pages as Doxygen 1.9 writes them, taken apart."""
import html
import re
from collections.abc import Iterator
from pathlib import Path

TIP = re.compile(r'<div class="ttc" id="[^"]*"><div class="ttname"><a href="([^"]*)">([^<]*)</a></div>(.*?)</div>\n', re.DOTALL)
DECLARATION = re.compile(r'<div class="ttdeci">(.*?)</div>')
DEFINITION = re.compile(r'<b>Definition:</b> <a href="([^"]*)">')
LINE = re.compile(r'<div class="line"><a id="l(\d+)" name="l\d+"></a><span class="lineno">.*?</span>(.*?)</div>\n?', re.DOTALL)


class RawPage:
    """`body` is the page's text without title and frame; `path` is that of a source file or folder, from the repository's root."""

    def __init__(self, file: Path) -> None:
        text = file.read_text(encoding="utf-8")
        self.name = file.name
        title = re.search(r'<div class="title">(.*?)</div>', text, re.DOTALL)
        self.title = html.unescape(re.sub(r"<.*?>", "", title[1])).strip() if title else file.stem
        of_file = re.match(r"<!-- begin (\S+) (Source File|Directory Reference) -->", text)
        self.path = of_file[1] if of_file else ""
        body = text.partition('<div class="contents">')[2].partition("<!-- end -->")[0]
        self.tips = {address: (name, rest) for address, name, rest in TIP.findall(body)}
        body = TIP.sub("", body)
        body = re.sub(r"(\s|</div>|<!--[^<>]*-->)+$", "", body)
        body = re.sub(r'<a class="anchor" id="md_[^"]*"></a>', "", body).replace("<p >", "<p>")
        body = re.sub(r"<p>\s*</p>", "", body)
        body = re.sub(r"<hr/>The documentation for this \w+ was generated.*", "", body, flags=re.DOTALL)
        body = re.sub(r'<a href="([^"]*)"><span class="icondoc"></span></a><b>(.*?)</b>', r'<a href="\1">\2</a>', body)
        self.body = body + "</div>" * (body.count("<div") - body.count("</div"))

    def lines(self) -> dict[int, str]:
        """The lines of a source, by number."""
        return {int(number): text for number, text in LINE.findall(self.body)}

    def definitions(self) -> Iterator[tuple[str, str, str, str]]:
        """Symbols this page mentions: (address in the reference, full name, address in a source, declaration)."""
        for address, (name, rest) in self.tips.items():
            declaration, definition = DECLARATION.search(rest), DEFINITION.search(rest)
            if definition:
                yield address, html.unescape(name), definition[1], html.unescape(declaration[1] if declaration else name)
