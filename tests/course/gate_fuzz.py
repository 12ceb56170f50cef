#!/usr/bin/env python3
"""Fuzzes the gate: text that it accepts goes to the preprocessor, which must find no directive, no forbidden word, and no end of the region.

    gate_fuzz.py [--seed N] [--seconds S | --texts N]     default: 4000 texts of seed 1

The generator nests comments, strings and code around a payload, then inserts, removes and duplicates pieces that may confuse a lexer. If a payload
gets through, it prints the text and exits with 1.
"""
import argparse
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from course import gate

ESCAPED = "flashbook_escaped"
PAYLOADS = ('#include "payload.h"', f"#define harmless {ESCAPED}\nharmless", '%:include "payload.h"', '??=include "payload.h"',
            '#\\\ninclude "payload.h"', '# /* */ include "payload.h"', "asm", "__asm__", "system", "extern", "testing", '_Pragma("once")',
            '__has_include("payload.h")', "}", "{", ")", "]", "#if 0", "#endif", '#include_next "payload.h"', '#pragma GCC poison x',
            '#pragma unroll // */ asm /*', '#pragma unroll \\\nasm', "\\u0061sm", "a\\\nsm", '[[gnu::section("x")]] int x;', "__builtin_exit")
SEAMS = ("/*", "*/", "//", "/", "*", '"', "'", "\\", "\\\\", "\\\n", "\\ \n", "\n", "\n\n", " ", "\t", "\0", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85",
         "\u2028", "\ufeff", "\xa0", "\u200b", "R", "u8", "u", "U", "L", 'R"(', ')"', 'LR"x(', ')x"', 'u8R"', 'R"', "u'a'", "L'", "U'\"'", "1'000", "1'", "0x1'",
         "1e+", ".5'", "1.R", "'\"'", "'\\''", '"\\""', '"\'"', '"/*"', '"*/"', '"//"', "'/*'", "??/", "??/\n", "??'", "%:", "%:%:", "<%", "%>", "<:", ":>", "<::", "#", "##",
         "#pragma unroll", "#pragma unroll 4\n", "\n#pragma unroll // ", "  # pragma unroll(2)", "x", "x = 1;", "é", "$", "@", "`", "0", "__LINE__", "//\\\n")
SPELT = [f"-D{word}={ESCAPED}" for word in ("asm", "__asm__", "system", "extern", "testing", "__builtin_exit")]  # payloads that are words, expanded by the preprocessor


def piece(choose: random.Random, depth: int) -> str:
    inside = "".join(text(choose, depth - 1) for _ in range(choose.randint(0, 3))) if depth else choose.choice((*PAYLOADS, *SEAMS))
    return choose.choice(("/*{}*/", "/* {} */\n", "//{}\n", '"{}"', "'{}'", "{{ {} }}", "({})", "[{}]", "\n{}\n", "{}", "#pragma unroll // {}\n", 'R"({})"',
                          "u'a' {} ", "1'{}", "/*\n{}\n*/", "L\"{}\"", "x{}")).format(inside)


def text(choose: random.Random, depth: int = 3) -> str:
    """Returns a text, generated well-formed and then damaged."""
    pieces = [piece(choose, max(0, depth - 1)) for _ in range(choose.randint(1, 4))]
    for _ in range(choose.choice((0, 0, 1, 1, 2, 4))):
        place = choose.randrange(len(pieces) + 1)
        pieces[place:place + choose.choice((0, 0, 1))] = [choose.choice((*SEAMS, *SEAMS, *PAYLOADS))]
    return "".join(pieces)


def balanced(code: str) -> bool:
    """Returns whether preprocessed code, which has no comments, has balanced brackets."""
    bare = re.sub(r"""\.?[0-9](?:[eEpP][+-]|'\w|[\w.])*|[A-Za-z_]\w*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'""", " ", code)
    while (shorter := re.sub(r"\(\s*\)|\[\s*\]|\{\s*\}", "", re.sub(r"[^()\[\]{}]", "", bare))) != bare:
        bare = shorter
    return not bare


def escaped(passed: list[str], folder: Path, compiler: list[str]) -> Iterator[str]:
    """Yields the texts that escape the gate."""
    (folder / "payload.h").write_text(f"{ESCAPED}\n")
    joined = "".join(f"begin_{i}\n{one}\nend_{i}\n" for i, one in enumerate(passed))
    (folder / "texts.cpp").write_text(joined, encoding="utf-8")
    done = subprocess.run([*compiler, "-E", "-P", "-w", "-I", folder, *SPELT, folder / "texts.cpp"], capture_output=True, check=False)
    output = done.stdout.decode(errors="replace")
    for i, one in enumerate(passed):
        found = re.search(rf"\bbegin_{i}\b(.*?)\bend_{i}\b", output, re.DOTALL)
        code = re.sub(r"(?m)^\s*#pragma unroll.*$", "", found[1]) if found else ""
        if not found or ESCAPED in code or re.search(r"(?m)^\s*#", code) or not balanced(code):
            yield one


def fuzz(seed: int, texts: int, seconds: float = float("inf"), batch: int = 400) -> tuple[int, int, list[str]]:
    """Returns (texts tried, texts accepted by the gate, accepted texts that escaped)"""
    choose, start, tried, let_through = random.Random(seed), time.monotonic(), 0, 0
    compilers = [["g++", "-std=c++20"], ["g++", "-std=gnu++20", "-trigraphs"]] + [["clang++", "-std=c++20"]] * bool(shutil.which("clang++"))
    with tempfile.TemporaryDirectory() as folder:
        while tried < texts and time.monotonic() - start < seconds:
            made = [text(choose).splitlines() for _ in range(min(batch, texts - tried))]
            passed = ["\n".join(lines) for lines in made if not gate.objections(lines)]
            tried, let_through = tried + len(made), let_through + len(passed)
            for compiler in compilers:
                through = list(escaped(passed, Path(folder), compiler))
                if through:
                    return tried, let_through, through
    return tried, let_through, []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--texts", type=int, default=4000)
    options = parser.parse_args()
    tried, let_through, through = fuzz(options.seed, sys.maxsize if options.seconds else options.texts, options.seconds or float("inf"))
    for one in through[:3]:
        print(f"got through: {one!r}", file=sys.stderr)
    print(f"{tried} texts, {let_through} let in, {len(through)} got through")
    sys.exit(1 if through else 0)


if __name__ == "__main__":
    main()
