#!/usr/bin/env python3
"""Writes the counts of traced programs into tables of chapters 3 and 4 and the data of chapter 1's figure, or checks them.

    traced_tables.py [--check] CHAPTER_01_TRACED CHAPTER_03_TRACED CHAPTER_04_TRACED SPLIT_K_TILE_TRACED

<!-- table requested --> ... <!-- /table -->  bytes requested by chapter 3's steps, next to their model
<!-- table split --> ... <!-- /table -->      what one more tile of keys costs, by split-K (split_k_tile.cu) and by split-Q (step 3)
<!-- table conflicts --> ... <!-- /table -->  wavefronts per request in every step of chapter 4
docs/figures/interactive/sectors_data.js     loads of chapter 1's kernels from device memory
With --check nothing is written, and the exit code is 1 if a file differs. It is 1 as well if a step requests 2 % more or less than its model.
"""
import argparse
import array
import json
import random
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "figures")]

from svg import data_text

from docs.tools import pages
from docs.tools.pages import row

PAGES = {"03_flash_attention_1/appendix.md": "table requested", "04_flash_attention_2/README.md": "table split",
         "04_flash_attention_2/appendix.md": "table conflicts"}
SECTORS = ROOT / "docs" / "figures" / "interactive" / "sectors_data.js"
TOLERANCE = 0.02  # of a model of requests
TILE, TILES = 64, 63

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


def steps_of(program, *options):
    """Returns the steps of a traced program's report."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "profile.json"
        subprocess.run([program, "--heads", "1", "--kv-heads", "1", "--dtype", "bf16", *map(str, options), "--json", report],
                       stdout=subprocess.DEVNULL, check=True)
        return json.loads(report.read_text(encoding="utf-8"))["steps"]


def profile(program, *options):
    """Returns the launches of the program's steps, one per step."""
    return [step["launches"][0] for step in steps_of(program, *options)]


def sectors(chapter1):
    """Returns, for each kernel of chapter 1, the lines that load from device memory, the most expensive first."""
    kernels, shape = ("textbook_scores", "textbook_softmax", "coalesced_scores", "tiled_scores"), {"head_dim": 64, "seqlen": 64}
    lines = [{"kernel": launch["kernel"].split("<")[0], **{key: line[key] for key in ("place", "requests", "sectors")}}
             for step in steps_of(chapter1, "--head-dim", shape["head_dim"], "--seqlen", shape["seqlen"]) for launch in step["launches"]
             for line in launch["lines"] if line["memory"] == "global" and line["access"] == "load"]
    lines = sorted((line for line in lines if line["kernel"] in kernels), key=lambda line: (kernels.index(line["kernel"]), -line["sectors"], line["place"]))
    return data_text("sectors", "Loads of chapter 1's kernels as the traced mode counts them", "recorded/traced_tables.py", {**shape, "lines": lines})


def requested_table(chapter3, *_):
    text = row("step", "$d$", "model, MB", "counted, MB", "difference") + row(*["--:"] * 5)
    for head_dim in (64, 128):
        for step in steps_of(chapter3, "--batch", 1, "--seqlen", 512, "--head-dim", head_dim, "--check", "off"):
            counted = sum(launch[f"bytes_requested_{way}"] for launch in step["launches"] for way in ("read", "written"))
            model = step["requested_model_bytes"]
            difference = abs(counted / model - 1)
            text += row(str(step["step"]), str(head_dim), f"{model / 1e6:.2f}", f"{counted / 1e6:.2f}", f"{difference:.1%}")
            if difference > TOLERANCE:
                sys.exit(f"step {step['step']}, head_dim {head_dim}: {counted} bytes requested, {model:.0f} by the model")
    return text


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


def normal_inputs(folder, keys, head_dim):
    """Writes Q, K and V from N(0, 1), and returns the options that read them. (A profile's own scores rise from tile to tile.)"""
    draw, options = random.Random(1), []
    for name, rows in (("q", TILE), ("k", keys), ("v", keys)):
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, {rows}, {head_dim})}}".ljust(117) + "\n"
        numbers = array.array("f", (draw.gauss(0, 1) for _ in range(rows * head_dim)))
        path = folder / f"{name}.npy"
        path.write_bytes(b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header.encode() + numbers.tobytes())
        options += [f"--{name}", path]
    return options


def one_more_tile(program, head_dim, *options):
    """Returns {name: bytes} and barriers per tile, averaged over TILES tiles: a long launch minus a short one."""
    launches = []
    for keys in (TILE, TILE * (1 + TILES)):
        with tempfile.TemporaryDirectory() as folder:
            inputs = normal_inputs(Path(folder), keys, head_dim)
            launches += profile(program, *options, "--head-dim", head_dim, "--seqlen", TILE, "--seqlen-k", keys, *inputs)
    short, long = launches
    first, all_of_them = by_purpose(short, SPLIT_ROWS), by_purpose(long, SPLIT_ROWS)
    return {name: (all_of_them[name][0] - first[name][0]) / TILES for name in first}, (long["barriers"] - short["barriers"]) / TILES


def split_table(_, chapter4, split_k):
    columns = [one_more_tile(program, 128, *options) for program, options in ((split_k, ()), (chapter4, ("--step", 3)))]
    text = row("KB of shared memory per tile, $d = 128$", "split-K", "split-Q")
    text += row("---", "--:", "--:")
    for index in SPLIT_ORDER:
        name = SPLIT_ROWS[index][0]
        text += row(name, *(f"{bytes_of[name] / 1024:.0f}" if bytes_of[name] else "-" for bytes_of, _ in columns))
    text += row("**together**", *(f"**{sum(bytes_of.values()) / 1024:.0f}**" for bytes_of, _ in columns))
    text += row("wavefronts of 128 bytes, if none is wasted", *(f"{sum(bytes_of.values()) / 128:.0f}" for bytes_of, _ in columns))
    return text + row("**barriers per tile**", *(f"**{barriers:.0f}**" for _, barriers in columns))


def conflicts_table(_, chapter4, __):
    of_dim = {head_dim: profile(chapter4, "--head-dim", head_dim, "--seqlen", 2 * TILE, "--seqlen-k", 4 * TILE)
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


TABLES = {"requested": requested_table, "split": split_table, "conflicts": conflicts_table}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file differs")
    parser.add_argument("programs", nargs=4, metavar="PROGRAM")
    options = parser.parse_args()
    chapter1, *others = options.programs
    tables = {name: make(*others) for name, make in TABLES.items()}
    makers = {"table": lambda place: tables[" ".join(place.words)]}
    right = [pages.update(ROOT / "chapters" / page, makers, options.check, expected=[name]) for page, name in PAGES.items()]
    counted = sectors(chapter1)
    if not options.check:
        SECTORS.write_text(counted, encoding="utf-8")
    if not all(right) or SECTORS.read_text(encoding="utf-8") != counted:
        sys.exit(f"python3 docs/figures/recorded/traced_tables.py {' '.join(options.programs)} updates these files")


if __name__ == "__main__":
    main()
