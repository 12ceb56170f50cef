#!/usr/bin/env python3
"""Writes fault_chNN.svg: what the warps of a block do with and without a planted fault; timelines.svg: what they do in the
first steps of chapter 5; and interactive/timelines_data.js, the list of recorded steps. The events are those of
interactive/fault_chNN_data.js, which recorded/fault_traces.py records."""
import sys
from pathlib import Path

from svg import Figure, data_text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from bench import steps
from docs.tools.interactive import data_of

LOOKS = ("soft", "amber", "green", "blue", "soft", "soft", "soft", "soft", "red")  # one per group of events in the simulator
LEGEND = (("amber", "barriers"), ("green", "copies"), ("blue", "products"), ("soft", "all else"), ("red", "the fault"))
LEFT, WIDTH, FIELDS, DIGITS = 16, 528, 4, 57
STYLE = "<style>" + "".join(f".lane.{look}{{fill:none;stroke:var(--{look})}}" for look in ("soft", "amber", "green", "blue", "red")) + "</style>"


def unpacked(kinds, text):
    """Returns (group, warp, warps) of each event. recorded/fault_traces.py describes the text."""
    events, at, warp = [], 0, -1
    while at < len(text):
        if text[at] > "\\":
            warp, at = ord(text[at]) - 94, at + 1
        first = FIELDS * ((ord(text[at]) - 35) * DIGITS + ord(text[at + 1]) - 35)
        events.append((kinds[first], warp, kinds[first + 1]))
        at += 2
    return events


def panel(figure, y, title, events, warps, count):
    """Draws one row per warp, with its events from left to right. Returns where the panel ends."""
    figure.text(LEFT, y + 14, title, "small bold")
    y += 22
    tall, each = max(4, 84 // (warps + 1)), WIDTH / count
    paths = dict.fromkeys(LOOKS, "")
    for number, (group, warp, of_warps) in enumerate(events):
        top = y + tall * (warp if warp >= 0 else warps)
        x = LEFT + number * each
        paths[LOOKS[group]] += f"M{x:.1f} {top:g}v{tall * of_warps - 1:g}" if LOOKS[group] != "red" else f"M{x:.1f} {y - 3:g}v{tall * (warps + 1) + 6:g}"
    for look, path in paths.items():
        if path:
            figure.parts.append(f'<path class="lane {look}" d="{path}" stroke-width="{max(1.2, each) if look != "red" else 3:.1f}"/>')
    return y + tall * (warps + 1) + 12


def draw(name, title, panels, words):
    """Draws a list of (title, events, warps) below one another."""
    count = max(len(events) for _, events, _ in panels)
    height = sum(max(4, 84 // (warps + 1)) * (warps + 1) + 34 for _, _, warps in panels) + 4 * (len(panels) - 1) + 64
    figure = Figure(560, height, title)
    figure.parts.append(STYLE)
    y = 4
    for words_above, events, warps in panels:
        y = panel(figure, y + 4, words_above, events, warps, count)
    drawn = {LOOKS[group] for _, events, _ in panels for group, _, _ in events}
    for x, (look, meant) in zip((16, 112, 196, 290, 376), (entry for entry in LEGEND if entry[0] in drawn)):
        figure.parts.append(f'<path class="lane {look}" d="M{x} {y + 12}h14" stroke-width="9"/>')
        figure.text(x + 20, y + 17, meant, "small")
    figure.text(LEFT, y + 36, words, "small soft")
    figure.write(str(HERE / f"{name}.py"))


def main():
    titles = []
    for file in sorted((HERE / "interactive").glob("fault_ch[0-9]*_data.js")):
        name = file.stem.removesuffix("_data")
        data = data_of(file.parent, name)
        chapter, overview = int(name[-2:]), []
        for step in steps.of(chapter):
            if step.slug not in data["steps"]:
                continue
            traced = data["steps"][step.slug]
            good, broken = (unpacked(data["events"], traced[key]) for key in ("good", "broken"))
            broken = good[:traced["same"]] + broken
            titles.append([step.name, f"{chapter}.{step.number} {step.title}"])
            overview.append((f"Step {step.number}, {step.title}: {len(good)} events", good, traced["warps"]))
            if traced["on_page"]:
                draw(name, "What the warps of a block do without the fault and with it, from the first event to the last",
                     [(f"Step {step.number}, {step.title}, unmodified: {len(good)} events", good, traced["warps"]),
                      (f"with the fault: {len(broken)} events; red is what the simulator reports", broken, traced["warps"])],
                     f"A row for each of {traced['warps']} warps and one for the block, in the order of events.")
        if chapter == 5:
            draw("timelines", "What the warps of a block do in the first steps of chapter 5", overview[:3], "A row for each warp, from left to right in the order of events.")
    text = data_text("timelines", "The steps that have a timeline", Path(__file__).name, {"steps": titles})
    (HERE / "interactive" / "timelines_data.js").write_text(text, encoding="utf-8")


main()
