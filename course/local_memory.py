"""What a capstone's kernels keep in local memory, as nvcc says where there is one. It takes no GPU. The simulator cannot know: whether an array of a
thread lies in registers is decided by nvcc, which unrolls loops and gives registers out. A column beside the score, and no part of it."""
import os
import re
import shutil
import tempfile
from pathlib import Path

from course.counted import LocalMemory
from course.manifest import Exercise
from course.regions import Written
from course.toolchain import COMPILE, Toolchain, beside_the_system, readable_by_all

# Whatever plan() launches is instantiated, templates too.
SOURCE = '#include "{file}"\nauto* const used = &flashbook::capstone::plan;\n'
OPTIONS = ("-std=c++20", "--expt-relaxed-constexpr", "-arch=sm_90a", "-cubin", "-w", "-Xptxas=-v")
KERNEL = re.compile(r"Function properties for (\S+)\s*\n\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def nvcc() -> str:
    """As the front door finds it; empty if there is none."""
    found = os.environ.get("CUDACXX") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    return str(Path(found).resolve()) if os.access(found, os.X_OK) else ""


def parsed(log: str) -> LocalMemory | None:
    """The worst kernel in what ptxas reports; None if there is none."""
    found = [(int(frame), int(stores) + int(loads)) for _, frame, stores, loads in KERNEL.findall(log)]
    return LocalMemory(*max(found)) if found else None


def of_answer(toolchain: Toolchain, exercise: Exercise, answer: Written, parent: Path) -> LocalMemory | None:
    """None without nvcc, and where it does not compile the answer, or finds no kernel in it."""
    compiler = nvcc()
    if not compiler:
        return None
    folder = Path(tempfile.mkdtemp(prefix="compiled-", dir=parent))
    for name, text in {**toolchain.texts(exercise, answer), "local.cu": SOURCE.format(file=exercise.file)}.items():
        (folder / "sources" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "sources" / name).write_text(text, encoding="utf-8")
    readable_by_all(folder / "sources")
    command = [compiler, *OPTIONS, f"-I{folder / 'sources'}", f"-I{toolchain.tree}", "-o", folder / "kernel.cubin", folder / "sources/local.cu"]
    done = toolchain.sandbox.run(command, folder, COMPILE, visible=[toolchain.tree, *beside_the_system(compiler)])
    return parsed(done.output) if done.code == 0 else None
