"""Configures and builds, in build/sim and build/gpu."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from door import gpu, packages
from door.console import ROOT, Child, fail, watched
from door.lock import alone


def folder(preset: str) -> Path:
    return ROOT / "build" / preset


def program(preset: str, name: str) -> Path:
    return folder(preset) / "bin" / name


configured: set[tuple[str, bool]] = set()  # built in this process


def configure(preset: str, tests: bool = False) -> None:
    """Configures with tests if requested; a build that already has tests keeps them."""
    if (preset, tests) in configured or (preset, True) in configured:
        return
    configured.add((preset, tests))
    if not os.access(ROOT, os.W_OK):
        fail(f"{ROOT} cannot be written to: copy it to a folder of your own, and build there")
    cache, known = folder(preset) / "CMakeCache.txt", {}
    if cache.exists():
        known = dict(re.findall(r"^(\w+):\w+=(.*)$", cache.read_text(encoding="utf-8"), re.MULTILINE))
        source, was = known["CMAKE_HOME_DIRECTORY"], known["CMAKE_CXX_COMPILER"]
        if source != str(ROOT):
            fail(
                f"build/{preset} was made in {source}, and a build cannot be moved: rm -r build/{preset}, and run this "
                "again"
            )
        if os.environ.get("CXX") and Path(shutil.which(packages.compiler()[0]) or "").resolve() != Path(was).resolve():
            fail(
                f"build/{preset} was made with {was}, not with CXX, which is {os.environ['CXX']}: unset CXX, or "
                f"rm -r build/{preset} and run this again"
            )
    options = [f"-DFLASHBOOK_TESTS={'ON' if tests else known.get('FLASHBOOK_TESTS', 'OFF')}"]
    if preset == "gpu" and gpu.architecture():
        options.append(f"-DCMAKE_CUDA_ARCHITECTURES={gpu.architecture()}")
    log = ROOT / "build/configure.log"
    with alone(folder(preset)):
        if watched("cmake", "--preset", preset, *options, busy="still configuring", log=log):
            lacking = packages.missing(packages.TESTS if tests else packages.PROGRAMS)
            if lacking:
                packages.refuse(lacking)
            sys.stderr.write(log.read_text(encoding="utf-8"))
            fail(f"cmake could not configure build/{preset}, see above")


def build(preset: str, *targets: str, tests: bool = False) -> None:
    configure(preset, tests)
    with alone(folder(preset)):
        words = ["--target", *targets] if targets else []
        if watched("cmake", "--build", "--preset", preset, *words, busy="still compiling"):
            fail_to_build(preset)


def fail_to_build(preset: str) -> NoReturn:
    fail(f"build/{preset} did not compile, see above{cuda_of_its_own() if preset == 'sim' else ''}")


class Background:
    """Builds targets while programs run. Ninja reports each program that it links; those that were up to date are known
    to be ready when it ends."""

    def __init__(self, preset: str, targets: Sequence[str]) -> None:
        self.preset, self.targets = preset, targets
        self.ready: set[str] = set()
        # Programs that run at the same time come first: their times must not depend on compilers.
        self.child = Child("nice", "cmake", "--build", "--preset", preset, "--target", *targets)

    @property
    def left(self) -> int:
        """Returns the number of steps until everything is built; 0 if that is not known."""
        # Before the first step, Ninja counts "Re-checking globbed directories" in the same way.
        progress = re.match(r"\[(\d+)/(\d+)\] (?!Re-)", self.child.last)
        return int(progress[2]) - int(progress[1]) if progress else 0

    def wait_for(self, target: str) -> None:
        """Shows the progress until the target is ready."""
        terminal = sys.stderr.isatty()
        lines = self.child.output("" if terminal else "still compiling")
        while target not in self.ready:
            line = next(lines, "")
            if linked := re.search(r"Linking \w+ executable bin/(\S+)$", line):
                self.ready.add(linked[1])
            elif not line and self.child.process.wait() == 0:
                self.ready.update(self.targets)
            elif not line:
                fail_to_build(self.preset)
            if terminal and line.startswith("["):  # the next line overwrites this one
                line = f"\r\033[K{line.rstrip()[:shutil.get_terminal_size().columns - 1]}"
            print(line, end="", file=sys.stderr, flush=True)
        if terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


@contextmanager
def background(preset: str, *targets: str) -> Iterator[Background]:
    configure(preset)
    with alone(folder(preset)):
        building = Background(preset, targets)
        try:
            yield building
        finally:
            building.child.stop()


NOT_IN_THE_SIMULATOR = {  # CUDA that the compiler or the linker rejects without an explanation, and the replacement
    r"[\w>]<<<": (
        "launches with <<<...>>>",
        "use device::launch(kernel, grid, block, shared_bytes, stream, args...)",
    ),
    r"\bextern\b.*\b__shared__\b": (
        "declares extern __shared__",
        "use T* name = dynamic_shared<T>() in the kernel (common/device/kernel.h)",
    ),
}


def cuda_of_its_own() -> str:
    """Returns what to write for CUDA that the simulator cannot build; empty if no file of a chapter contains any."""
    for file in sorted(path for path in ROOT.glob("chapters/**/*.*") if path.suffix in (".cu", ".cuh")):
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            for pattern, (what, remedy) in NOT_IN_THE_SIMULATOR.items():
                if re.search(pattern, line.partition("//")[0]):
                    return f". {file.relative_to(ROOT)}:{number} {what}: {remedy}"
    return ""


def has_target(preset: str, name: str) -> bool:
    return bool(
        re.search(rf"^build {name}:", (folder(preset) / "build.ninja").read_text(encoding="utf-8"), re.MULTILINE)
    )
