"""Small drawings for light and dark pages that stay legible at a phone's width.

A figure paints its own background, so it is legible even if page and system disagree about the mode. Keep it at most 560 wide, and texts
at least 13 high."""
import html
import json
import sys
from collections.abc import Callable, Sequence
from math import log10
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # figures use bench and docs

LIGHT = {"paper": "#f7f8f9", "ink": "#24313d", "soft": "#53606d", "line": "#c3ccd4", "plain-fill": "#ffffff",
         "blue": "#24609f", "amber": "#825200", "green": "#17693a", "red": "#b3402a",
         "blue-fill": "#dce9f7", "amber-fill": "#f8e9cd", "green-fill": "#d9efe1"}
DARK = {"paper": "#1b1f24", "ink": "#d5dce2", "soft": "#9ba8b4", "line": "#434c55", "plain-fill": "#252b32",
        "blue": "#7db6f2", "amber": "#d9a441", "green": "#5fbf88", "red": "#ee8d78",
        "blue-fill": "#20364d", "amber-fill": "#41351d", "green-fill": "#1d3a2b"}
COLOURS = ("ink", "soft", "blue", "amber", "green", "red")


def variables() -> str:
    """Returns CSS that names the colours, for both modes."""
    light, dark = ("".join(f"--{name}:{value};" for name, value in colours.items()) for colours in (LIGHT, DARK))
    return f"svg{{{light}}}@media (prefers-color-scheme:dark){{svg{{{dark}}}}}"


def style() -> str:
    rules = [variables(),
             "text{font:14px -apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;fill:var(--ink)}",
             ".small{font-size:13px}.bold{font-weight:600}",
             ".code{font-family:ui-monospace,Menlo,Consolas,'Liberation Mono',monospace;font-size:13px}",
             ".card{fill:var(--paper)}.box{fill:var(--plain-fill);stroke:var(--line)}",
             ".stroke{fill:none;stroke:var(--line);stroke-width:1.5}"]
    for name in COLOURS:
        rules += [f"text.{name},.dot.{name}{{fill:var(--{name})}}.stroke.{name}{{stroke:var(--{name})}}"]
    rules += [f".box.{name}{{fill:var(--{name}-fill);stroke:var(--{name})}}" for name in ("blue", "amber", "green")]
    return "".join(rules)


class Figure:
    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.parts = [f'<rect class="card" width="{width}" height="{height}" rx="8"/>']

    def text(self, x: float, y: float, text: str, look: str = "", anchor: str = "start") -> None:
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{look}" text-anchor="{anchor}">{html.escape(text)}</text>')

    def lines(self, x: float, y: float, texts: Sequence[str], look: str = "", anchor: str = "start", step: float = 20) -> None:
        for i, text in enumerate(texts):
            self.text(x, y + step * i, text, look, anchor)

    def box(self, x: float, y: float, width: float, height: float, look: str = "", label: str = "", label_look: str = "small") -> None:
        """Draws a box, with a label in its centre."""
        self.parts.append(f'<rect class="box {look}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>')
        if label:
            self.text(x + width / 2, y + height / 2 + 5, label, label_look, "middle")

    def line(self, points: Sequence[tuple[float, float]], look: str = "", dashed: bool = False) -> None:
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        dashes = ' stroke-dasharray="3 4"' if dashed else ""
        self.parts.append(f'<path class="stroke {look}" d="{path}"{dashes}/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float, look: str = "") -> None:
        """Draws a straight arrow along x or y."""
        self.line([(x1, y1), (x2, y2)], look)
        if y1 == y2:
            back = -6 if x2 > x1 else 6
            self.line([(x2 + back, y2 - 4), (x2, y2), (x2 + back, y2 + 4)], look)
        else:
            back = -6 if y2 > y1 else 6
            self.line([(x2 - 4, y2 + back), (x2, y2), (x2 + 4, y2 + back)], look)

    def dot(self, x: float, y: float, look: str = "") -> None:
        self.parts.append(f'<circle class="dot {look}" cx="{x:g}" cy="{y:g}" r="4.5"/>')

    def write(self, script: str) -> None:
        """Writes NAME.svg next to NAME.py."""
        picture = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
                   f'viewBox="0 0 {self.width} {self.height}" role="img">\n<title>{html.escape(self.title)}</title>\n'
                   f"<style>{style()}</style>\n" + "\n".join(self.parts) + "\n</svg>\n")
        Path(script).with_suffix(".svg").write_text(picture, encoding="utf-8")


LEAST_INTENSITY, RIGHT, BOTTOM = 0.5, 540, 340  # the plot area of a roofline


def roofline_axes(figure: Figure) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Draws the axes of a roofline. Returns functions that place an intensity and a rate."""
    left, top = 62, 26

    def x(intensity: float) -> float:
        return left + (RIGHT - left) * log10(intensity / LEAST_INTENSITY) / log10(5000 / LEAST_INTENSITY)

    def y(tflops: float) -> float:
        return BOTTOM - (BOTTOM - top) * log10(tflops) / log10(2000)

    for value in (1, 10, 100, 1000):
        figure.line([(left, y(value)), (RIGHT, y(value))], dashed=True)
        figure.text(left - 8, y(value) + 5, str(value), "small soft", "end")
        figure.line([(x(value), BOTTOM), (x(value), BOTTOM + 5)])
        figure.text(x(value), BOTTOM + 21, str(value), "small soft", "middle")
    figure.line([(left, top), (left, BOTTOM), (RIGHT, BOTTOM)])
    figure.text(left + 8, top + 4, "TFLOP/s", "small soft")
    figure.text(RIGHT, BOTTOM + 42, "FLOPs per byte of device memory", "small soft", "end")
    return x, y


def data_text(name: str, what: str, writer: str, value: object) -> str:
    """Returns the text of interactive/NAME_data.js, which an interactive figure reads."""
    return f"// {what}: docs/figures/{writer} writes this.\n(window.flashbookData ??= {{}}).{name} = {json.dumps(value, separators=(',', ':'))};\n"
