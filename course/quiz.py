#!/usr/bin/env python3
"""Asks questions on a chapter: python3 course/quiz.py NN [--seed TEXT]. Writes the answers into quiz-NN.json, which is handed in. Which questions
are drawn, and the order of the choices, depend on the seed: a student's id, say. The answers that are right are the grader's:
chapters/NN_name/exercises/quiz.json has them, and the hand-out's has choices only."""
import argparse
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the packages, for python3 course/quiz.py

from course import manifest
from course.regions import Fault

DRAWN = 3  # of a chapter's questions
LETTERS = "abcd"


@dataclass
class Question:
    question: str
    choices: list[str]
    section: str  # of the chapter's page, where the answer stands
    right: str = ""  # not in a hand-out


@dataclass
class Mark:
    """What somebody's answers to a chapter's questions are worth."""
    number: str
    seed: str
    points: int = 0
    read_again: list[str] = field(default_factory=list)  # sections


def file_of(root: Path, number: str) -> Path:
    return next(root.glob(f"chapters/{number}_*/exercises/quiz.json"), root / "chapters" / number)


def load(root: Path, number: str) -> list[Question]:
    file = file_of(root, number)
    if not file.is_file():
        some = sorted(path.parents[1].name[:2] for path in root.glob("chapters/*/exercises/quiz.json"))
        raise Fault(f"chapter {number} has no questions: {', '.join(some)} have some")
    entries = manifest.read_list(file, root)
    return [Question(one["question"], one.get("choices") or [one["right"], *one["wrong"]], one["section"], one.get("right", "")) for one in entries]


def without_answers(text: str) -> str:
    """A quiz.json as students get it."""
    entries = [{"question": one["question"], "choices": sorted([one["right"], *one["wrong"]]), "section": one["section"]} for one in json.loads(text)]
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"


def shuffled(texts: Iterable[str], seed: str) -> list[str]:
    return sorted(texts, key=lambda text: hashlib.sha256(f"{seed}\n{text}".encode()).digest())


def drawn(questions: Sequence[Question], seed: str) -> list[Question]:
    by_text = {one.question: one for one in questions}
    return [by_text[text] for text in shuffled(by_text, seed)[:DRAWN]]


def marked(root: Path, number: str, handed_in: Mapping[str, Any]) -> Mark:
    """`handed_in`: a quiz-NN.json, which may hold what it likes."""
    seed, answers = str(handed_in.get("seed", "")), handed_in.get("answers")
    mark = Mark(number, seed)
    for one in drawn(load(root, number), seed):
        if isinstance(answers, dict) and answers.get(one.question) == one.right:
            mark.points += 1
        else:
            mark.read_again.append(one.section)
    return mark


def ask(one: Question, seed: str) -> str:
    """The choice of who sits at the terminal."""
    choices = dict(zip(LETTERS, shuffled(one.choices, seed)))
    print(f"\n{one.question}")
    for letter, choice in choices.items():
        print(f"  {letter}  {choice}")
    while True:
        print("> ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            raise Fault("not all questions were answered, and nothing was written")
        if line.strip().lower() in choices:
            return choices[line.strip().lower()]
        print(f"one of {', '.join(choices)}, then Enter")


def main() -> None:
    parser = argparse.ArgumentParser(prog="course quiz", description="Asks questions on a chapter.")
    parser.add_argument("number", metavar="NN", help="the chapter, two digits")
    parser.add_argument("--seed", default="0", help="which questions: your student id, if your teacher says so")
    arguments = parser.parse_args()
    try:
        questions = drawn(load(manifest.ROOT, arguments.number), arguments.seed)
        answers = {one.question: ask(one, arguments.seed) for one in questions}
    except (Fault, KeyboardInterrupt) as fault:
        print(f"\ncourse quiz: {fault}", file=sys.stderr)
        sys.exit(2)
    file = manifest.ROOT / f"quiz-{arguments.number}.json"
    file.write_text(json.dumps({"seed": arguments.seed, "answers": answers}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"\n{file.name} has your answers: hand it in.")
    for one in questions:
        if one.right:  # in the book
            print(f"{'right' if answers[one.question] == one.right else 'wrong'}: {one.right}")


if __name__ == "__main__":
    main()
