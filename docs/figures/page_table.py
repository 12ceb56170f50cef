#!/usr/bin/env python3
"""Writes page_table.svg: two sequences that share pages, their page tables, and the copy made by the first write."""
from svg import Figure

ROWS = 4  # keys per page in the picture
CELL = 26


def page(figure, x, y, keys, look, used=ROWS):
    for row in range(ROWS):
        figure.box(x + row * CELL, y, CELL, 26, look if row < used else "")
        if row < used:
            figure.text(x + row * CELL + CELL / 2, y + 18, str(keys + row), "small", "middle")


figure = Figure(560, 430,
                "A page table: sequence A has pages 5, 2 and 7; sequence B, forked from A, shares 5 and 2 and has a copy of 7 in page 3.")
figure.text(16, 28, "What a sequence sees: keys in order", "bold")
for y, name, last, look in ((44, "A", 10, "blue"), (82, "B", 11, "green")):
    figure.text(16, y + 18, name, "bold")
    for i in range(3):
        page(figure, 44 + i * (ROWS * CELL + 14), y, i * ROWS, "" if i < 2 else look, ROWS if i < 2 else last - 2 * ROWS)

figure.text(16, 148, "Its table: which page has its next 4 keys", "bold")
for y, name, pages in ((162, "A", (5, 2, 7)), (198, "B", (5, 2, 3))):
    figure.text(16, y + 18, name, "bold")
    for i, number in enumerate(pages):
        figure.box(44 + i * 60, y, 46, 26, "amber" if i < 2 else ("blue" if name == "A" else "green"), str(number), "bold")
figure.lines(250, 180, ("both begin with pages 5 and 2:", "held twice, stored once"), "small soft", step=18)

figure.text(16, 262, "Memory: pages in any order", "bold")
held = {2: (4, ROWS, "amber", "×2"), 3: (8, 3, "green", "×1"), 5: (0, ROWS, "amber", "×2"), 7: (8, 2, "blue", "×1")}
for number in range(8):
    x, y = 16 + number % 4 * 135, 280 + number // 4 * 62
    figure.text(x, y + 13, f"page {number}", "small soft")
    if number in held:
        keys, used, look, holders = held[number]
        page(figure, x, y + 18, keys, look, used)
        figure.text(x + ROWS * CELL, y + 13, holders, "small soft", "end")
    else:
        page(figure, x, y + 18, 0, "", 0)
        figure.text(x + ROWS * CELL, y + 13, "free", "small soft", "end")
figure.text(16, 418, "×2: two sequences use it. Keys 8 and 9 were copied to page 3 for B's key 10.", "small")
figure.write(__file__)
