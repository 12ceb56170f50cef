"""The command line: ./flashbook COMMAND ..."""
from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable
from typing import NoReturn

from door import tree
from door.commands import SERVING, docs, measure, plot, profile, run, serving, test, trace
from door.console import fail
from door.course import course
from door.tree import number_of, number_or_capstone


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        unknown = re.search(r"argument (?:COMMAND|ACTION): invalid choice: '(.*?)'", message)
        if not unknown:
            fail(f"{message[0].lower()}{message[1:]}: {self.prog} --help says what it takes")
        word, known = unknown[1], re.findall(r"[a-z]+", message.partition("choose from")[2])
        near = [f"{self.prog} {name}" for name in known
                if word and (name.startswith(word) or word.startswith(name) or name in difflib.get_close_matches(word, known))]
        fail(f"there is no command '{word}'" + (f" (did you mean {' '.join(near)}?)" if near else "") + f": {self.prog} --help lists them")


def parser() -> Parser:
    top = Parser(prog="./flashbook", allow_abbrev=False, description="Flashbook's front door. It prints every plain command that it runs. "
                 "With a GPU and a CUDA toolkit everything is built for the GPU and runs there; elsewhere in the simulator.")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(to: argparse._SubParsersAction[Parser], name: str, run: Callable[[argparse.Namespace], int], help: str, more: str = "",
            chapters: bool = False, cuda: bool = False) -> Parser:
        one = to.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}. {more}", allow_abbrev=False)
        one.set_defaults(run=run, parser=one)
        if chapters:
            one.add_argument("chapters", metavar="NN", nargs="*", type=number_of, help="chapters, such as 01 (default: all)")
        if cuda:
            one.add_argument("--no-cuda", dest="cuda", action="store_false", help="the simulator, even where there is a GPU")
        return one

    passed = "Options after -- go to "
    add(commands, "run", run, "build and run chapters, print the ladder", "In the simulator chapter 0, which times a GPU, runs if it is named. " +
        passed + "the chapters' programs: ./flashbook run 01 -- --seqlen 1000 --causal", chapters=True, cuda=True)
    one = add(commands, "test", test, "build and run the tests: what matters most, or all", passed + "ctest: test -- -R 01_naive", cuda=True)
    one.add_argument("--all", action="store_true", help="every test, as CI does")
    one = add(commands, "profile", profile, "count what a chapter's kernels ask of memory, line by line",
              "Sectors, bank conflicts and bytes beside the cost model; data races stop it. On a GPU, Nsight Compute counts, kernel by kernel. "
              + passed + "the chapter's program.", cuda=True)
    one.add_argument("chapter", metavar="NN", type=number_of, help="the chapter: ./flashbook profile 01 -- --step 2")
    one = add(commands, "trace", trace, "step through what kernels do, in a page",
              "Each warp's instructions beside their lines, barriers, tiles; races and deadlocks marked. " + passed + "the program.")
    one.add_argument("what", metavar="NN|ID|PROGRAM", help="a chapter, an exercise, or any program built with the simulator, by a path with a slash")
    one.add_argument("--out", metavar="FILE", default="trace.html", help="the page (default: trace.html)")
    one.add_argument("--perfetto", metavar="FILE", help="Perfetto's JSON too")
    one.add_argument("--blocks", metavar="A-B", default="0", help="which blocks (default: 0)")
    for name, help in SERVING.items():
        commands.add_parser(name, help=help)
    if not tree.STUDENT:
        add(commands, "bench", measure, "measure chapters on a GPU, or CPU chapters without, beside the book's times; file the result",
            passed + "the bench.", chapters=True)
        add(commands, "accuracy", measure, "how far f16 and FP8 are from FP64 (chapter 6); file the result", passed + "the program.", cuda=True)
        add(commands, "plot", plot, "draw docs/plots and the pages' numbers anew from bench/results", passed + "the script.")
        add(commands, "docs", docs, "build the site: build/docs/html/index.html", "With -- --pdf all of it as flashbook.pdf beside it, too.")
    help = "exercises: try, watch, status, variant, next, quiz" + ("" if tree.STUDENT else "; handout, grade, package, slides, check")
    actions = commands.add_parser("course", help=help, allow_abbrev=False).add_subparsers(dest="action", metavar="ACTION", required=True)
    one = add(actions, "watch", course, "the same for a chapter's exercises, again whenever a file is saved")
    one.add_argument("what", metavar="NN", nargs="*", type=number_or_capstone, help="the chapter, or capstone (default: the first not solved)")
    add(actions, "status", course, "how far you are: points, and about how long the rest takes. Builds nothing")
    one = add(actions, "variant", course, "which variant of capstone-variant is yours",
              "With both words this copy keeps them, and tests that variant.")
    one.add_argument("what", metavar="CLASS STUDENT", nargs="*", help="the class's seed and your id, as your teacher gave them to you")
    add(actions, "next", course, "the next exercise: what to read, edit and run")
    one = add(actions, "quiz", course, "questions on a chapter; writes your answers into a file to hand in", "Options after --: --seed TEXT.")
    one.add_argument("what", metavar="NN", type=number_of, nargs=1)
    one = add(actions, "try", course, "build and run the tests of exercises, in all the simulator's modes")
    one.add_argument("what", metavar="ID|NN", nargs="+", help="exercises, or all that a chapter leaves to do")
    one.add_argument("--times", action="store_true", help="time kernels that are right on this machine's GPU, in turn with the book's best "
                         "where that is here")
    if not tree.STUDENT:
        one.add_argument("--solved", action="store_true", help="with the book's solution in the place of what stands in the file")
        one = add(actions, "handout", course, "cut the student's tree, without solutions")
        one.add_argument("folder", metavar="DIR", help="the folder to make: ../flashbook-student")
        one.add_argument("chapters", metavar="NN", nargs="*", type=number_or_capstone, help="the last chapter; or all that are to be done, and "
                         "those between them stand solved; and capstone (default: all)")
        one.add_argument("--solved", action="store_true", help="with solutions, as a submission that has everything right")
        one = add(actions, "grade", course, "grade submissions", "Options after --: --out, --seed, --class, --times, --jobs.")
        one.add_argument("what", metavar="DIR|NN|ID", nargs="+", help="submissions, and which chapters or exercises of them, or capstone (default: "
                         "all chapters)")
        one = add(actions, "package", course, "write the autograder for Gradescope, a zip", "Options after --: --out FILE, --class TEXT.")
        one.add_argument("what", metavar="NN|ID", nargs="*", help="chapters or exercises (default: all)")
        one = add(actions, "slides", course, "print the figures of a chapter or a week as slides, a PDF", "Options after --: --out FILE.")
        one.add_argument("what", metavar="NN|week_NN", nargs="+", help="chapters, or weeks such as week_04")
        one = add(actions, "check", course, "prove that exercises fail as handed out, pass solved, and that cheats gain nothing")
        one.add_argument("what", metavar="NN|ID", nargs="*", help="chapters, exercises, or capstone (default: all)")
    return top


def main() -> int:
    words = sys.argv[1:]
    if not words or words[0] == "help":
        words = [*words[1:], "--help"]
    if words[0] in SERVING:  # what follows is theirs
        return serving(words[0], words[1:])
    cut = words.index("--") if "--" in words else len(words)
    a, unknown = parser().parse_known_args(words[:cut])
    command = f"{a.command} {a.action}" if a.command == "course" else a.command
    if unknown := unknown + (words[cut + 1:] if command.startswith("course") and a.action not in ("grade", "package", "quiz", "slides") else []):
        near = difflib.get_close_matches(unknown[0], re.findall(r"--[a-z-]+", a.parser.format_usage()), 1)
        fail(f"'{command}' does not take {unknown[0]}{f' (did you mean {near[0]}?)' if near else ''}: ./flashbook {command} --help says what it takes"
             + ("; options of what it runs follow --" if " after -- go to " in a.parser.description else ""))
    a.options = words[cut + 1:]
    return int(a.run(a))
