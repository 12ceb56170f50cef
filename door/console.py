"""Shared by all modules here: paths, running and printing commands, and errors."""

from __future__ import annotations

import os
import queue
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
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


class Child:
    """A printed command that runs next to this process, in a process group of its own."""

    def __init__(self, *command: str | Path) -> None:
        words = printed(*command)
        try:
            self.process = subprocess.Popen(
                words,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except FileNotFoundError:
            fail(f"the program {words[0]} was not found: install it, or put it on PATH")
        self.began, self.last = time.monotonic(), ""  # the last line of the output that is not empty
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()  # then None
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.last = line.strip() or self.last
            self.lines.put(line)
        self.lines.put(None)

    def output(self, busy: str, hidden: bool = False) -> Iterator[str]:
        """Yields the next lines as they arrive. After some seconds without any, prints `busy`, unless it is empty. If
        the lines are `hidden`, prints the last of them every few seconds instead."""
        heard = time.monotonic()
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, heard + SILENCE - time.monotonic()) if busy else None)
            except queue.Empty:
                line = ""
            now = time.monotonic()
            if busy and now - heard >= SILENCE:
                say(f"  {now - self.began:.0f} s: {self.last[:100] if hidden and self.last else busy}")
                heard = now
            if line is None:
                self.lines.put(None)  # ends the next call as well
                return
            if line:
                yield line
                heard = heard if hidden else time.monotonic()

    def stop(self) -> None:
        """Ends it, and everything that it started, if it is still running."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGINT)
            self.process.wait()


def watched(*command: str | Path, busy: str, log: Path | None = None, out: TextIO | None = None) -> int:
    """Like show(), for commands that can be silent for a long time: prints a sign of life every few seconds, the last
    line in `log` or else `busy`. Output goes to `log`, to `out`, or to stderr, where Ninja shows its own progress on a
    terminal."""
    if log is None and out is None and sys.stderr.isatty():
        return show(*command, out=2)
    child = Child(*command)
    try:
        with (log or Path(os.devnull)).open("w", encoding="utf-8") as file:
            to = file if log else out or sys.stderr
            for line in child.output(busy, hidden=log is not None):
                print(line, end="", file=to, flush=not log)
        return child.process.wait()
    finally:
        child.stop()
