#!/usr/bin/env python3
"""Writes three_kernels.svg: the kernels of chapter 1 and the matrices that pass between them through device memory."""
import pathlib

STYLE = """
  .paper { fill: #ffffff; stroke: #dedede } text { font: 14px Helvetica, Arial, sans-serif; fill: #2f4153 } .soft { fill: #6f7e8e } .strong { font-weight: 600 }
  .memory { fill: #6f7e8e; fill-opacity: .1 } .kernel { fill: #1779c4; fill-opacity: .14; stroke: #1779c4 } .small { fill: #1779c4; fill-opacity: .5; stroke: #1779c4 }
  .large { fill: #d9822b; fill-opacity: .45; stroke: #d9822b } .way { fill: none; stroke: #6f7e8e; stroke-width: 1.5 } .tip { fill: #6f7e8e }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #1c1d1f; stroke: #38393b } text { fill: #d2dbde } .soft { fill: #859399 }
  }
"""
WIDTH, HEIGHT = 640, 300
MEMORY, CHIP = 58, 214  # the y of both rows
KERNELS = [("scores", 125), ("softmax", 320), ("values", 515)]
# name, its middle, width and height (N is 70, d is 16), class; then who writes it and who reads it
MATRICES = [
    ("Q", 40, 16, 70, "small", None, 0),
    ("K", 90, 16, 70, "small", None, 0),
    ("S", 205, 70, 70, "large", 0, 1),
    ("P", 400, 70, 70, "large", 1, 2),
    ("V", 490, 16, 70, "small", None, 2),
    ("O", 590, 16, 70, "small", 2, None),
]


def arrow(x1, y1, x2, y2):
    return f'<path class="way" marker-end="url(#tip)" d="M {x1} {y1} L {x2} {y2}"/>'


def main():
    parts = [f'<rect class="memory" x="12" y="30" width="{WIDTH - 24}" height="118" rx="8"/>',
             '<text class="soft" x="24" y="22">device memory</text>', f'<text class="soft" x="24" y="{HEIGHT - 14}">on the chip</text>']
    for name, x in KERNELS:
        parts.append(f'<rect class="kernel" x="{x - 55}" y="{CHIP}" width="110" height="40" rx="6"/>')
        parts.append(f'<text class="strong" x="{x}" y="{CHIP + 25}" text-anchor="middle">{name}</text>')
    for name, x, width, height, kind, writer, reader in MATRICES:
        parts.append(f'<rect class="{kind}" x="{x - width / 2}" y="{MEMORY}" width="{width}" height="{height}"/>')
        parts.append(f'<text x="{x}" y="{MEMORY - 8}" text-anchor="middle">{name}</text>')
        if kind == "large":
            size = "4 N² bytes" if name == "S" else "2 N² bytes"
            parts.append(f'<text class="soft" font-size="12" x="{x}" y="{MEMORY + height / 2 + 5}" text-anchor="middle">{size}</text>')
        below = MEMORY + height + 6
        if writer is not None:
            parts.append(arrow(KERNELS[writer][1] + 25, CHIP - 4, x - width / 4, below))
        if reader is not None:
            parts.append(arrow(x + width / 4 if writer is not None else x, below, KERNELS[reader][1] - 25 + 12 * (name in "KV"), CHIP - 4))
    svg = f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">
<title>Three kernels: scores writes S, softmax reads S and writes P, values reads P. S and P are N by N, all else is N by d.</title>
<style>{STYLE}</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path class="tip" d="M 0 0 L 8 4 L 0 8 z"/></marker></defs>
<rect class="paper" x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="8"/>
{chr(10).join(parts)}
</svg>
"""
    pathlib.Path(__file__).with_suffix(".svg").write_text(svg)


if __name__ == "__main__":
    main()
