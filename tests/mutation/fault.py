"""Faults, and how to plant them in a kernel's text."""
import importlib
import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODES = ("eager", "lazy", "random", "traced")


class Refused(Exception):
    """A list of faults does not match its kernel. The message says what to fix."""


@dataclass
class Fault:
    """Replaces `old`, which occurs exactly once in the kernel's text, by `new`, and the first text of each pair in `also` by the second."""
    name: str
    about: str  # the change to the kernel, in one sentence for the page
    old: str
    new: str
    reports: dict[str, str]  # mode -> what its report must contain; other modes may stay silent
    also: list[tuple[str, str]] = field(default_factory=list)
    head_dim: int = 64


def place_of(text: str, old: str, where: str) -> int:
    """Returns the position of a fault's text. Raises Refused unless it occurs exactly once."""
    if text.count(old) != 1:
        raise Refused(f"{where}: the fault's text occurs {text.count(old)} times, not once: update it.\n{old}")
    return text.index(old)


def run_with(program: str | Path, words: list[str], fault: int, environment: dict[str, str], seconds: float | None = None) -> "subprocess.CompletedProcess[str]":
    """Runs a program of planted faults with one of them, or with none if `fault` is -1. Blocks run one after another,
    so that the result does not depend on which of two is faster."""
    settings = {**os.environ, "FLASHBOOK_FAULT": str(fault), "FLASHBOOK_SIM_THREADS": "1", **environment}
    return subprocess.run([program, *words], capture_output=True, text=True, env=settings, cwd=HERE.parents[1], timeout=seconds)


def everywhere(text: str, *modes: str) -> dict[str, str]:
    """Reports that contain `text`, in the given modes or in all."""
    return dict.fromkeys(modes or MODES, text)


def faults_of(kernel: str) -> list[Fault]:
    """Returns the faults of a kernel."""
    faults: list[Fault] = importlib.import_module(f"faults.{kernel}").FAULTS
    names = [fault.name for fault in faults]
    for fault in faults:
        where = f"tests/mutation/faults/{kernel}.py: {fault.name}"
        if names.count(fault.name) > 1 or not re.fullmatch(r"[a-z][a-z0-9_]*", fault.name):
            raise Refused(f"{where}: a fault's name is a C++ name that no other fault has")
        if not fault.reports or not set(fault.reports) <= set(MODES) or not all(fault.reports.values()):
            raise Refused(f"{where}: reports says what at least one of the modes {', '.join(MODES)} must report")
    return faults


def planted(kernel: str, fault: Fault, text: str) -> str:
    """Returns the kernel's text with the fault. Line numbers stay the same, so that reports match the kernel's file."""
    for old, new in [(fault.old, fault.new), *fault.also]:
        place_of(text, old, f"tests/mutation/faults/{kernel}.py: {fault.name}, {kernel}.cuh")
        longer = new.count("\n") - old.count("\n")
        if longer > 0:
            raise Refused(f"tests/mutation/faults/{kernel}.py: {fault.name}: the new text has {longer} lines more than the old")
        text = text.replace(old, new + "\n" * -longer)
    return text
