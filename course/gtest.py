"""Runs one test of a GoogleTest program in its own process, and reads the result."""
import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEANINGS = {"SIGSEGV": "an invalid address", "SIGBUS": "an invalid address", "SIGABRT": "aborted",
            "SIGFPE": "an integer division by 0", "SIGILL": "an invalid instruction", "SIGXCPU": "too much CPU time",
            "SIGXFSZ": "a file grew too large", "SIGKILL": "killed from outside, perhaps for using too much memory"}

STOPPED, SLOW = "stopped", "slow"
PATIENCE = 3  # factor on a test's limit for answers that are right but slow
FAILURE = re.compile(r"(\S+:\d+|unknown file): Failure$")
STILL_RUNS = re.compile(r"^After \d+ s it still runs.*\n?", re.MULTILINE)  # tests/support/machine_sim.cpp
FRAME = re.compile(r"Running main\(\) from |\[[ =A-Z-]{10}\]|Note: (Google|Randomizing)|\s*\d+ FAILED TESTS?$")


@dataclass
class Verdict:
    passed: bool
    message: str = ""  # for the student: what is wrong, and what the program printed
    status: str = ""  # STOPPED, SLOW or empty


def crash(code: int) -> str:
    """Explains a negative exit code: a signal."""
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"it crashed ({name}{': ' + MEANINGS[name] if name in MEANINGS else ''})"


def endless(seconds: float) -> str:
    return f"it was stopped after {seconds:.0f} s: is there a loop that never ends?"


def slow(seconds: float) -> Verdict:
    """Returns the verdict on a test that passes only with more time."""
    return Verdict(False, f"it is right, but too slow: it takes more than {seconds:.0f} s. What does it read or compute more often than necessary?",
                   SLOW)


def own_lines(output: str) -> list[str]:
    """Returns a program's own output, without GoogleTest's frame and its failures, each of which ends with an empty
    line."""
    lines, of_failure = [], False
    for line in output.splitlines():
        of_failure = bool(FAILURE.match(line)) or (of_failure and line.strip() != "")
        if not of_failure and line.strip() and not FRAME.match(line):
            lines.append(line)
    return lines


def with_output(text: str, output: str) -> str:
    """Returns the text, followed by the last lines that the program printed."""
    lines = own_lines(output)
    return "\n".join([text] * bool(text) + (["Its last output:", "\n".join(lines[-12:])[-2000:]] if lines else []))


def without_place(text: str) -> str:
    """Returns a failure's text without the test's file and line."""
    return re.sub(r"^(?:\S+:\d+|unknown file)\n(?:Failed\n)?", "", text.strip())


PLACE_OR_NUMBER = re.compile(r"(\S+\.(?:cuh?|h|cpp):\d+)|0x[0-9a-f]+|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def cause(message: str) -> str:
    """Returns a message without its numbers, except in the lines of code that it names."""
    return PLACE_OR_NUMBER.sub(lambda found: found[1] or "#", message)


class Causes:
    """Remembers the causes of failures so far."""

    def __init__(self) -> None:
        self.titles: dict[str, str] = {}  # the first test with each cause

    def told(self, message: str, title: str) -> str:
        """Returns the message, or a reference to an earlier test whose message names the same lines of code. Wrong numbers alone are never
        merged."""
        first = self.titles.setdefault(cause(message), title) if any(found[1] for found in PLACE_OR_NUMBER.finditer(message)) else title
        return message if first == title else f"The same as in the test '{first}'."


def each_once(messages: Sequence[str]) -> list[str]:
    """Returns the messages of one test; those that differ only in numbers are shown once and counted."""
    like: dict[str, list[str]] = {}
    for message in dict.fromkeys(messages):
        like.setdefault(cause(message), []).append(message)
    again = "\nThe same {} more time{} with other numbers."
    return [first + (again.format(len(more), "s" * (len(more) > 1)) if more else "") for first, *more in like.values()]


def failures(report: dict[str, Any]) -> list[str] | None:
    """Returns the distinct failures in GoogleTest's JSON report on one test; None if the test did not run."""
    tests = [test for suite in report.get("testsuites", []) for test in suite.get("testsuite", [])]
    if len(tests) != 1 or tests[0].get("status") != "RUN" or tests[0].get("result") == "SKIPPED":
        return None
    return each_once([without_place(failure["failure"]) for failure in tests[0].get("failures", [])])


def run(program: Path, test: str, environment: Mapping[str, str] | None = None, seconds: float = 60) -> Verdict | None:
    """Returns the verdict on a test; None if the program has no such test."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        try:
            done = subprocess.run([program, f"--gtest_filter={test}", f"--gtest_output=json:{report}", "--gtest_brief=1"],
                                  env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=seconds, check=False)
        except subprocess.TimeoutExpired as stopped:
            return Verdict(False, with_output(endless(seconds), (stopped.stdout or b"").decode(errors="replace")), STOPPED)
        output = done.stdout.decode(errors="replace")
        if done.returncode < 0:
            return Verdict(False, with_output(crash(done.returncode), output))
        try:
            found = failures(json.loads(report.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            return Verdict(False, with_output(f"it ended with exit code {done.returncode}", output))
    if not found:  # it passed, although it took long
        output = STILL_RUNS.sub("", output)
    return None if found is None else Verdict(not found, with_output("\n".join(found), output))
