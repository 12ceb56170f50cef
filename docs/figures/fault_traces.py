#!/usr/bin/env python3
"""Writes fault_chNN.svg: what the warps of a block do with and without a planted fault, from interactive/fault_chNN_data.js, which
recorded/fault_traces.py records."""
import json
from pathlib import Path

from svg import Figure

HERE = Path(__file__).parent
LOOKS = ("soft", "amber", "green", "blue", "soft", "soft", "soft", "soft", "red")  # one per group of events in the simulator
LEGEND = (("amber", "barriers"), ("green", "copies"), ("blue", "products"), ("soft", "all else"), ("red", "the fault"))
LEFT, WIDTH, FIELDS = 16, 528, 5
STYLE = "<style>" + "".join(f".lane.{look}{{fill:none;stroke:var(--{look})}}" for look in ("soft", "amber", "green", "blue", "red")) + "</style>"


def panel(figure, y, title, rows, warps, count):
    """Draws one row per warp, with its events from left to right. Returns where the panel ends."""
    figure.text(LEFT, y + 14, title, "small bold")
    y += 22
    tall, each = max(4, 84 // (warps + 1)), WIDTH / count
    paths = dict.fromkeys(LOOKS, "")
    for number in range(0, len(rows), FIELDS):
        group, warp, of_warps = rows[number:number + 3]
        top = y + tall * (warp if warp >= 0 else warps)
        x = LEFT + number // FIELDS * each
        paths[LOOKS[group]] += f"M{x:.1f} {top:g}v{tall * of_warps - 1:g}" if LOOKS[group] != "red" else f"M{x:.1f} {y - 3:g}v{tall * (warps + 1) + 6:g}"
    for look, path in paths.items():
        if path:
            figure.parts.append(f'<path class="lane {look}" d="{path}" stroke-width="{max(1.2, each) if look != "red" else 3:.1f}"/>')
    return y + tall * (warps + 1) + 12


def draw(file):
    name = file.stem.removesuffix("_data")
    text = file.read_text(encoding="utf-8")
    data = json.loads(text[text.index(f".{name} = ") + len(f".{name} = "):].rstrip().rstrip(";"))
    warps, count = data["warps"], max(len(data["good"]), len(data["broken"])) // FIELDS
    tall = max(4, 84 // (warps + 1)) * (warps + 1) + 34
    figure = Figure(560, 2 * tall + 68, "What the warps of a block do without the fault and with it, from the first event to the last")
    figure.parts.append(STYLE)
    y = panel(figure, 8, f"{data['kernel']}, unmodified: {len(data['good']) // FIELDS} events", data["good"], warps, count)
    y = panel(figure, y + 4, f"with the fault: {len(data['broken']) // FIELDS} events; red is what the simulator reports", data["broken"], warps, count)
    for x, (look, words) in zip((16, 112, 196, 290, 376), LEGEND):
        figure.parts.append(f'<path class="lane {look}" d="M{x} {y + 12}h14" stroke-width="9"/>')
        figure.text(x + 20, y + 17, words, "small")
    figure.text(LEFT, y + 36, f"A row for each of {warps} warps, from left to right in the order of events.", "small soft")
    figure.write(str(HERE / f"{name}.py"))


for file in sorted((HERE / "interactive").glob("fault_ch*_data.js")):
    draw(file)
