#!/usr/bin/env python3
"""Writes ring_phases.svg: the phases of a ring's four barriers, from event to event of the table in chapter 5.

hopper_layouts.json has the events, as the simulator saw them (tests/docs/hopper_figures.py)."""
import json
from pathlib import Path

from svg import Figure

LAYOUTS = Path(__file__).with_name("hopper_layouts.json")
BARRIERS = ("full[0]", "empty[0]", "full[1]", "empty[1]")
LOOKS = ("blue", "amber")  # of parity 0 and 1
LEFT, STEP, HIGH = 78, 22, 30


def spelt(barrier):
    return barrier.replace("[", " ").replace("]", "")


def told(events):
    """The events of the table: both stages once round, up to the tile of the second round. The warps are told one by one for the first stage
    only, and the last of them ends the phase."""
    for event in events:
        warp = event["what"].startswith("warp")
        if not warp or (event["barrier"] == "empty[0]" and event["empty[0]"][1] > 0):
            yield event
        if event["what"] == "consumer passes" and event["full[0]"][0] == 2:
            return
    raise ValueError("the ring never came to its second round")


def main():
    events = list(told(json.loads(LAYOUTS.read_text(encoding="utf-8"))["ring"]))
    figure = Figure(520, 346, "Each barrier of a ring goes from phase to phase. Who waits names a parity, and passes when the phase of that parity is over.")
    x = lambda number: LEFT + number * STEP  # where event `number` begins, from 1 on
    for number in range(1, len(events) + 1):
        figure.text(x(number), 28, str(number), "small soft", "middle")
    figure.text(16, 28, "event", "small soft")
    for row, barrier in enumerate(BARRIERS):
        y = 46 + row * 60 + row // 2 * 6
        figure.text(16, y + 20, spelt(barrier), "small")
        begin, phase = 0.5, 0
        for number, event in enumerate([*events, None], 1):
            if event is None or event[barrier][0] != phase:
                end = number if event else number - 0.5
                figure.box(x(begin), y, x(end) - x(begin), HIGH, LOOKS[phase % 2])
                figure.text((x(begin) + x(end)) / 2, y + 20, f"phase {phase}" if end - begin > 3 else str(phase), "small", "middle")
                begin, phase = number, phase + 1
        for number, event in enumerate(events, 1):
            if event["barrier"] != barrier:
                continue
            if event["what"].endswith("passes"):
                figure.dot(x(number), y + HIGH + 9, "green")
            elif event["what"] != "over":
                figure.dot(x(number), y + HIGH + 9, "red")
    y = 310
    for left, look, words in ((16, "blue", "parity 0"), (104, "amber", "parity 1")):
        figure.box(left, y - 12, 16, 14, look)
        figure.text(left + 22, y, words, "small soft")
    for left, look, words in ((206, "red", "an arrival"), (306, "green", "a wait that passes")):
        figure.dot(left, y - 5, look)
        figure.text(left + 12, y, words, "small soft")
    figure.text(16, y + 24, "A phase ends when all arrivals are in and all bytes have landed.", "small soft")
    figure.write(__file__)


if __name__ == "__main__":
    main()
