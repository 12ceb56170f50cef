#!/usr/bin/env python3
"""Writes pingpong_timeline.svg: what the warpgroups of a block do at the same time, measured on an H200."""
import sys
from pathlib import Path

from svg import Figure

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

LEFT, RIGHT = 96, 16  # margins of the time axis
ROW, BAR = 24, 18     # heights of a warpgroup's row and of a bar in it
WORDS = {"specialised": "no order", "pingpong": "pingpong", "overlap": "pingpong, and overlap within a warpgroup", "persistent": "the last loop"}
SPANS = (("turn", "issued", "blue", "issues its products"), ("issued", "scores", "green", "waits for its scores"),
         ("scores", "end", "amber", "softmax, output rescaled"))
SENT = (("keys_sent", "ink", "keys"), ("values_sent", "red", "values"))


def legend(figure, y):
    """Draws the legend, on two lines."""
    for x, (_, _, look, words) in zip((16, 174, 340), SPANS):
        figure.box(x, y, 16, 14, look)
        figure.text(x + 22, y + 12, words, "small")
    for x, (_, look, words) in zip((22, 260), SENT):
        figure.line([(x, y + 23), (x, y + 37)], look)
        figure.text(x + 16, y + 35, f"TMA loads {words}", "small")


def panel(figure, y, title, passes, first, last):
    """Draws the warpgroups' rows from moment `first` to moment `last`. Returns where the panel ends."""
    def place(moment):
        return round(LEFT + (min(max(moment, first), last) - first) * (figure.width - LEFT - RIGHT) / (last - first), 1)

    figure.text(16, y + 14, title, "bold")
    y += 24
    newest = max(one["tile"] for one in passes if one["warpgroup"])
    for warpgroup in sorted({one["warpgroup"] for one in passes}):
        middle = y + ROW / 2
        figure.text(16, middle + 5, f"consumer {warpgroup - 1}" if warpgroup else "producer", "small soft")
        figure.line([(LEFT, middle), (figure.width - RIGHT, middle)])
        for one in (one for one in passes if one["warpgroup"] == warpgroup):
            if warpgroup == 0:
                for moment, look, _ in SENT:
                    if first <= one.get(moment, -1) <= last:
                        figure.line([(place(one[moment]), middle - BAR / 2), (place(one[moment]), middle + BAR / 2)], look)
                continue
            for begin, end, look, _ in SPANS:
                x, width = place(one[begin]), place(one[end]) - place(one[begin])
                if width > 0:
                    figure.box(x, middle - BAR / 2, width, BAR, look)
                if look == "amber" and width > 20:
                    figure.text(x + width / 2, middle + 5, str(newest - one["tile"] + 1), "small", "middle")
        y += ROW
    return y


from bench import results, steps
from bench.names import Name

measured = results.load()
STEPS = [step for step in steps.of(5) if step.slug in WORDS]

cycles = 15000
figure = Figure(540, 554, "Consumers of a block on an H200. They begin together and alternate by themselves; with pingpong they "
                          "alternate from the first tile on; with overlap, and in the last loop, they hardly wait for their scores.")
legend(figure, 16)
y = 74
for step in STEPS:
    passes = measured.measured(Name("timeline", step.name, "bf16", 128, "full", 4096)).stamps
    first = min(one["turn"] for one in passes if one["warpgroup"])
    y = panel(figure, y, f"Step {step.number}: {WORDS[step.slug]}", passes, first, first + cycles) + 12
for tick in range(0, cycles + 1, 5000):
    figure.text(LEFT + tick * (figure.width - LEFT - RIGHT) / cycles, y + 8, f"{tick} clocks" if tick == cycles else str(tick),
                "small soft", "end" if tick == cycles else "middle")
figure.text(16, y + 32, "First tiles of a block on an H200, d = 128. Gaps: waits for a tile or a turn.", "small soft")
figure.write(__file__)
