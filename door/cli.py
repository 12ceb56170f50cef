"""The command line: ./flashbook COMMAND ..."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from door import tree
from door.commands import PROGRAMS, docs, measure, profile, run, small_program, test, trace
from door.console import fail
from door.course import course
from door.tree import number_of, number_or_capstone, number_or_exercise

# the course's commands whose script takes options after --
GRADE_OPTIONS = """Options after --. A class: --roster FILE, --single (each DIR is from one student). Variants:
--class TEXT, --student ID. To repeat: --seed N, --only TEST (one test with its output, hidden or not). --out DIR, --jobs N. --unfenced grades
on a machine without a sandbox. To continue an interrupted class, repeat the command."""
FLAGS = ("--all", "--no-cuda", "--solved")
TAKE_OPTIONS = ("grade", "package")


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        unknown = re.search(r"argument (?:COMMAND|ACTION): invalid choice: '(.*?)'", message)
        if not unknown:
            fail(f"{message[0].lower()}{message[1:]}: {self.prog} --help lists the options")
        word, known = unknown[1], re.findall(r"[a-z]+", message.partition("choose from")[2])
        similar = difflib.get_close_matches(word, known)
        near = [
            f"{self.prog} {name}"
            for name in known
            if word and (name.startswith(word) or word.startswith(name) or name in similar)
        ]
        meant = f" (did you mean {' '.join(near)}?)" if near else ""
        fail(f"unknown command '{word}'{meant}: run {self.prog} --help for a list")


Adder = Callable[..., Parser]


def adder(commands: Any) -> Adder:
    """Returns a function that adds a command; `more` appears only in the command's own help."""

    def add(
        name: str, call: Callable[[argparse.Namespace], int], help: str, more: str = "", cuda: bool = False
    ) -> Parser:
        description = f"{help[0].upper()}{help[1:]}. {more}"
        one: Parser = commands.add_parser(name, help=help, description=description, allow_abbrev=False)
        one.set_defaults(run=call, parser=one)
        if cuda:
            one.add_argument(
                "--no-cuda", dest="cuda", action="store_false", help="use the simulator even if there is a GPU"
            )
        return one

    return add


def add_main(add: Adder) -> None:
    chapters: dict[str, Any] = {"metavar": "NN", "nargs": "*", "type": number_of}
    passed = "Options after -- go to "
    more = f"Chapter 0, which measures the GPU, runs only if named. {passed}the chapters' programs: "
    one = add(
        "run", run, "build and run chapters, print the ladder", f"{more}run 01 -- --seqlen 1000 --causal", cuda=True
    )
    one.add_argument("chapters", help="chapters, such as 01 (default: all but 00)", **chapters)
    help = "build and run the standard tests, or all of them"
    one = add("test", test, help, passed + "ctest: test -- -R 01_naive", cuda=True)
    one.add_argument("--all", action="store_true", help="every test, as CI does")
    more = (
        "Counts sectors, bank conflicts and bytes next to the cost model; stops at data races. On a GPU, Nsight "
        f"Compute counts, kernel by kernel. {passed}the chapter's program."
    )
    help = "count the memory requests of the kernels of a chapter or an exercise, line by line"
    one = add("profile", profile, help, more, cuda=True)
    help = "the chapter, or an exercise with a kernel: profile 01 -- --step coalesced"
    one.add_argument("chapter", metavar="NN|ID", type=number_or_exercise, help=help)
    more = (
        f"Shows each warp's instructions next to their lines, barriers and tiles; marks races and deadlocks. {passed}"
        "the program."
    )
    one = add("trace", trace, "step through kernels on a web page", more)
    help = "a chapter, an exercise, or a program built with the simulator, by a path with a slash"
    one.add_argument("what", metavar="NN|ID|PROGRAM", help=help)
    one.add_argument("--out", metavar="FILE", default="trace.html", help="the page (default: trace.html)")
    one.add_argument("--blocks", metavar="A-B", default="0", help="which blocks (default: 0)")
    if tree.STUDENT:
        return
    help = "measure chapters on a GPU, or CPU chapters without one, compare with the book's times, file the result"
    add("bench", measure, help, passed + "the bench.").add_argument(
        "chapters", help="chapters (default: all)", **chapters
    )
    help = "measure the errors of f16 and FP8 against FP64 (chapter 6); file the result"
    add("accuracy", measure, help, passed + "the program.", cuda=True)
    add("docs", docs, "build the site: build/docs/html/index.html", "With -- --pdf also flashbook.pdf next to it.")


def add_course(add: Adder) -> None:
    one = add("try", course, "build and test exercises, in all modes of the simulator")
    one.add_argument("what", metavar="ID|NN", nargs="+", help="exercises, or a chapter for all of its unsolved ones")
    if not tree.STUDENT:
        one.add_argument("--solved", action="store_true", help="use the book's solution instead of the file's code")
    one = add("watch", course, "build and test a chapter's exercises whenever a file is saved")
    help = "the chapter, or capstone (default: the first unsolved)"
    one.add_argument("what", metavar="NN", nargs="*", type=number_or_capstone, help=help)
    add("status", course, "show your points, and roughly how long the rest takes; builds nothing")
    one = add(
        "variant", course, "show your variant of capstone-variant", "Given both, this copy remembers and tests it."
    )
    help = "the class's seed and your id, as your teacher gave them to you"
    one.add_argument("what", metavar="CLASS STUDENT", nargs="*", help=help)
    add("next", course, "show the next exercise: what to read, edit and run")
    if tree.STUDENT:
        return
    one = add("handout", course, "create a student's copy of the course, without solutions")
    one.add_argument("folder", metavar="DIR", help="the folder to make: ../flashbook-student")
    help = "the last chapter, or all chapters to be done (those between are solved); and capstone (default: all)"
    one.add_argument("chapters", metavar="NN", nargs="*", type=number_or_capstone, help=help)
    one.add_argument("--solved", action="store_true", help="include the solutions, as in a perfect submission")
    one = add("grade", course, "grade submissions", GRADE_OPTIONS)
    help = "submissions, and which chapters or exercises to grade, or capstone (default: all chapters)"
    one.add_argument("what", metavar="DIR|NN|ID", nargs="+", help=help)
    help = "write the autograder for Gradescope, a zip"
    one = add("package", course, help, "Options after --: --out FILE, --class TEXT, --unfenced.")
    one.add_argument("what", metavar="NN|ID", nargs="*", help="chapters or exercises (default: all)")
    help = "check that exercises fail as handed out and pass when solved, and that cheats gain nothing"
    one = add("check", course, help)
    one.add_argument("what", metavar="NN|ID", nargs="*", help="chapters, exercises, or capstone (default: all)")


def parser() -> Parser:
    description = (
        "Flashbook's command line. It installs what is missing and prints every command that it runs. Kernels run on the "
        "GPU if there is one with a suitable CUDA toolkit, and otherwise in the simulator."
    )
    top = Parser(prog="./flashbook", allow_abbrev=False, description=description)
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    add_main(adder(commands))
    for name, help in PROGRAMS.items():
        commands.add_parser(name, help=help)
    teacher = "" if tree.STUDENT else "; handout, grade, package, check"
    help = f"exercises: try, watch, status, variant, next{teacher}"
    one = commands.add_parser("course", help=help, allow_abbrev=False)
    add_course(adder(one.add_subparsers(dest="action", metavar="ACTION", required=True)))
    return top


def main() -> int:
    words = sys.argv[1:]
    if not words or words[0] == "help":
        words = [*words[1:], "--help"]
    if words[0] in PROGRAMS:  # options after -- belong to the program
        return small_program(words[0], words[1:])
    cut = words.index("--") if "--" in words else len(words)
    flags = [word for word in words[:cut] if word in FLAGS]  # argparse does not allow options between the words of a list
    a, unknown = parser().parse_known_args([*(word for word in words[:cut] if word not in FLAGS), *flags])
    a.options = words[cut + 1 :]
    command = f"{a.command} {a.action}" if a.command == "course" else a.command
    if a.command == "course" and a.action not in TAKE_OPTIONS:
        unknown += a.options
    if unknown:
        near = difflib.get_close_matches(unknown[0], re.findall(r"--[a-z-]+", a.parser.format_usage()), 1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        after = "; options of the programs follow --" if "ptions after --" in a.parser.description else ""
        fail(f"'{command}' does not take {unknown[0]}{meant}: ./flashbook {command} --help lists the options{after}")
    return int(a.run(a))
