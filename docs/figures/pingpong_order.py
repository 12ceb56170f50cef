#!/usr/bin/env python3
"""Writes pingpong_order.svg: in which order the simulator's warpgroups pass the moments of the loop, without turns and with them."""
import json
from pathlib import Path

from pingpong_timeline import legend, panel
from svg import Figure


def main():
    figure = Figure(540, 360, "In the simulator's order of events consumers issue side by side without pingpong; with it one begins to issue "
                              "when the one before it has.")
    legend(figure, 16)
    y = 74
    runs = json.loads(Path(__file__).with_suffix(".json").read_text())
    for step, words in (("step2", "step 2: no order"), ("step3", "step 3: pingpong")):
        passes = [dict(zip(text.split()[::2], map(int, text.split()[1::2]))) for text in runs[step]]
        first = min(one["turn"] for one in passes if one["warpgroup"])
        y = panel(figure, y, f"d = 64, {words}", passes, first, first + 60) + 12
    figure.text(16, y + 8, "Sixty stamps of the simulator, in order: it knows who comes first, and no time.", "small soft")
    figure.write(__file__)


if __name__ == "__main__":
    main()
