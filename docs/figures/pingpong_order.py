#!/usr/bin/env python3
"""Writes pingpong_order.svg: the order in which the simulator's consumers issue products and take exponentials for one
tile
of keys, without turns and with them. The order comes from pingpong_order.json (docs/figures/recorded/recorded_data.py)."""
import itertools
import json
from pathlib import Path

from svg import Figure

LEFT, STAMP, ROW, HIGH = 104, 23, 44, 26
STEPS = (("specialised", "Step 2: no order", "Both issue at the same time, both wait, and both need the softmax."),
         ("pingpong", "Step 3: pingpong", "One issues after the other, so its softmax overlaps the other's products."))


def tile_of(stamps):
    """Returns the passes over the first tile that all consumers process, ordered by consumer, and the first
    timestamp."""
    passes = [dict(zip(text.split()[::2], map(int, text.split()[1::2]))) for text in stamps]
    consumers = [one for one in passes if one["warpgroup"]]
    newest = max(one["tile"] for one in consumers)
    found = sorted((one for one in consumers if one["tile"] == newest), key=lambda one: one["warpgroup"])
    return found, min(one["turn"] for one in found)


def panel(figure, y, title, words, stamps):
    found, first = tile_of(stamps)
    place = lambda stamp: LEFT + STAMP * (stamp - first)
    figure.text(16, y, title, "bold")
    figure.text(16, y + 22, words, "small soft")
    tops = [y + 36 + ROW * row for row in range(len(found))]
    for one, top in zip(found, tops):
        figure.text(16, top + 18, f"consumer {one['warpgroup'] - 1}", "small soft")
        figure.line([(place(one["issued"]), top + HIGH / 2), (place(one["scores"]), top + HIGH / 2)], dashed=True)
        for begin, end, look, name in (("turn", "issued", "blue", "issues" if one["issued"] - one["turn"] > 2 else "i"), ("scores", "end", "amber", "exp")):
            wide = STAMP * (one[end] - one[begin])
            figure.box(place(one[begin]), top, wide, HIGH, look, name)
    for (one, next_one), top in zip(itertools.pairwise(found), tops):
        if next_one["turn"] >= one["issued"]:  # the turn was passed on
            x = place(next_one["turn"]) + 4
            figure.arrow(x, top + HIGH + 1, x, top + ROW - 1, "green")
    return tops[-1] + ROW + 22


figure = Figure(520, 348, "One tile of keys. Without turns, two consumers issue their products at the same time, and then both compute their softmax. "
                          "With pingpong, one issues first and passes the turn on, so its softmax overlaps the other's products.")
runs = json.loads(Path(__file__).with_suffix(".json").read_text())
y = 28
for step, title, words in STEPS:
    y = panel(figure, y, title, words, runs[step])
figure.text(16, y - 2, "i: issues; exp: softmax; dashed: waits for scores; green: the turn", "small soft")
figure.text(16, y + 18, "The order of events in the simulator, d = 128. Lengths are not times.", "small soft")
figure.write(__file__)
