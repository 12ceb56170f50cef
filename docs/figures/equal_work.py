#!/usr/bin/env python3
"""Writes equal_work.svg: when eight blocks finish even and uneven sequences, split into equal parts or by equal work.
The tiles are counted, not measured."""
from svg import Figure

BLOCKS = 8
EVEN, UNEVEN = (16, 16, 16, 16), (40, 12, 8, 4)  # tiles of keys in each of four sequences
LOOKS = ("blue", "green", "amber", "")


def equal_parts(lengths):
    """Returns (sequence, tiles) of each block if every sequence is split into the same number of parts."""
    parts = BLOCKS // len(lengths)
    return [[(i, tiles * (part + 1) // parts - tiles * part // parts)] for i, tiles in enumerate(lengths) for part in range(parts)]


def equal_work(lengths):
    """Returns the same as equal_parts if all tiles are numbered consecutively and divided evenly."""
    owners = [i for i, tiles in enumerate(lengths) for _ in range(tiles)]
    blocks = []
    for block in range(BLOCKS):
        mine = owners[len(owners) * block // BLOCKS:len(owners) * (block + 1) // BLOCKS]
        blocks.append([(i, mine.count(i)) for i in sorted(set(mine))])
    return blocks


def panel(figure, x, y, title, blocks, scale):
    figure.text(x, y, title, "bold")
    for row, segments in enumerate(blocks):
        at = x
        for sequence, tiles in segments:
            figure.box(at, y + 12 + row * 17, tiles * scale, 14, LOOKS[sequence])
            at += tiles * scale
    longest = max(sum(tiles for _, tiles in segments) for segments in blocks)
    figure.line([(x + longest * scale, y + 8), (x + longest * scale, y + 12 + BLOCKS * 17)], "red")
    figure.text(x, y + 30 + BLOCKS * 17, f"done after {longest} tiles", "small red")


figure = Figure(560, 470,
                "Eight blocks over time. Even lengths: both ways take 8 tiles. Uneven lengths: equal parts take 20 tiles, equal work 8.")
scale = 11
panel(figure, 20, 30, "Even lengths, equal parts", equal_parts(EVEN), scale)
panel(figure, 300, 30, "Even lengths, equal work", equal_work(EVEN), scale)
panel(figure, 20, 240, "Uneven lengths, equal parts", equal_parts(UNEVEN), scale)
panel(figure, 300, 240, "Uneven lengths, equal work", equal_work(UNEVEN), scale)
figure.text(20, 434, "Rows are blocks, time runs to the right, colours are sequences.", "small soft")
figure.text(20, 454, "The uneven sequences have 40, 12, 8 and 4 tiles of keys.", "small soft")
figure.write(__file__)
