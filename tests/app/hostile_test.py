#!/usr/bin/env python3
"""Runs a chapter's program with odd options and broken .npy files: hostile_test.py PROGRAM [--runs N] [--files N] [--seed S].

For any input, a program either gives the right result (exit code 0) or prints one line with the error and the remedy (2): never a wrong
result, a signal, a hang or a partial file. The inputs depend only on the seed. CTest runs a few; docs/pages/hardening.md reports larger runs."""
import argparse
import random
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS = 60  # limit per program; all computations here are small
SMALL = ["1", "2", "3", "7", "33"]
NUMBERS = ["0", "-1", "-0", "+3", "", " ", "x", "1.5", "0x10", "1e3", "nan", "inf", "-inf", "2147483647", "2147483648", "4294967297", "9" * 20, "9" * 400,
           "4g", "999999999k", "1k1", "7 ", "\u0664", "7\n", "\x1b[2J", "%s%n", "1,2", "--", "-", "=", "a" * 5000, "\udcff"]
SCALES = ["1e-45", "1e-38", "0.125", "1", "3e38", "-1", "0", "1e39", "1e400", *NUMBERS]
WORDS = {"--dtype": ["f32", "f16", "bf16", "e4m3", "F32", "double", ""], "--device": ["sim", "gpu", "auto", "tpu"], "--check": ["full", "sample", "off", "maybe"],
         "--layout": ["bhsd", "bshd", "qkv", "sbhd"], "--scaling": ["tensor", "head", "block", "row"], "--smooth": ["on", "off", "both"],
         "--step": ["1", "2", "all", "0", "99", "one", "-1"], "--head-dim": ["64", "128", "256", "576", "63", "0", "-64", "65536"],
         "--lengths": ["1", "3,0,7", "0", "", ",", "1,,2", "1,-1", "2147483647,2147483647", "a,b", "7," * 3000]}
COUNTS = ["--batch", "--heads", "--kv-heads", "--seqlen", "--seqlen-k", "--window", "--prefix", "--documents", "--reps", "--seed"]
FACTORS = ["--scale", "--softcap"]
FLAGS = ["--causal", "--alibi", "--list", "--help", "--frobnicate", "-x", "stray", "--seqlen", "--"]
OUTPUTS = ["--output", "--lse", "--json"]
PLACES = ["o.npy", "/dev/null", ".", "", "no/such/folder/o", "/proc/self/mem", "/dev/full", "a" * 300, "o\n.npy", "link", "loop", "readonly/o"]
GOOD_HEADER = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 7, 64), }".ljust(117) + b"\n"
GOOD = b"\x93NUMPY\x01\0" + struct.pack("<H", len(GOOD_HEADER)) + GOOD_HEADER + struct.pack("<f", 0.25) * (7 * 64)
UNSEEMLY = re.compile(r"terminate called|std::|bad_alloc|Aborted|Assertion|vector::|basic_string|Traceback|AddressSanitizer|runtime error:")


def odd_options(draw: random.Random) -> list[str]:
    """Returns some options, most of them valid, so that those after an invalid one are parsed, too."""
    words = ["--seqlen", draw.choice(SMALL), "--check", "full", "--reps", "1"] if draw.random() < 0.9 else ["--reps", "1"]
    for _ in range(draw.randint(1, 4)):
        kind = draw.choice(["count", "factor", "word", "flag", "output", "input"])
        if kind == "count":
            words += [draw.choice(COUNTS), draw.choice(SMALL if draw.random() < 0.4 else NUMBERS)]
        elif kind == "factor":
            words += [draw.choice(FACTORS), draw.choice(SCALES)]
        elif kind == "word":
            option = draw.choice(sorted(WORDS))
            words += [option, draw.choice(WORDS[option] if draw.random() < 0.8 else NUMBERS)]
        elif kind == "flag":
            words.append(draw.choice(FLAGS))
        elif kind == "output":
            words += [draw.choice(OUTPUTS), draw.choice(PLACES)]
        else:
            words += [draw.choice(["--q", "--k", "--v", "--mask"]), draw.choice(PLACES)]
    return [word.replace("\0", "") for word in words]


def header_of(draw: random.Random, shape: tuple[int, ...]) -> str:
    descr = draw.choice(["'<f4'"] * 40 + ["'<f2'", "'<f8'", "'>f4'", "'|O'", "'<i4'", "'|b1'", "[('a', '<f4')]", "'<f4' * 2", "'f'", "1", "'<f99999999999'", "''"])
    order = draw.choice(["False"] * 30 + ["True", "0", "None", "Flase"])
    extents = draw.choice([str(shape)] * 40 + [str(shape[:3]), "()", "(7,)", "(-1, 1, 7, 64)", "(1, 1, 7, 64, )", "(1, 1, 7, 64", "(0, 1, 7, 64)", "(1, 1, 99999999999999999999, 64)",
                                              "(4294967296, 4294967296, 1, 64)", "(1, 1, 7.0, 64)", "(1L, 1, 7, 64)", "[1, 1, 7, 64]", "(1, 1, 0x7, 64)", "'7'"])
    pairs = [f"'descr': {descr}", f"'fortran_order': {order}", f"'shape': {extents}"]
    if draw.random() < 0.1:
        pairs = draw.sample(pairs, draw.randint(0, 3)) + draw.choice([[], pairs, ["'more': 1"], ["'shape': (1, 1, 7, 64)"]])
    return draw.choice(["{%s}", "{%s, }", "{%s", "%s}", "{{%s}}", "[%s]", "{%s}garbage"] if draw.random() < 0.1 else ["{%s, }"]) % ", ".join(pairs)


def broken_file(draw: random.Random) -> bytes:
    """Returns the bytes that resemble a .npy file."""
    shape = (1, 1, draw.choice([7] * 20 + [1, 8]), draw.choice([64] * 20 + [63, 128]))
    header = header_of(draw, shape)
    padding = draw.choice([" " * 40 + "\n"] * 20 + ["", "\n", "\0" * 9, " " * 70000 + "\n"])
    text = (header + padding).encode()
    version = draw.choice([(1, 0)] * 20 + [(2, 0), (3, 0), (0, 0), (9, 9)])
    length = len(text) + draw.choice([0] * 40 + [-1, 1, 1000, 65000 - len(text), 2 ** 31 - len(text)])
    size = struct.pack("<H", max(0, length) & 0xFFFF) if version[0] < 2 else struct.pack("<I", max(0, length) & 0xFFFFFFFF)
    count = shape[2] * shape[3]
    values = [draw.choice([draw.gauss(0, 1)] * 30 + [float("nan"), float("inf"), 3e38, -3e38, 1e-45]) if draw.random() < 0.05 else 0.5 for _ in range(count)]
    body = struct.pack(f"<{count}f", *values)
    body = draw.choice([body] * 20 + [b"", body[:-1], body[:100], body + b"\0", body * 3])
    whole = bytearray(draw.choice([b"\x93NUMPY"] * 40 + [b"\x93NUMPX", b"PK\x03\x04", b""]) + bytes(version) + size + text + body)
    for _ in range(draw.choice([0] * 6 + [1, 3, 20])):
        if whole:
            whole[draw.randrange(min(len(whole), 200))] = draw.randrange(256)
    return bytes(whole[:draw.randrange(len(whole) + 1)] if draw.random() < 0.1 else whole)


def fault_of(words: list[str], done: "subprocess.CompletedProcess[bytes]", folder: Path) -> str:
    """Returns the contract violation of a program; empty if there is none."""
    complaint, said = done.stderr.decode(errors="replace"), done.stdout.decode(errors="replace")
    if done.returncode not in ((0, 2, 77) if "gpu" in words else (0, 2)):
        return f"exit code {done.returncode}"
    if UNSEEMLY.search(complaint + said):
        return "the message mentions the program's internals"
    if done.returncode == 2:
        last = complaint.rstrip("\n").split("\n")[-1]
        if not last.strip():
            return "exit code 2 without a message"
        if len(last) > 1100:  # values are truncated to 1,000
            return f"a message of {len(last)} characters"
        if any(not c.isprintable() for c in last):
            return "a message with unprintable characters"
    if list(folder.rglob("*.partial-*")):
        return "a partial file is left behind"
    if (folder / "kept.npy").read_bytes() != b"kept":
        return "a file that no option names was changed"
    return ""


def run(program: Path, words: list[str], folder: Path) -> tuple[str, int]:
    """Returns (violation, exit code)"""
    try:
        done = subprocess.run([program, *(word.encode(errors="surrogateescape") for word in words)], cwd=folder, stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"it was still running after {SECONDS} s", -1
    fault = fault_of(words, done, folder)
    return (fault and f"{fault}\n{done.stdout[-300:]!r}\n{done.stderr[-600:]!r}"), done.returncode


def prepared(folder: Path) -> Path:
    (folder / "kept.npy").write_bytes(b"kept")
    (folder / "link").symlink_to("o.npy")
    (folder / "loop").symlink_to("loop")
    (folder / "readonly").mkdir(mode=0o555)
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path)
    parser.add_argument("--runs", type=int, default=25, help="with odd options")
    parser.add_argument("--files", type=int, default=25, help="broken .npy files")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    program = arguments.program.resolve()
    told = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    dtype = re.findall(r"Element type: .*?(\w+)$", told, re.MULTILINE)[0]  # the last type that the chapter supports
    draw, faults = random.Random(f"{arguments.seed} {program.name}"), 0
    codes: dict[str, dict[int, int]] = {"options": {}, "files": {}}
    for kind, count in (("options", arguments.runs), ("files", arguments.files)):
        for number in range(count):
            with tempfile.TemporaryDirectory() as name:
                folder = prepared(Path(name))
                if kind == "options":
                    words = odd_options(draw)
                else:
                    (folder / "in.npy").write_bytes(broken_file(draw))
                    (folder / "good.npy").write_bytes(GOOD)
                    named = draw.choice(["--q", "--k", "--v", "--mask"])
                    words = ["--check", "full", "--reps", "1", "--dtype", dtype]
                    for option in ("--q", "--k", "--v"):
                        words += [option, "in.npy" if option == named else "good.npy"]
                    words += [named, "in.npy"] if named == "--mask" else []
                fault, code = run(program, words, folder)
                codes[kind][code] = codes[kind].get(code, 0) + 1
                if fault:
                    faults += 1
                    print(f"{program.name} {words}: {fault} (seed {arguments.seed}, {kind} {number})", flush=True)
                    if kind == "files":
                        Path(tempfile.gettempdir(), f"hostile-{arguments.seed}-{number}.npy").write_bytes((folder / "in.npy").read_bytes())
    print(f"{program.name}: {arguments.runs} runs with odd options {codes['options']}, {arguments.files} broken files {codes['files']}, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
