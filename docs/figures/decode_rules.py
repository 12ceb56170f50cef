#!/usr/bin/env python3
"""Writes decode_rules.svg: which keys must be read under a window, who reads them, and where a sink is added. The keys
are counted, not measured."""
from svg import Figure

PAGES, PAGE_OF_WINDOW, PARTS = 20, 11, 3  # pages of the sequence, first page with a visible key, blocks
WIDTH = 26


figure = Figure(560, 372, "A sequence of 20 pages. A window begins inside page 11; pages 0 to 10 are not read. Three blocks read the rest in parts. "
                          "The last to arrive merges them with the sink.")
figure.text(16, 28, "A sequence's cache, in pages", "bold")
for page in range(PAGES):
    figure.box(16 + page * WIDTH, 42, WIDTH - 2, 28, "" if page < PAGE_OF_WINDOW else "amber")
begin = 16 + PAGE_OF_WINDOW * WIDTH
end = 16 + PAGES * WIDTH
figure.line([(begin + 15, 36), (begin + 15, 78)], "red")
figure.text(16, 92, "before the window: not read", "small soft")
figure.text(begin + 20, 92, "the window's keys", "small red")
each = (end - begin) / PARTS
for part in range(PARTS):
    middle = begin + each * (part + 0.5)
    figure.box(begin + each * part, 108, each - 4, 30, "blue", f"block {part}")
    figure.arrow(middle - 2, 138, middle - 2, 160)
    figure.box(begin + each * part, 162, each - 4, 40)
    figure.text(middle - 2, 179, "O, LSE", "small", "middle")
    figure.text(middle - 2, 195, "no sink", "small soft", "middle")
figure.arrow(begin + each * 1.5 - 2, 202, begin + each * 1.5 - 2, 228, "green")
figure.box(begin, 230, end - begin - 4, 44, "green")
figure.lines((begin + end) / 2, 249, ("the last to arrive merges:", "O and LSE of all keys"), "small", "middle", step=17)
figure.box(16, 230, 230, 44, "amber")
figure.lines(131, 249, ("the head's sink b", "a score without a key"), "small", "middle", step=17)
figure.arrow(131, 274, 131, 300, "green")
figure.arrow((begin + end) / 2, 274, (begin + end) / 2, 300, "green")
figure.box(16, 302, end - 20, 28, "green", "LSE' = log(e^LSE + e^b),   O' = e^(LSE - LSE') O")
figure.text(16, 356, "Keys of the first page before the window are read, but masked.", "small soft")
figure.write(__file__)
