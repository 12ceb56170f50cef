#!/usr/bin/env python3
"""Writes prompt_pieces.svg: a tile of 128 keys assembled from pages of 32, and a consumer's 64 rows, shared by four
heads."""
from svg import Figure

TABLE, PAGES, ROWS = (6, 1, 4, 3), 8, 32  # one tile's page table; pages in the picture; rows per page
LAST = 20  # rows of the last page that belong to the sequence
HEIGHT = 44  # height of a page


figure = Figure(640, 432, "A tile of 128 keys comes from pages 6, 1, 4 and 3, a piece each, in two panels; of the last page 20 rows are keys, and "
                          "12 are filled with zeros. Below, of a consumer's 64 rows four heads have 16 each, the same 16 queries.")
looks = ("blue", "green", "amber", "blue")
figure.text(16, 28, "Memory: pages of 32 rows", "bold")
figure.text(250, 28, "One lane per copy", "bold")
figure.text(440, 28, "Stage: 128 keys, d = 128", "bold")
top = {page: 44 + i % 4 * (HEIGHT + 8) for i, page in enumerate(range(PAGES))}
for page in range(PAGES):
    x = 16 + page // 4 * 100
    place = TABLE.index(page) if page in TABLE else None
    figure.box(x, top[page], 84, HEIGHT, "" if place is None else looks[place], f"page {page}", "small" if place is not None else "small soft")
for place, page in enumerate(TABLE):
    y = 44 + place * (HEIGHT + 8)
    figure.box(250, y, 150, HEIGHT, looks[place])
    figure.text(258, y + 18, f"lanes {2 * place}, {2 * place + 1}: page {page}", "small")
    figure.text(258, y + 36, f"keys {place * ROWS} to {place * ROWS + (LAST if place == 3 else ROWS) - 1}", "small")
    figure.arrow(400, y + HEIGHT / 2, 436, y + HEIGHT / 2)
    for panel in range(2):
        x = 440 + panel * 92
        figure.box(x, y, 86, HEIGHT + 8 if place < 3 else HEIGHT, looks[place])
        figure.text(x + 43, y + 26, f"piece {place}", "small", "middle")
figure.text(440, 262, "panel 0", "small soft")
figure.text(532, 262, "panel 1", "small soft")
figure.text(16, 262, f"Page 3 has its last {LAST} rows; the other {ROWS - LAST} become zeros.", "small")

figure.text(16, 304, "A consumer's 64 rows: the heads of a group, each with the same 16 queries", "bold")
for head in range(4):
    x = 16 + head * 152
    figure.box(x, 320, 148, 40, looks[head])
    figure.lines(x + 74, 338, (f"head {head}, queries 0-15", f"rows {16 * head} to {16 * head + 15}"), "small", "middle", step=16)
figure.text(16, 386, "All four read the stage above. A thread has rows r and r + 8, of one head.", "small")
figure.text(16, 412, "Decoding has one query: 4 of 64 rows are used, and keys are loaded once, not four times.", "small")
figure.write(__file__)
