#!/usr/bin/env python3
"""Writes hopper_block*.svg and masks_block*.svg: who does what in a block of chapters 5 and 9, and at which barriers they meet."""
from pathlib import Path

from svg import Figure


def shared(figure, y, high, title, *words):
    figure.box(196, y, 148, high, "amber")
    figure.text(270, y + 19, title, "bold amber", "middle")
    for i, line in enumerate(words):
        figure.text(270, y + 38 + 18 * i, line, "small", "middle")


def consumers(figure, y, high, rows="64 queries"):
    figure.text(452, y - 10, "consumers", "bold", "middle")
    for i in range(2):
        top = y + i * (high + 12)
        figure.box(384, top, 140, high, "green")
        figure.text(454, top + 20, f"warpgroup {i + 1}", "bold green", "middle")
        figure.text(454, top + 40, rows, "small", "middle")
        figure.text(454, top + 58, "232 registers", "small", "middle")


def column(figure, words):
    figure.text(86, 26, words, "bold", "middle")


def thread(figure, y, high, *words):
    figure.box(16, y, 140, high, "blue")
    for i, line in enumerate(words):
        figure.text(86, y + 19 + 18 * i, line, "small blue" if i == 0 else "small", "middle")


def handed_over(figure, y, where, holds, barriers):
    """Draws the stages between warpgroup 0's threads and the consumers, with arrows."""
    shared(figure, y, 48, where, holds)
    figure.text(270, y + 66, barriers, "small soft", "middle")
    if where in ("output", "dQ"):
        figure.arrow(382, y + 24, 346, y + 24)
        figure.arrow(194, y + 24, 158, y + 24)
    elif where == "dS":  # barriers among the consumers
        figure.arrow(382, y + 15, 346, y + 15)
        figure.arrow(346, y + 33, 382, y + 33)
    else:
        figure.arrow(158, y + 24, 194, y + 24)
        figure.arrow(346, y + 24, 382, y + 24)


def specialised():
    figure = Figure(540, 300, "Producer: one thread starts TMA loads of tiles. Shared memory: queries and four stages. Two consumers read them. "
                              "Barriers q_full, full and empty hand tiles over in both directions.")
    column(figure, "warpgroup 0")
    thread(figure, 40, 64, "thread 0: producer", "loads tiles by TMA", "40 registers")
    figure.box(16, 116, 140, 46, "", "127 threads: leave", "small soft")
    shared(figure, 40, 48, "Q", "for each consumer")
    shared(figure, 112, 84, "pipeline", "4 stages,", "K or V in each")
    consumers(figure, 40, 76)
    figure.arrow(158, 62, 194, 62)
    figure.arrow(346, 62, 382, 62)
    figure.line([(156, 96), (176, 96), (176, 150)])
    figure.arrow(176, 150, 194, 150)
    figure.arrow(346, 150, 382, 150)
    for i, words in enumerate(("q_full: the queries have landed", "full: a stage's tile has landed, counted in bytes", "empty: all warps of all consumers have read it")):
        figure.text(16, 232 + 22 * i, words, "small")
    figure.write(__file__)


def persistent():
    figure = Figure(540, 414, "Three threads of warpgroup 0: one streams keys and values and broadcasts the next tile, one loads queries, one stores outputs. "
                              "Between them and the consumers are the pipeline, the queries, the outputs and the broadcast, each with barriers.")
    column(figure, "warpgroup 0")
    rows = (("thread 0: keys", "K, V; next tile", "broadcast", "the next tile", "work_full, work_empty"),
            ("", "", "pipeline", "K or V per stage", "full, empty"),
            ("thread 32: queries", "the next Q", "Q", "one per consumer", "q_full, q_empty"),
            ("thread 64: outputs", "stores by TMA", "output", "one per consumer", "output_full, output_empty"))
    for i, (who, what, where, holds, barriers) in enumerate(rows):
        y = 40 + 88 * i
        if who:
            thread(figure, y, 136 if i == 0 else 48, who, what)
        handed_over(figure, y, where, holds, barriers)
    consumers(figure, 40, 150)
    figure.text(16, 400, "X_full: there is something to read. X_empty: there is space to write.", "small")
    figure.write(str(Path(__file__).with_name("hopper_block_persistent.py")))


def masks():
    figure = Figure(540, 540, "Four threads of warpgroup 0. Warp 3 decides: it broadcasts the next row, and passes the tiles of keys that the row needs to thread 0 as bit masks. "
                              "Thread 0 streams these tiles, and signals at near_end when the next row is needed. Thread 32 loads queries into one of two buffers. "
                              "The output replaces its queries; thread 64 stores it and releases the buffer.")
    column(figure, "warpgroup 0")
    thread(figure, 40, 98, "warp 3: decides", "a lane classifies", "a tile of keys")
    thread(figure, 172, 92, "thread 0: keys", "streams K and V of", "the given tiles")
    figure.arrow(40, 170, 40, 140)
    figure.text(50, 160, "near_end", "small soft")
    handed_over(figure, 40, "broadcast", "next row, its counts", "work_full, work_empty")
    shared(figure, 124, 60, "ballots", "32 tiles as bits")
    figure.line([(156, 126), (176, 126), (176, 142)])
    figure.arrow(176, 142, 194, 142)
    figure.line([(196, 168), (176, 168), (176, 190)])
    figure.arrow(176, 190, 158, 190)
    figure.text(270, 202, "ballot_full, ballot_empty", "small soft", "middle")
    handed_over(figure, 216, "pipeline", "a stage, its first key", "full, empty")
    thread(figure, 304, 48, "thread 32: queries", "the next Q")
    thread(figure, 392, 48, "thread 64: outputs", "stores by TMA")
    figure.arrow(40, 390, 40, 354)
    figure.text(50, 376, "q_empty", "small soft")
    shared(figure, 304, 136, "two buffers", "each with Q of every", "consumer and, after", "it has been read,", "the output")
    figure.text(270, 458, "q_full, output_full", "small soft", "middle")
    for left, right in ((158, 194), (346, 382)):
        figure.arrow(left, 328, right, 328)
        figure.arrow(right, 416, left, 416)
    consumers(figure, 40, 208)
    figure.text(16, 492, "A row: a tile of queries and the tiles of keys that it needs.", "small")
    figure.text(16, 512, "X_full: there is something to read. X_empty: there is space to write.", "small")
    figure.text(16, 532, "At d = 256 there is one buffer, and outputs are stored from registers.", "small")
    figure.write(str(Path(__file__).with_name("masks_block.py")))


def masks_backward():
    figure = Figure(540, 592, "Four threads of warpgroup 0. Thread 0 takes the next tile of keys, tells all others, and loads Q. Thread 32 loads K, V and dO. "
                              "Threads 64 and 96 add the consumers' dQ. The consumers exchange dS.")
    column(figure, "warpgroup 0")
    thread(figure, 40, 136, "thread 0: Q", "takes the next", "tile of keys,", "loads queries")
    thread(figure, 216, 136, "thread 32: K, V, dO", "loads keys once,", "dO in each round")
    thread(figure, 480, 48, "threads 64 and 96", "add dQ by TMA")
    rows = (("broadcast", "next keys, its rounds", "work_full, work_empty"), ("Q", "2 stages, entries", "full, empty"),
            ("K, V", "one buffer each", "keys_full, keys_empty"), ("dO", "2 stages", "full, empty"),
            ("dS", "of both consumers", "kDsWritten, kDsRead"), ("dQ", "a part of each", "dq_full, dq_empty"))
    for i, (where, holds, barriers) in enumerate(rows):
        y = 40 + 88 * i
        handed_over(figure, y, where, holds, barriers)
    consumers(figure, 40, 240, "64 keys")
    figure.text(16, 580, "A round: one tile of queries. An entry: which tile it is, from the list.", "small")
    figure.write(str(Path(__file__).with_name("masks_block_backward.py")))


specialised()
persistent()
masks()
masks_backward()
