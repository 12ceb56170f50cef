"""The text of the reference pages that Doxygen writes."""
import html
import re
from pathlib import Path

TIP = re.compile(r'<div class="ttc" id="[^"]*">.*?</div></div>\n', re.DOTALL)  # elements for which the site has no script


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
        body = TIP.sub("", body)
        body = re.sub(r"(\s|</div>|<!--[^<>]*-->)+$", "", body)
        body = re.sub(r'<a class="anchor" id="md_[^"]*"></a>', "", body).replace("<p >", "<p>")
        body = re.sub(r"<p>\s*</p>", "", body)
        body = re.sub(r"<hr/>The documentation for this \w+ was generated.*", "", body, flags=re.DOTALL)
        body = re.sub(r'<a href="([^"]*)"><span class="icondoc"></span></a><b>(.*?)</b>', r'<a href="\1">\2</a>', body)
        def link(found: re.Match[str]) -> str:
            return found[0] if (file.parent / found[1]).exists() else found[2]

        body = re.sub(r'<a class="el" href="([^"#]+)[^"]*">(.*?)</a>', link, body)  # for a union, Doxygen 1.18 links to a page without a name
        self.body = body + "</div>" * (body.count("<div") - body.count("</div"))
