#!/usr/bin/env python3
"""Writes attention_tiles_ch03.svg, the static version of the interactive figure: three schedules halfway through, with
the total traffic of each."""
import pathlib

STYLE = """
  .paper { fill: #ffffff; stroke: #dedede } text { font: 14px Helvetica, Arial, sans-serif; fill: #2f4153 } .soft { fill: #6f7e8e } .strong { font-weight: 600 }
  .tile { fill: none; stroke: #b9c2ca } .frame { fill: none; stroke: #6f7e8e } .read { fill: #1779c4 } .held { fill: #1779c4; fill-opacity: .42 }
  .written { fill: #d9822b } .left { fill: #d9822b; fill-opacity: .25 } .used { fill: #6f7e8e; fill-opacity: .2 } .both { fill: #1779c4; stroke: #d9822b; stroke-width: 3 }
  .scores { fill: #d9822b } .rest { fill: #1779c4 } .name { font-size: 12px } .note { font-weight: 400; font-size: 13px } line { stroke: #dedede }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #1c1d1f; stroke: #38393b } text { fill: #d2dbde } .soft { fill: #859399 } .tile { stroke: #4a4d52 } .both { stroke: #d9822b } line { stroke: #38393b }
  }
"""
N, TILE, D = 512, 128, 128  # queries and keys; rows per tile; head dimension
TILES = N // TILE
WIDTH, CELL, GAP, ROW = 430, 20, 3, 168


def totals():
    """Returns the bytes of S and P, and of everything else. All are bf16, except that S, m, l and the unfinished O are
    float32. attention_tiles.js has the same closed forms."""
    pairs, tiles = N * N, TILES * TILES
    gather = 4 * N * D + 4 * TILE * D * tiles
    keys_outside = 6 * N * D + 2 * TILE * D * tiles + TILE * (8 * D + 16) * (tiles - TILES)
    return {"naive": (12 * pairs, gather), "keysOutside": (0, keys_outside), "queriesOutside": (0, gather)}


# What each schedule does with each tile at the moment drawn: query tile 3, key tile 2 (counted from 1).
SCHEDULES = [
    ("keysOutside", "Keys outside", "FlashAttention-1", ["K and V stay. Q and the unfinished", "O move for every tile of S."],
     {"K1": "held", "V1": "held", "Q2": "read", "O2": "both", "S2,1": "held",
      **{f"S{i},{j}": "used" for i in range(TILES) for j in range(TILES) if (j, i) < (1, 2)}}),
    ("queriesOutside", "Queries outside", "FlashAttention-2", ["Q and the unfinished O stay.", "K and V are read for every tile of S."],
     {"Q2": "held", "O2": "held", "K1": "read", "V1": "read", "S2,1": "held",
      **{f"S{i},{j}": "used" for i in range(TILES) for j in range(TILES) if (i, j) < (2, 1)}}),
    ("naive", "Naive", "three kernels", ["Kernel 1 computes a tile of S and", "writes it; kernel 2 reads it back", "and writes P; kernel 3 reads P."],
     {"Q2": "held", "K1": "read", "S2,1": "written", **{f"S{i},{j}": "left" for i in range(TILES) for j in range(TILES) if (i, j) < (2, 1)}}),
]


def schedule(y, key, title, note, lines, marks):
    strip, side = CELL * D // TILE, CELL * TILES
    x = {"Q": 14, "K": 14 + strip + GAP, "S": 14 + strip + GAP, "V": 14 + strip + GAP, "O": 14 + strip + side + 2 * GAP}
    top = {"K": y, "Q": y + strip + GAP, "S": y + strip + GAP, "O": y + strip + GAP, "V": y + strip + side + 2 * GAP}
    parts: list[str] = []
    late: list[str] = []

    def tile(name, left, upper, w, h):
        kind = marks.get(name, "")
        (late if kind == "both" else parts).append(f'<rect class="tile {kind}" x="{left}" y="{upper}" width="{w}" height="{h}"/>')

    for i in range(TILES):
        tile(f"Q{i}", x["Q"], top["Q"] + CELL * i, strip, CELL)
        tile(f"O{i}", x["O"], top["O"] + CELL * i, strip, CELL)
        tile(f"K{i}", x["K"] + CELL * i, top["K"], CELL, strip)
        tile(f"V{i}", x["V"] + CELL * i, top["V"], CELL, strip)
        for j in range(TILES):
            tile(f"S{i},{j}", x["S"] + CELL * j, top["S"] + CELL * i, CELL, CELL)
    for name, w, h in [("Q", strip, side), ("K", side, strip), ("S", side, side), ("V", side, strip), ("O", strip, side)]:
        parts.append(f'<rect class="frame" x="{x[name]}" y="{top[name]}" width="{w}" height="{h}"/>')
    parts += late
    middle = {"Q": x["Q"] + strip / 2, "O": x["O"] + strip / 2}
    for name, cx, cy in [("Q", middle["Q"], top["V"] + 10), ("Kᵀ", middle["O"] + 2, y + 13), ("V", middle["O"], top["V"] + 14), ("O", x["O"] + strip + 10, top["O"] + side / 2 + 4)]:
        parts.append(f'<text class="name soft" x="{cx}" y="{cy}" text-anchor="middle">{name}</text>')

    text, longest = 172, sum(totals()["naive"])
    scores, rest = totals()[key]
    parts.append(f'<text class="strong" x="{text}" y="{y + 12}">{title} <tspan class="note">{note}</tspan></text>')
    parts += [f'<text x="{text}" y="{y + 33 + 19 * n}">{line}</text>' for n, line in enumerate(lines)]
    width, bar = WIDTH - text - 14, y + 96
    parts.append(f'<rect class="rest" x="{text}" y="{bar}" width="{width * rest / longest:.1f}" height="11"/>')
    if scores:
        parts.append(f'<rect class="scores" x="{text + width * rest / longest:.1f}" y="{bar}" width="{width * scores / longest:.1f}" height="11"/>')
    share = f", {scores / 2**20:.0f} MB of it S and P" if scores else ", none of it S or P"
    parts.append(f'<text x="{text}" y="{bar + 28}">{(scores + rest) / 2**20:.2f} MB{share}</text>')
    return parts


def svg(schedules):
    parts = []
    for n, (key, title, note, lines, marks) in enumerate(schedules):
        parts += schedule(16 + ROW * n, key, title, note, lines, marks)
        if n:
            parts.append(f'<line x1="14" x2="{WIDTH - 14}" y1="{ROW * n + 1}" y2="{ROW * n + 1}"/>')
    y = ROW * len(schedules) + 10
    for x, kind, words in [(14, "read", "read"), (76, "held", "in SRAM"), (164, "written", "written"), (248, "left", "in device memory")]:
        parts.append(f'<rect class="tile {kind}" x="{x}" y="{y - 10}" width="12" height="12"/><text class="soft" x="{x + 17}" y="{y}">{words}</text>')
    parts.append(f'<text class="soft" x="14" y="{y + 22}">Middle: S = Q Kᵀ. {N} queries and keys, d = {D}, bf16.</text>')
    parts.append(f'<text class="soft" x="14" y="{y + 43}">Bars: S and P in orange, the rest in blue. 1 MB = 2²⁰ bytes.</text>')
    height = y + 57
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">',
                      "<title>Three schedules of attention: which tiles are in SRAM, and how many bytes each moves</title>",
                      f"<style>{STYLE}</style>",
                      f'<rect class="paper" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>', *parts, "</svg>\n"])


if __name__ == "__main__":
    pathlib.Path(__file__).with_name("attention_tiles_ch03.svg").write_text(svg(SCHEDULES), encoding="utf-8")
