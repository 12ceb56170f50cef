#!/usr/bin/env python3
"""Writes ring_phases.svg: the stages of a ring and the phases of their barriers, from event to event of the table in chapter 5.

hopper_layouts.json has the simulator's events (docs/figures/recorded/hopper_figures.py)."""
import json
from pathlib import Path

from svg import Figure

LAYOUTS = Path(__file__).with_name("hopper_layouts.json")
LOOKS = ("blue", "amber")  # for parity 0 and 1
LEFT, STEP, HIGH = 74, 24, 24


def told(events):
    """Yields the drawn events: one round of both stages, up to the tile of the second round. Only the first stage shows individual warps. The last
    one's arrival ends the phase, so both are one event."""
    for event in events:
        warp = event["what"].startswith("warp")
        if not warp or (event["barrier"] == "empty[0]" and event["empty[0]"][1] > 0):
            yield event
        if event["what"] == "consumer passes" and event["full[0]"][0] == 2:
            return
    raise ValueError("the ring never reached its second round")


def stretches(events, stage):
    """Returns [(begin, end, what, look)]: what is in a stage, from event to event."""
    found, now, begin = [], ("free", ""), 0.5
    for number, event in enumerate([*events, None], 1):
        after = now
        if event and event["what"] == "producer announces" and event["barrier"] == f"full[{stage}]":
            after = ("on its way", "")
        elif event and event["what"] == "over" and event["barrier"] == f"full[{stage}]":
            after = (f"tile {event['tile']}", "green")
        elif event and event["what"] == "over" and event["barrier"] == f"empty[{stage}]":
            after = ("free", "")
        if after != now or event is None:
            found.append((begin, number if event else number - 0.5, *now))
            now, begin = after, number
    return found


def story(events):
    """Returns the legend of the numbered events, as lines."""
    def at(what, barrier, nth=0):
        return [number for number, event in enumerate(events, 1) if event["what"] == what and event["barrier"] == barrier][nth]

    first_warp = next(number for number, event in enumerate(events, 1) if event["what"].startswith("warp"))
    return [
        f"{at('producer passes', 'empty[0]')}, {at('producer passes', 'empty[1]')}: the producer waits for parity 1, and passes at once: all stages are free.",
        f"{at('producer announces', 'full[0]')}, {at('producer announces', 'full[1]')}: it announces a tile's bytes, its one arrival, and requests the copy.",
        f"{at('over', 'full[0]')}: the last byte of K2 has landed, and phase 0 of full[0] is complete.",
        f"{at('consumer passes', 'full[0]')}: the consumer waited for parity 0. It passes, and reads the tile.",
        f"{first_warp}–{at('over', 'empty[0]')}: its four warps release the stage. The last ends phase 0 of empty[0].",
        f"{at('producer passes', 'empty[0]', 1)}, {at('producer announces', 'full[0]', 1)}: the producer waited for parity 0 this time, and fills the stage again.",
        f"{at('over', 'full[1]')}–{at('producer announces', 'full[1]', 1)}: the same at stage 1, where only the last of four arrivals is shown.",
        f"{at('over', 'full[0]', 1)}, {at('consumer passes', 'full[0]', 1)}: K1 has landed. The consumer waited for parity 1 this time.",
    ]


def main():
    events = list(told(json.loads(LAYOUTS.read_text(encoding="utf-8"))["ring"]))
    figure = Figure(546, 528, "Two stages of a ring: the producer fills a stage, the copy lands, the consumer reads, its warps release the stage. Each "
                              "barrier goes from phase to phase. A wait names a parity and ends when the phase of that parity is complete.")
    x = lambda number: LEFT + number * STEP  # where event `number` begins, counted from 1
    for number in range(1, len(events) + 1):
        figure.text(x(number), 24, str(number), "small soft", "middle")
    figure.text(16, 24, "event", "small soft")

    def stretch(begin, end, y, words, look):
        figure.box(x(begin), y, x(end) - x(begin), HIGH, look)
        if x(end) - x(begin) > 7 * len(words):
            figure.text((x(begin) + x(end)) / 2, y + 17, words, "small", "middle")
        elif words.startswith(("phase", "tile")):
            figure.text((x(begin) + x(end)) / 2, y + 17, words.split()[1], "small", "middle")

    for stage in range(2):
        top = 38 + stage * 136
        figure.text(16, top + 17, f"stage {stage}", "small bold")
        for begin, end, words, look in stretches(events, stage):
            stretch(begin, end, top, words, look)
        for row, barrier in enumerate((f"full[{stage}]", f"empty[{stage}]")):
            y = top + 30 + row * 42
            figure.text(16, y + 17, barrier, "small")
            begin, phase = 0.5, 0
            for number, event in enumerate([*events, None], 1):
                if event is None or event[barrier][0] != phase:
                    stretch(begin, number if event else number - 0.5, y, f"phase {phase}", LOOKS[phase % 2])
                    begin, phase = number, phase + 1
            for number, event in enumerate(events, 1):
                if event["barrier"] == barrier and (event["what"] != "over" or barrier.startswith("empty")):
                    figure.dot(x(number), y + HIGH + 8, "green" if event["what"].endswith("passes") else "red")
    y = 326
    for left, look, words in ((16, "blue", "parity 0"), (104, "amber", "parity 1")):
        figure.box(left, y - 12, 16, 14, look)
        figure.text(left + 22, y, words, "small soft")
    for left, look, words in ((206, "red", "an arrival"), (306, "green", "a wait that passes")):
        figure.dot(left, y - 5, look)
        figure.text(left + 12, y, words, "small soft")
    for i, words in enumerate(story(events)):
        figure.text(16, y + 30 + 22 * i, words, "small")
    figure.write(__file__)


if __name__ == "__main__":
    main()
