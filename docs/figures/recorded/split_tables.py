#!/usr/bin/env python3
"""Writes the counts of traced programs into chapter 4's tables of shared memory, or checks the tables.

    split_tables.py [--check] SPLIT_K_TILE_TRACED SPLIT_Q_TILE_TRACED

<!-- table split --> ... <!-- /table -->      what one more tile of keys costs, by split-K (split_k_tile.cu) and by split-Q (step 3)
<!-- table conflicts --> ... <!-- /table -->  wavefronts per request in every step
With --check nothing is written, and the exit code is 1 if a page differs.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from docs.tools import pages
from docs.tools.pages import row

CHAPTER = ROOT / "chapters" / "04_flash_attention_2"
PAGES = {CHAPTER / "README.md": "table split", CHAPTER / "appendix.md": "table conflicts"}
TILE, TILES = 64, 8

# The purpose of an access, determined by the first of these texts found in its line.
SPLIT_ROWS = (
    ("$K$ and $V$ copied in", r"cp_async_cg"),
    ("$O$ read and written", r"tiles\.o\["),
    ("scores written and read", r"&tiles\.scores\["),
    ("weights written and read", r"tiles\.weights\("),
    ("$Q$, $K$ and $V$ read", r"load_matrix_shared|ldmatrix_x4"),
    ("maxima and sums", r""),
)
SPLIT_ORDER = (0, 4, 2, 5, 3, 1)
CONFLICT_ROWS = (
    ("tiles", r"cp_async_cg|reinterpret_cast<uint4\*>\(tile"),
    ("values", r"ldmatrix_x4_trans|first\[0\]"),
    ("keys", r"ldmatrix_x4|reinterpret_cast<const uint32_t\*>"),
    ("others", r""),
)


def profile(program, *options):
    """Returns the launches of the program's steps, one per step."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "profile.json"
        subprocess.run([program, "--heads", "1", "--kv-heads", "1", "--dtype", "bf16", *map(str, options), "--json", report],
                       stdout=subprocess.DEVNULL, check=True)
        return [step["launches"][0] for step in json.loads(report.read_text(encoding="utf-8"))["steps"]]


def source_line(place):
    """Returns the line of a kernel; "problem.cuh:86 from step3_split_k.cuh:179" names a helper and its caller."""
    name, number = place.split(" from ")[-1].split(":")
    (path,) = ROOT.glob(f"chapters/0[34]*/**/{name}")
    return path.read_text(encoding="utf-8").splitlines()[int(number) - 1]


def by_purpose(launch, rows):
    """Returns {name: [bytes, requests, wavefronts, ideal]} of shared memory."""
    sums = {name: [0, 0, 0, 0] for name, _ in rows}
    for line in launch["lines"]:
        if line["memory"] == "shared":
            text = source_line(line["place"])
            name = next(name for name, pattern in rows if re.search(pattern, text))
            counted = (line["lanes"] * line["bytes"], line["requests"], line["wavefronts"], line["ideal"])
            sums[name] = [a + b for a, b in zip(sums[name], counted)]
    return sums


def one_more_tile(program, head_dim, *options):
    """Returns {name: bytes} and barriers per tile, averaged over TILES tiles: a long launch minus a short one."""
    shapes = [("--head-dim", head_dim, "--seqlen", TILE, "--seqlen-k", TILE * tiles) for tiles in (1, 1 + TILES)]
    short, long = (profile(program, *options, *shape)[0] for shape in shapes)
    first, all_of_them = by_purpose(short, SPLIT_ROWS), by_purpose(long, SPLIT_ROWS)
    return {name: (all_of_them[name][0] - first[name][0]) / TILES for name in first}, (long["barriers"] - short["barriers"]) / TILES


def split_table(split_k, chapter):
    columns = [one_more_tile(program, 128, *options) for program, options in ((split_k, ()), (chapter, ("--step", 3)))]
    text = row("KB of shared memory per tile, $d = 128$", "split-K", "split-Q")
    text += row("---", "--:", "--:")
    for index in SPLIT_ORDER:
        name = SPLIT_ROWS[index][0]
        text += row(name, *(f"{bytes_of[name] / 1024:.0f}" if bytes_of[name] else "-" for bytes_of, _ in columns))
    text += row("**together**", *(f"**{sum(bytes_of.values()) / 1024:.0f}**" for bytes_of, _ in columns))
    text += row("wavefronts of 128 bytes, if none is wasted", *(f"{sum(bytes_of.values()) / 128:.0f}" for bytes_of, _ in columns))
    return text + row("**barriers per tile**", *(f"**{barriers:.0f}**" for _, barriers in columns))


def conflicts_table(_, chapter):
    of_dim = {head_dim: profile(chapter, "--head-dim", head_dim, "--seqlen", 2 * TILE, "--seqlen-k", 4 * TILE)
              for head_dim in (64, 128, 256)}
    text = row("Step", "$Q$ and $K$ read", "$V$ read", "tiles written", "too many at $d = 64$", "128", "256")
    text += row("--:", *["--:"] * 6)
    for step in range(len(of_dim[256])):
        sums = by_purpose(of_dim[256][step], CONFLICT_ROWS)

        def cell(name, sums=sums):
            _, requests, wavefronts, ideal = sums[name]
            return f"{wavefronts / requests:g} ({ideal / requests:g})"

        too_many = (sum(line["waste"] for line in launches[step]["lines"] if line["memory"] == "shared") for launches in of_dim.values())
        text += row(str(step + 1), *map(cell, ("keys", "values", "tiles")), *map(str, too_many))
    return text


TABLES = {"split": split_table, "conflicts": conflicts_table}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page differs")
    parser.add_argument("split_k", metavar="SPLIT_K_TILE_TRACED")
    parser.add_argument("chapter", metavar="SPLIT_Q_TILE_TRACED")
    options = parser.parse_args()
    tables = {name: make(options.split_k, options.chapter) for name, make in TABLES.items()}
    makers = {"table": lambda place: tables[" ".join(place.words)]}
    right = [pages.update(page, makers, options.check, expected=[name]) for page, name in PAGES.items()]
    if not all(right):
        sys.exit(f"python3 docs/figures/recorded/split_tables.py {options.split_k} {options.chapter} updates the pages")


if __name__ == "__main__":
    main()
