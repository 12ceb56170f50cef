#!/usr/bin/env python3
"""Asks questions on a chapter: python3 course/quiz.py NN [--seed TEXT]. Writes the answers into quiz-NN.json, which is handed in. Which questions
are drawn, and the order of the choices, depend on the seed: a student's id, say. The answers that are right are the grader's:
chapters/NN_name/exercises/quiz.json has them, and the hand-out's has choices only."""
import argparse
import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the packages, for python3 course/quiz.py

from course import manifest
from course.regions import Fault

DRAWN, LETTERS = 3, "abcd"
Question = dict[str, Any]  # question, section of the page that answers it, right, wrong; in a hand-out choices


def load(root: Path, number: str) -> list[Question]:
    for file in root.glob(f"chapters/{number}_*/exercises/quiz.json"):
        return manifest.read_list(file, root)
    raise Fault(f"chapter {number} has no questions")


def choices(one: Question) -> list[str]:
    return sorted(one.get("choices") or [one["right"], *one["wrong"]])


def without_answers(text: str) -> str:
    """A quiz.json as students get it."""
    entries = [{"question": one["question"], "choices": choices(one), "section": one["section"]} for one in json.loads(text)]
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"


def shuffled(texts: Iterable[str], seed: str) -> list[str]:
    return sorted(texts, key=lambda text: hashlib.sha256(f"{seed}\n{text}".encode()).digest())


def drawn(questions: Sequence[Question], seed: str) -> list[Question]:
    by_text = {one["question"]: one for one in questions}
    return [by_text[text] for text in shuffled(by_text, seed)[:DRAWN]]


def points(root: Path, number: str, handed_in: dict[str, Any]) -> tuple[int, str]:
    """(what a quiz-NN.json is worth, its seed). It may hold what it likes."""
    seed, answers = str(handed_in.get("seed", "")), handed_in.get("answers")
    right = [isinstance(answers, dict) and answers.get(one["question"]) == one["right"] for one in drawn(load(root, number), seed)]
    return sum(right), seed


def ask(one: Question, seed: str) -> str:
    """The choice of who sits at the terminal."""
    by_letter = dict(zip(LETTERS, shuffled(choices(one), seed)))
    print("\n".join([f"\n{one['question']}", *(f"  {letter}  {choice}" for letter, choice in by_letter.items())]))
    while (answer := input("> ").strip().lower()) not in by_letter:
        print(f"one of {', '.join(by_letter)}, then Enter")
    return by_letter[answer]


def main() -> None:
    parser = argparse.ArgumentParser(prog="course quiz", description="Asks questions on a chapter.")
    parser.add_argument("number", metavar="NN", help="the chapter, two digits")
    parser.add_argument("--seed", default="0", help="which questions: your student id, if your teacher says so")
    arguments = parser.parse_args()
    try:
        answers = {one["question"]: ask(one, arguments.seed) for one in drawn(load(manifest.ROOT, arguments.number), arguments.seed)}
    except (Fault, EOFError, KeyboardInterrupt) as fault:
        print(f"\ncourse quiz: {fault or 'not all questions were answered, and nothing was written'}", file=sys.stderr)
        sys.exit(2)
    file = manifest.ROOT / f"quiz-{arguments.number}.json"
    file.write_text(json.dumps({"seed": arguments.seed, "answers": answers}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"\n{file.name} has your answers: hand it in.")


if __name__ == "__main__":
    main()
