#!/usr/bin/env python3
"""Writes common/app/rungs.h from bench/results: the book's times, which programs print with their rows.

    rungs.py [--check]    --check writes nothing; exit code 1 if the file differs from the results
"""
import argparse
import dataclasses
import pathlib
import sys
from collections.abc import Iterator, Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # so that python3 bench/rungs.py finds the packages

from bench import results, steps
from bench.results import Entry, Results

FILE = results.ROOT / "common" / "app" / "rungs.h"
HEADER = """\
// Written by bench/rungs.py from bench/results/{folder}: do not edit.
#pragma once
#include "common/app/committed.h"

namespace flashbook {{

// clang-format off
inline constexpr CommittedShape kRungShapes[] = {{
{shapes}
}};

inline constexpr CommittedRung kRungs[] = {{
{rungs}
}};
// clang-format on

inline constexpr Committed kCommitted = {{"{card}", "bench/results/{folder}", kRungShapes, kRungs}};

}}  // namespace flashbook
"""


@dataclasses.dataclass(frozen=True)
class Ladder:
    """Steps measured in one shape: a result's name with {} for the step, and the programs' description of the shape."""

    name: str
    described: str
    steps: Sequence[str]  # ch04/two_stages
    what: str = ""  # "gradient: "

    def entries(self, measured: Results) -> Iterator[tuple[str, Entry]]:
        """Yields the newest entry interleaved with a matrix product, as in the README's ladder, or else the newest."""
        for step in self.steps:
            name = self.name.format(step)
            entry = measured.raced(name, "of_product") or measured.newest.get(name)
            if entry and not entry.skipped:
                yield step, entry


BOOK = "batch 4, heads 16, N 4096, d 128, full, "
WINDOW = "batch 2, heads 16, N 8192, d 128, window of 1024 keys before and 0 after, bf16"
RANKS = "batch 1, heads 16, N 65536, d 128, causal, bf16, 2 ranks"
GRADIENT = "gradient: "
CACHES = ("ch08/latent", "ch08/boxes", "ch08/warpgroup")  # latent keys, and steps measured in other layouts
LADDERS = (
    Ladder("forward/{}/bf16/d128/full/n4096", BOOK + "bf16", [name for chapter in (1, 3, 4, 5) for name in steps.names(chapter)]),
    Ladder("forward/{}/e4m3/d128/full/n4096", BOOK + "e4m3", steps.names(6)),
    Ladder("backward/{}/bf16/d128/full/n4096", BOOK + "bf16", steps.names(7), GRADIENT),
    Ladder("decode/{}/bf16/d128/b16h32k8/n8192", "batch 16, heads 32 (8 key heads), N 1 x 8192, d 128, full, bf16",
           [name for name in steps.names(8) if name not in CACHES]),
    Ladder("decode/{}/bf16/d576/b64h128k1/n8192",
           "batch 64, heads 128 (1 key heads), N 1 x 8192, d 576 (latent), full, bf16", ["ch08/latent"]),
    Ladder("masked/{}/bf16/d128/window/n8192", WINDOW, ["ch09/dense", "ch09/varlen", "ch09/ranges", "ch09/flashmask", "ch09/mask_functions"]),
    Ladder("masked/{}/bf16/d128/window/n8192", WINDOW, ["ch09/backward"], GRADIENT),
    Ladder("many/{}/bf16/d128/causal/n65536", RANKS, [name for name in steps.names(10) if name not in ("ch10/backward", "ch10/decode")]),
    Ladder("many/{}/bf16/d128/causal/n65536", RANKS, ["ch10/backward"], GRADIENT),
)


def memory(entry: Entry) -> float:
    """Returns the bytes from the step's cost model, or 0 for decoding, whose rates count keys and values only once."""
    return 0 if entry.cell.kind == "decode" else entry.values.get("bytes_per_second", 0) * entry.milliseconds / 1e3


def header(measured: Results) -> str:
    """Returns the text of common/app/rungs.h."""
    shapes: list[str] = []
    rungs: list[str] = []
    for ladder in LADDERS:
        if not (found := list(ladder.entries(measured))):
            continue
        before = 0.0
        for step, entry in found:
            seconds = entry.milliseconds / 1e3
            numbers = (seconds, entry.values["FLOPS"], memory(entry), entry.values.get("workspace_bytes", 0))
            rungs.append(f'    {{"{step}", {len(shapes)}, {", ".join(f"{number:.6g}" for number in numbers)}, '
                         f'{before / seconds:.3g}}},')
            before = seconds
        origin = measured.origin(entry for _, entry in found)
        shapes.append(f'    {{"{ladder.what}",\n     "{ladder.described}",\n     "{origin}"}},')
    card = measured.context()["gpu"].removeprefix("NVIDIA ")
    return HEADER.format(folder=measured.folder.name, card=card, shapes="\n".join(shapes),
                         rungs="\n".join(rungs))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file is out of date")
    options = parser.parse_args()
    try:
        text = header(results.load())
    except results.Refused as reason:
        print(f"rungs.py: {reason}", file=sys.stderr)
        return 2
    if options.check:
        if FILE.read_text(encoding="utf-8") == text:
            return 0
        print("common/app/rungs.h differs from the results: update it with python3 bench/rungs.py", file=sys.stderr)
        return 1
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
