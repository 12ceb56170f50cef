#!/usr/bin/env python3
"""Writes block_sizes.svg: costs and benefits of tiles of 16 to 128 rows in chapter 3's step 2 at d = 128."""
import re

from svg import Figure

from bench import results

WIDEST = 200


sizes = {}
for name, entry in results.load(results.RESULTS / results.BOOK_GPU).newest.items():
    found = re.fullmatch(r"blocks/ch03/b(\d+)/bf16/d128/full/n4096", name)
    if found and not entry.skipped:
        of = entry.values
        sizes[int(found[1])] = {"ms": round(entry.milliseconds, 2), "shared": int(of["kernel1_shared_bytes"]), "blocks": int(of["kernel1_blocks"])}
sizes = dict(sorted(sizes.items()))
figure = Figure(420, 44 + 62 * len(sizes), "Tiles of " + ", ".join(f"{rows} rows: {of['shared'] / 1024:.0f} KB of shared memory, {of['blocks']} blocks on a multiprocessor, "
                                                                    f"{of['ms']:.0f} ms" for rows, of in sizes.items()))
for x, words, look in ((70, "shared memory", "blue"), (200, "time", "amber")):
    figure.box(x, 14, 14, 12, look)
    figure.text(x + 20, 25, words, "small")
for i, (rows, of) in enumerate(sizes.items()):
    y = 40 + 62 * i
    figure.text(16, y + 28, f"{rows}", "bold")
    for line, (value, most, words, look) in enumerate(((of["shared"], 227 * 1024, f"{of['shared'] / 1024:.0f} KB, {of['blocks']} at a time", "blue"),
                                                       (of["ms"], max(o["ms"] for o in sizes.values()), f"{of['ms']:.0f} ms", "amber"))):
        width = WIDEST * value / most
        figure.box(60, y + 4 + 24 * line, width, 18, look)
        figure.text(60 + width + 8, y + 18 + 24 * line, words, "small")
figure.write(__file__)
