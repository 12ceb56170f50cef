#!/usr/bin/env python3
"""Holds what the simulator counts of a chapter's requests against the chapter's model, and puts the table into the chapter's appendix.

    requested.py [--write] PROGRAM PAGE

PROGRAM is the traced program of a chapter that has such a model (build/sim/bin/03_flash_attention_1_traced), PAGE its appendix.md, which
has the table between <!-- requested --> and <!-- /requested -->. Exit code 1 if a step asks for 2 % more or less than the model says,
or if the table differs from the page; --write mends the latter.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

TOLERANCE = 0.02
HEAD_DIMS = (64, 128)
SHAPE = ("--batch", "1", "--heads", "1", "--seqlen", "512", "--dtype", "bf16")
TABLE = re.compile(r"(?<=<!-- requested -->\n).*?(?=<!-- /requested -->)", re.S)


def profile(program, head_dim):
    """The steps, as the traced program writes them."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "profile.json"
        subprocess.run([program, *SHAPE, "--head-dim", str(head_dim), "--check", "off", "--json", file], check=True, stdout=subprocess.DEVNULL)
        return json.loads(file.read_text())["steps"]


def requested(step):
    return sum(launch[f"bytes_requested_{way}"] for launch in step["launches"] for way in ("read", "written"))


def main(write, program, page):
    program, page = pathlib.Path(program).resolve(), pathlib.Path(page)
    table = "| step | $d$ | model, MB | counted, MB | difference |\n| --: | --: | --: | --: | --: |\n"
    failed = False
    for head_dim in HEAD_DIMS:
        for step in profile(program, head_dim):
            counted, model = requested(step), step["requested_model_bytes"]
            difference = counted / model - 1
            table += f"| {step['step']} | {head_dim} | {model / 1e6:.2f} | {counted / 1e6:.2f} | {abs(difference):.1%} |\n"
            if abs(difference) > TOLERANCE:
                print(f"step {step['step']}, head_dim {head_dim}: {counted} bytes requested, {model:.0f} by the model: {difference:+.1%}",
                      file=sys.stderr)
                failed = True
    text = page.read_text()
    if not TABLE.search(text):
        sys.exit(f"{page} has no <!-- requested --> ... <!-- /requested -->")
    mended = TABLE.sub(lambda _: table, text)
    if mended != text and write:
        page.write_text(mended)
        print(f"{page}: brought up to date")
    elif mended != text:
        print(f"{page}: the table differs from what the simulator counts; bench/requested.py --write {program} {page} mends it", file=sys.stderr)
        failed = True
    return int(failed)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--write"]
    if len(words) != 2:
        sys.exit(__doc__)
    sys.exit(main("--write" in sys.argv, *words))
