"""Compiles exercises with a given answer. Ninja has the commands from the book's own build; they run with a different folder of sources. Libraries
contain no exercises and are taken from that build; headers that all tests include are precompiled once."""
import itertools
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from course import handout
from course.manifest import Exercise
from course.regions import Fault, Written, graft
from course.sandbox import Limits, Outcome, Sandbox

COMPILE = Limits(seconds=120, file=256 << 20)
HEADER = "tests/exercises/attention_kernel.h"  # a library that contains no exercise


@dataclass
class Program:
    path: Path | None = None
    log: str = ""  # why there is no program
    endless: bool = False  # whether the compiler timed out


def is_of_compiled_header(words: Sequence[str], index: int) -> bool:
    """Returns whether a word belongs to the options with which CMake names a precompiled header: two for g++, eight for
    clang++."""
    return "cmake_pch" in words[index] or (words[index] in ("-Xclang", "-include", "-include-pch") and
                                           any("cmake_pch" in word for word in words[index + 1:index + 4]))


def is_of(exercise: Exercise, words: Sequence[str]) -> bool:
    """Returns whether a command compiles an exercise's own source."""
    return "-c" in words and Path(words[words.index("-c") + 1]).stem == exercise.id


def without_extras(words: Sequence[str]) -> list[str]:
    """Returns a command without the options that write dependency files (newer versions of CMake pass some to the linker) and without the
    build's precompiled header: a compiler accepts only one, and Toolchain.compiled() makes a larger one."""
    words = [word for index, word in enumerate(words) if not is_of_compiled_header(words, index)]
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in ("-MT", "-MF"):
            skip = True
        elif word != "-MD" and "--dependency-file=" not in word:
            kept.append(word)
    return kept


def readable_by_all(folder: Path) -> None:
    """Lets the sandbox's users read a folder, even if the book's own files are private."""
    subprocess.run(["chmod", "-R", "a+rX", "--", folder], check=True)


def outside_the_system(tool: str) -> list[Path]:
    """Returns the folder of a compiler that is not installed under /usr."""
    place = Path(tool).resolve()
    return [] if place.is_relative_to("/usr") else [place.parents[1]]


class Toolchain:
    """Compiles with the students' version of the sources, in the folder `tree`, and the book's own `build`. `options`: additional compiler
    options."""

    def __init__(self, root: Path, build: Path, tree: Path, sandbox: Sandbox, options: Sequence[str] = ()) -> None:
        self.root, self.build, self.tree, self.sandbox, self.options = root, build, tree, sandbox, options
        self.headers: dict[tuple[str, ...], Path] = {}
        self.lock = threading.Lock()
        self.libraries = tree.with_name("libraries")
        tree.mkdir()
        self.libraries.mkdir()
        handout.write(root, tree)
        readable_by_all(tree)

    def commands(self, target: str) -> list[list[str]]:
        listed = subprocess.run(["ninja", "-C", self.build, "-t", "commands", target], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True, check=False)
        if listed.returncode:
            raise Fault(f"{self.build} cannot build {target}: build the target exercises there first")
        # Drops ccache, whose cache students' code must not see, and the script that reads ptxas's messages.
        launchers = {"ccache", "ptxas_gate", "--fail"}
        return [list(itertools.dropwhile(lambda word: Path(word).name in launchers, shlex.split(line))) for line in listed.stdout.splitlines()]

    def texts(self, exercise: Exercise, answer: Written | None) -> dict[str, str]:
        """Returns {name: text} of the files that differ from the tree: the exercise's file and its hidden tests."""
        hidden = (self.root / "tests/exercises/hidden").glob(f"{exercise.id}.*")
        texts = {str(file.relative_to(self.root)): file.read_text(encoding="utf-8") for file in hidden}
        stub = (self.root / exercise.file).read_text(encoding="utf-8")
        return texts | {exercise.file: graft(stub, {exercise.id: answer}, exercise.file) if answer else stub}

    def exercise(self, exercise: Exercise, answer: Written | None, folder: Path, suffix: str = "") -> Program:
        """Makes the exercise's program in the empty folder `folder`, with an answer or, if None, the stub. Only its own source is compiled; the
        other objects come from the build. `suffix`: _traced for the twin."""
        target = exercise.solved_program + suffix
        *commands, link = self.commands(target)
        made: dict[str, str] = {}  # replacements for the build's objects
        for words in commands:
            if is_of(exercise, words):
                own = folder / f"{len(made)}.o"
                made[words[words.index("-o") + 1]] = str(own)
                done = self.compile(exercise, answer, words, folder, own)
                if done.code != 0:
                    return Program(log=self.readable(done, folder), endless=done.seconds >= COMPILE.seconds)
        done = self.sandbox.run(self.link_command(link, made, folder / target), folder, COMPILE, visible=[self.libraries])
        return Program(path=folder / target) if done.code == 0 else Program(log=self.readable(done, folder))

    def compile(self, exercise: Exercise, answer: Written | None, words: Sequence[str], folder: Path, target: Path) -> Outcome:
        """Runs a compile command of the build on the exercise's own source, with an answer."""
        for name, text in self.texts(exercise, answer).items():
            (folder / "sources" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "sources" / name).write_text(text, encoding="utf-8")
        readable_by_all(folder / "sources")
        command, visible = self.compile_command(words, folder, target), [self.tree, *outside_the_system(words[0])]
        if Path(words[0]).name != "nvcc":  # nvcc does not support precompiled headers
            ready = self.compiled(HEADER, words)
            command, visible = [*command, "-include", str(ready)], [*visible, ready.parent]
        return self.sandbox.run(command, folder, COMPILE, visible=visible)

    def compile_command(self, words: Sequence[str], folder: Path, target: Path) -> list[str]:
        """Returns a compile command of the build, for the sources in `folder` and in the tree, which contain no
        solutions."""
        book = f"-I{self.root}"
        words = [word if word == book else word.replace(f"{self.root}/", f"{self.tree}/") for word in words]
        words[words.index("-o") + 1] = str(target)
        source = words.index("-c") + 1
        own = Path(words[source].replace(f"{self.tree}/", f"{folder / 'sources'}/"))
        words[source] = str(own if own.is_file() else words[source])
        words[words.index(book):words.index(book) + 1] = [f"-I{folder / 'sources'}", f"-I{self.tree}"]
        return [*without_extras(words), "-DFLASHBOOK_RECORDS", *self.options, "-w", "-fno-diagnostics-show-caret"]

    def compiled(self, header: str, words: Sequence[str]) -> Path:
        """Returns the precompiled header for a compile command of the build; shared by all commands with the same
        options."""
        source = words.index("-c")
        key = (header, *without_extras(words[:words.index("-o")]))
        with self.lock:
            if key not in self.headers:
                folder = Path(tempfile.mkdtemp(dir=self.tree.parent))
                (folder / "header.h").write_text(f'#include "{header}"\n', encoding="utf-8")
                readable_by_all(folder)
                words = [*words[:source], "-x", "c++-header", "-c", str(folder / "header.h")]
                done = self.sandbox.run(self.compile_command(words, folder, folder / "header.h.gch"), folder, COMPILE,
                                        visible=[self.tree, *outside_the_system(words[0])])
                if done.code != 0:
                    raise Fault(f"{header} does not compile:\n{done.output}")
                self.headers[key] = folder / "header.h"
            return self.headers[key]

    def link_command(self, words: Sequence[str], made: Mapping[str, str], target: Path) -> list[str]:
        """Returns a link command of the build, with the replaced objects."""
        words = [made.get(word, word) for word in without_extras(words) if word not in (":", "&&")]
        words[words.index("-o") + 1] = str(target)
        return [self.copied(word) if not word.startswith(("/", "-")) and (self.build / word).is_file() else word for word in words]

    def copied(self, name: str) -> str:
        """Returns a copy of a library of the build that all users may read."""
        copy = self.libraries / name
        with self.lock:
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.build / name, copy.with_name(f"{copy.name}.part"))
                copy.with_name(f"{copy.name}.part").rename(copy)  # whole or not at all: a submission may be filling the disk
                readable_by_all(self.libraries)
        return str(copy)

    def knows(self, target: str) -> bool:
        """Returns whether the build has such a target."""
        try:
            return bool(self.commands(target))
        except Fault:
            return False

    def readable(self, outcome: Outcome, folder: Path) -> str:
        """Returns a compiler's messages, with file names relative to a student's tree."""
        text = outcome.output
        for place in (folder / "sources", self.tree, self.root):
            text = text.replace(f"{place}/", "")
        lines = [line for line in text.splitlines() if not line.startswith(("In file included from", "        "))]
        return ("\n".join(lines)[:4000] + ("\n" + outcome.trouble if outcome.trouble else "")).strip()
