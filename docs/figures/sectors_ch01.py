#!/usr/bin/env python3
"""Writes sectors_ch01.svg: which 32-byte sectors one load instruction of a warp touches, in textbook_scores and in coalesced_scores of chapter 1."""
from svg import Figure

SECTOR, ELEMENT = 32, 2  # bytes; elements are bf16
WIDE, HIGH = 34, 17
HEAD_DIM = 64            # in the drawing a row is four sectors


def sectors(addresses):
    return {address // SECTOR for address in addresses}


def panel(figure, y, title, rows, addresses, verdict, look):
    figure.text(16, y, title, "bold")
    touched = sectors(addresses)
    per_row = HEAD_DIM * ELEMENT // SECTOR
    for row in range(rows):
        for sector in range(per_row):
            number = row * per_row + sector
            figure.box(112 + sector * (WIDE * 2.6), y + 14 + row * HIGH, WIDE * 2.6 - 3, HIGH - 3, look if number in touched else "")
        figure.text(104, y + 27 + row * HIGH, f"row {row}", "small soft", "end")
    figure.text(16, y + 34 + rows * HIGH, verdict(len(touched), len(set(addresses)) * ELEMENT), "small")


# textbook_scores: lane l of a warp reads column 0 of key row l % 16; both queries of the warp read the same 16 rows.
textbook = [(lane % 16) * HEAD_DIM * ELEMENT for lane in range(32)]
# coalesced_scores: lane l reads key l of one row of K transposed.
coalesced = [lane * ELEMENT for lane in range(32)]
words = lambda count, wanted: f"{count} sectors, {count * SECTOR} bytes, {wanted} bytes used"
figure = Figure(500, 470, "One load of a warp. In textbook_scores 16 rows are read, 2 bytes of each: 16 sectors. In coalesced_scores 32 neighbours of "
                          "one row are read: 2 sectors.")
figure.text(16, 28, "One load instruction of a warp; a box is a sector of 32 bytes", "small soft")
panel(figure, 58, "Step 1, textbook_scores: K", 16, textbook, words, "amber")
panel(figure, 404, "Step 2, coalesced_scores: K transposed", 1, coalesced, words, "green")
figure.write(__file__)
