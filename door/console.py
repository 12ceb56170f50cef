"""What all modules here share: paths, running and printing commands, and errors."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn, TextIO

ROOT = Path(__file__).resolve().parents[1]
HERE = ROOT if Path.cwd() == ROOT else Path(os.environ.get("PWD", os.getcwd()))  # options that name files are relative to this folder
SILENCE = 4.0  # number of seconds of silence before a sign of life is printed


def fail(text: str, code: int = 2) -> NoReturn:
    """Exits with a one-line error that says what to do."""
    print(f"flashbook: {text}", file=sys.stderr)
    sys.exit(code)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def answers(*command: str | Path, text: str = "") -> str | None:
    """Returns the output of a command; None if it fails or does not exist."""
    if not command or not shutil.which(command[0]):
        return None
    done = subprocess.run(command, input=text, text=True, capture_output=True, cwd=ROOT, check=False)
    return done.stdout if done.returncode == 0 else None


def printed(*command: str | Path, cwd: Path = ROOT) -> list[str]:
    """Prints a command and returns its words. If `cwd` is ROOT, programs of this tree get a path relative to it."""
    words = [
        f"./{word.relative_to(ROOT)}" if isinstance(word, Path) and cwd == ROOT and ROOT in word.parents else str(word)
        for word in command
    ]
    say("$ " + shlex.join(words))
    return words


def show(*command: str | Path, cwd: Path = ROOT, out: int | None = None) -> int:
    """Prints a command, runs it, and returns its exit code."""
    words = printed(*command, cwd=cwd)
    try:
        return subprocess.run(words, cwd=cwd, check=False, stdout=out).returncode
    except FileNotFoundError:
        fail(f"the program {words[0]} was not found: install it, or put it on PATH")


def watched(*command: str | Path, busy: str, log: Path | None = None, out: TextIO | None = None) -> int:
    """Like show(), for commands that can be silent for a long time: prints a sign of life every few seconds, the last
    line in `log` or else `busy`. Output goes to `log`, to `out`, or to stderr, where Ninja shows its own progress on a
    terminal."""
    if log is None and out is None and sys.stderr.isatty():
        return show(*command, out=2)
    words, began, last, heard = printed(*command), time.monotonic(), "", time.monotonic()
    try:
        child = subprocess.Popen(
            words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
    except FileNotFoundError:
        fail(f"the program {words[0]} was not found: install it, or put it on PATH")
    assert child.stdout

    def remind() -> None:
        nonlocal heard
        while child.poll() is None:
            time.sleep(0.2)
            if time.monotonic() - heard >= SILENCE:
                heard = time.monotonic()
                say(f"  {heard - began:.0f} s: {last[:100] if log and last else busy}")

    threading.Thread(target=remind, daemon=True).start()
    with (log or Path(os.devnull)).open("w", encoding="utf-8") as file:
        to = file if log else out or sys.stderr
        for line in child.stdout:
            last, heard = line.strip() or last, heard if log else time.monotonic()
            print(line, end="", file=to, flush=not log)
    return child.wait()
