#!/usr/bin/env python3
"""Writes online_softmax.svg, the static version of the interactive figure: the scores 2, 5, 3, one at a time."""
import math
import pathlib

STYLE = """
  .paper { fill: #ffffff; stroke: #dedede } text { font: 14px Helvetica, Arial, sans-serif; fill: #2f4153 } .soft { fill: #6f7e8e }
  .field { fill: #f5f6f7 } .tick { fill: #6f7e8e } .ahead { fill: none; stroke: #6f7e8e } .now, .bar { fill: #1779c4 } .old { opacity: .5 }
  .gap { stroke: #6f7e8e; stroke-width: 2; stroke-dasharray: 2 3 } .m { stroke: #d9822b; stroke-width: 2 }
  .ghost { fill: none; stroke: #d9822b; stroke-width: 1.5; stroke-dasharray: 4 3 } .repair { fill: #a3580c } .strong { font-weight: 600 }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #1c1d1f; stroke: #38393b } text { fill: #d2dbde } .soft { fill: #859399 } .field { fill: #27282b } .repair { fill: #e59a4f }
  }
"""
SCORES = [2, 5, 3]
WIDTH, ROW, PANEL, SLOT = 410, 122, 76, 34  # a row holds two panels, PANEL pixels high, with a slot for every score


def number(x):
    return f"{x:.4f}".rstrip("0").rstrip(".")


def panel(x, y, parts):
    """Returns a field with a slot for every score, and its contents."""
    return [f'<rect class="field" x="{x}" y="{y}" width="{SLOT * len(SCORES)}" height="{PANEL}"/>', *parts]


def row(y, i, old_max, old_sum):
    """Reads score i. Returns the drawing and the new maximum and sum."""
    new_max = max(old_max, SCORES[i])
    correction = math.exp(old_max - new_max)
    new_sum = old_sum * correction + math.exp(SCORES[i] - new_max)

    def level(score):
        return y + PANEL - 14 - (score - min(SCORES)) / (max(SCORES) - min(SCORES)) * (PANEL - 28)

    left, right, text = 14, 136, 256
    scores, bars = [], []
    for j, score in enumerate(SCORES):
        center, bottom = left + SLOT * (j + 0.5), y + PANEL
        if j <= i and score < new_max:
            scores.append(f'<line class="gap" x1="{center}" y1="{level(score):.1f}" x2="{center}" y2="{level(new_max):.1f}"/>')
        soft = "" if j <= i else ' class="soft"'
        kind = "now" if j == i else "tick" if j < i else "ahead"
        scores.append(f'<rect class="{kind}" x="{center - 11}" y="{level(score) - 2.5:.1f}" width="22" height="5" rx="2.5"/>')
        scores.append(f'<text{soft} x="{center}" y="{bottom + 16}" text-anchor="middle">{score}</text>')
        if j > i:
            continue
        center, height = right + SLOT * (j + 0.5), 56 * math.exp(score - new_max)
        if j < i and new_max > old_max:
            before = 56 * math.exp(score - old_max)
            bars.append(f'<rect class="ghost" x="{center - 12}" y="{bottom - before:.1f}" width="24" height="{before:.1f}"/>')
        bars.append(f'<rect class="bar{"" if j == i else " old"}" x="{center - 12}" y="{bottom - height:.1f}" width="24" height="{height:.1f}"/>')
        bars.append(f'<text x="{center}" y="{bottom + 16}" text-anchor="middle">{math.exp(score - new_max):.2f}</text>')
    scores.insert(0, f'<line class="m" x1="{left}" y1="{level(new_max):.1f}" x2="{left + SLOT * len(SCORES)}" y2="{level(new_max):.1f}"/>')

    if i == 0:
        lines = [("word", f"read {SCORES[i]}"), ("word", f"m = {new_max}"), ("word", "nothing to correct")]
    elif new_max > old_max:
        lines = [("word", f"read {SCORES[i]}: above m"), ("word", f"m = {new_max}, correction"), ("repair", f"exp({old_max} − {new_max}) = {number(correction)}")]
    else:
        lines = [("word", f"read {SCORES[i]}: below m"), ("word", f"m = {new_max} stays"), ("word", "correction 1")]
    lines.append(("strong", f"ℓ = {number(new_sum)}"))
    words = [f'<text class="{c}" x="{text}" y="{y + 13 + 22 * n}">{line}</text>' for n, (c, line) in enumerate(lines)]
    return panel(left, y, scores) + panel(right, y, bars) + words, new_max, new_sum


def svg():
    parts = ['<text class="soft" x="14" y="24">scores, line: m</text>', '<text class="soft" x="136" y="24">exp(s − m)</text>']
    m, total = -math.inf, 0.0
    for i in range(len(SCORES)):
        drawing, m, total = row(34 + ROW * i, i, m, total)
        parts += drawing
    safe = sum(math.exp(s - max(SCORES)) for s in SCORES)
    assert math.isclose(total, safe)
    bottom = 34 + ROW * len(SCORES)
    parts.append(f'<text x="14" y="{bottom + 4}">Two passes, maximum first, give the same:</text>')
    parts.append(f'<text class="strong" x="14" y="{bottom + 25}">m = {max(SCORES)}, ℓ = {number(safe)}</text>')
    height = bottom + 42
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">',
                      "<title>Online softmax of the scores 2, 5, 3: when the maximum rises, one factor repairs the sum</title>",
                      f"<style>{STYLE}</style>",
                      f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>', *parts, "</svg>\n"])


if __name__ == "__main__":
    pathlib.Path(__file__).with_suffix(".svg").write_text(svg(), encoding="utf-8")
