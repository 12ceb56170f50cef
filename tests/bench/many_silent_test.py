"""bench/many.py where a contestant gives no answer: the result says so of that one, and the others' times are their own.

many_silent_test.py [--as-one | --as-rank]

The test starts itself, in the place of bench/many and of PyTorch's processes. What they leave without an answer is in $SILENT: they end, or they
answer it late, together with the next question, and who goes on asking is one answer behind.
"""

import json
import os
import pathlib
import sys
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from bench import many

SHORT, LONG, NONE = 8 * 1024, 256 * 1024, 16 * 1024  # of long ones nothing is kept, and of the last there are no tensors
SILENT = {"ring 2 copies 16777216": "late",
          f"cell {NONE}": "late",
          f"check ch10/step1/copies/0 {SHORT}": "late",
          f"time ch10/step4/nccl/8 {SHORT}": "ends",
          f"check cp_cudnn_allgather {SHORT}": "late",
          f"time ch10/step3/copies/0 {LONG}": "late",
          f"time python {LONG}": "ends"}


def milliseconds(called):
    """A contestant's time, which no other has."""
    return float(zlib.crc32(called.encode()) % 100000 + 1)


def answer(words):
    verb, *arguments = words
    return {"context": lambda: {"machine": "simulator"}, "check": lambda: [0.001, 0.01], "ring": lambda: [2.0] * 7, "cell": lambda: [1e9, 2e9],
            "drop": lambda: [], "time": lambda: [milliseconds(arguments[0])] * int(arguments[1])}[verb]()


def question_of(words, seqlen):
    """As $SILENT names it: with the tokens of the cell, but a hop."""
    if words[0] == "ring":
        return " ".join(words[:4])
    return " ".join([*(words[:1] if words[0] in ("cell", "drop") else words[:2]), str(seqlen)])


def serve(is_rank):
    silent, late, seqlen = json.loads(os.environ["SILENT"]), [], 0
    place = f"rank{os.environ['RANK']}" if is_rank else "one"
    with open(os.environ["LOG"], "a", encoding="utf-8") as log:
        print(place, "begins", file=log, flush=True)
        for line in sys.stdin:
            words = json.loads(line) if is_rank else line.split()
            verb, found = words[0], answer(words)
            if verb == "cell":
                seqlen = int(words[4 if is_rank else 5])
            question = question_of(words, seqlen)
            print(place, question, file=log, flush=True)
            if silent.get(question) == "ends":
                return
            if is_rank:
                late.append("@" + json.dumps({"is": found[0] if verb == "check" else found}))
            else:
                late.append("machine=simulator" if verb == "context" else " ".join(map(str, found)))
            if question not in silent:
                for text in late:
                    print(text, flush=True)
                late.clear()


def told_of(folder):
    """{result: its entry} of all cells, and what the processes were asked."""
    one, out, log = (pathlib.Path(folder, name) for name in ("one", "many.json", "log"))
    one.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{__file__}' --as-one\n")
    one.chmod(0o755)
    os.environ.update(SILENT=json.dumps(SILENT), LOG=str(log), FLASHBOOK_COMMIT="0123abc")
    many.PATIENCE, many.__file__ = 4, __file__
    sys.argv = ["many.py", "--program", str(one), "--seqlen", f"{SHORT},{NONE},{LONG}", "--mask", "causal", "--rounds", "2", "--out", str(out)]
    assert many.main() == 0
    return {entry["name"]: entry for entry in json.loads(out.read_text())["benchmarks"]}, log.read_text().splitlines()


def test():
    with tempfile.TemporaryDirectory() as folder:
        entries, log = told_of(folder)
    # A hop without an answer, and those after it.
    assert entries["machine/hop/copies_16mb"]["error_message"] == "no answer in 4 s"
    assert all(entries[f"machine/hop/{how}"]["real_time"] == 2 for how in ("copies_1mb", "copies_64mb", "nccl_16mb"))
    silent = {(SHORT, "ch10/step1"): "no answer in 4 s", (SHORT, "ch10/step4_nccl"): "its process has ended",
              (SHORT, "cp_cudnn_allgather"): "no answer in 4 s", (LONG, "ch10/step3"): "no answer in 4 s",
              (LONG, "python"): "its process has ended"}
    options = many.parse()
    for seqlen in (SHORT, NONE, LONG):
        cell = many.Cell(options, "causal", seqlen)
        for who, (_, called) in cell.contestants().items():
            entry = entries[cell.name(who)]
            wanted = "the cell has no tensors: no answer in 4 s" if seqlen == NONE else silent.get((seqlen, who))
            assert entry.get("error_message") == wanted, entry
            if not wanted:
                assert entry["real_time"] == milliseconds(called) and entry["rounds"] == 2, entry
    # A process that was begun anew has the cell, and nobody's first launch in it is timed.
    seen: dict[str, set[str]] = {}
    for line in log:
        place, question = line.split(" ", 1)
        if question == "begins":
            seen[place] = set()
        verb, *rest = question.split()
        if verb == "time":
            assert "check " + " ".join(rest) in seen[place], line
        if verb == "check":
            assert f"cell {rest[1]}" in seen[place], line
        seen[place].add(question)
    assert log.count("one begins") == 7 and log.count("rank0 begins") == 3, log  # main() begins one, too


if __name__ == "__main__":
    if sys.argv[1:2] in (["--as-one"], ["--as-rank"]):
        serve(sys.argv[1] == "--as-rank")
    else:
        test()
