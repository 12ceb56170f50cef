"""Renders formulas with KaTeX when the site is built, so that browsers need no script for them."""
import html
import json
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

KATEX = Path("/usr/share/javascript/katex")
RENDER = Path(__file__).resolve().parents[1] / "site" / "render_formulas.js"

CODE = re.compile(r'(<div class="fragment">.*?<!-- fragment -->|<pre.*?</pre>|<code.*?</code>)', re.DOTALL)
FORMULA = re.compile(r'<p class="formulaDsp">\s*\\\[(?P<display>.*?)\\\]\s*</p>|\\\((?P<inline>.*?)\\\)(?P<mark>[.,;:?!)]*)', re.DOTALL)
END = "</span></span><!-- end -->"  # the end of an inline formula, after its last box


def tex_of(found: re.Match[str]) -> tuple[str, bool]:
    """Returns a formula: (TeX, whether it is a display formula)."""
    display = found["display"] is not None
    return html.unescape(found["display"] if display else found["inline"]).strip(), display


def typeset(formulas: Sequence[tuple[str, bool]]) -> Any:
    """Returns KaTeX's output for each formula: {"html": ...} or {"error": ...}."""
    with tempfile.NamedTemporaryFile("w", suffix=".js", encoding="ascii") as script:
        script.write("var formulas = " + json.dumps([{"tex": tex, "display": display} for tex, display in formulas]) + ";")
        script.flush()
        command = ["duk", str(KATEX / "katex.js"), script.name, str(RENDER)]
        return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def with_mark(shown: str, mark: str | None) -> str:
    """Returns an inline formula with the punctuation after it: since a browser may break a line after any of KaTeX's
    boxes, the punctuation is joined to the last one."""
    before, box, last = shown.rpartition('<span class="base">')
    if not mark or not last.endswith(END):
        return shown + (mark or "")
    return f'{before}<span class="with-mark">{box}{last.removesuffix(END)}<span>{mark}</span></span>{END}'


def render(bodies: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Returns the bodies (name -> HTML) with rendered formulas, and complaints about those that KaTeX cannot parse."""
    parts = {name: CODE.split(body) for name, body in bodies.items()}  # parts with odd indices are code
    formulas = list(dict.fromkeys(
        tex_of(found) for pieces in parts.values() for part in pieces[::2] for found in FORMULA.finditer(part)))
    results = dict(zip(formulas, typeset(formulas)))
    complaints = [f"formula {tex}: {results[tex, display]['error']}" for tex, display in formulas
                  if "error" in results[tex, display]]

    def shown(found: re.Match[str]) -> str:
        return with_mark(results[tex_of(found)].get("html", found[0]), found["mark"])

    for pieces in parts.values():
        pieces[::2] = [FORMULA.sub(shown, part) for part in pieces[::2]]
    return {name: "".join(pieces) for name, pieces in parts.items()}, complaints
