#!/usr/bin/env python3
"""Asks questions on a chapter: python3 course/quiz.py NN [--seed TEXT]. Writes the answers to quiz-NN.json, for handing in. The seed, for example the
student's id, draws the questions and the order of the choices. The right answers are in the book's chapters/NN_name/exercises/quiz.json; the
hand-out's copy contains only the choices."""
import argparse
import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that python3 course/quiz.py finds the packages

from course import manifest
from course.regions import Fault

DRAWN, LETTERS = 3, "abcd"
Question = dict[str, Any]  # question, section (which answers it), right and wrong; in a hand-out, choices instead of the last two


def load(root: Path, number: str) -> list[Question]:
    for file in root.glob(f"chapters/{number}_*/exercises/quiz.json"):
        return manifest.read_list(file, root)
    raise Fault(f"chapter {number} has no questions")


def choices(one: Question) -> list[str]:
    return sorted(one.get("choices") or [one["right"], *one["wrong"]])


def without_answers(text: str) -> str:
    """Returns the students' version of a quiz.json."""
    entries = [{"question": one["question"], "choices": choices(one), "section": one["section"]} for one in json.loads(text)]
    return json.dumps(entries, indent=1, ensure_ascii=False) + "\n"


def shuffled(texts: Iterable[str], seed: str) -> list[str]:
    return sorted(texts, key=lambda text: hashlib.sha256(f"{seed}\n{text}".encode()).digest())


def drawn(questions: Sequence[Question], seed: str) -> list[Question]:
    by_text = {one["question"]: one for one in questions}
    return [by_text[text] for text in shuffled(by_text, seed)[:DRAWN]]


def points(root: Path, number: str, handed_in: dict[str, Any]) -> tuple[int, str]:
    """Returns (the points of a quiz-NN.json, its seed). `handed_in` is untrusted."""
    seed, answers = str(handed_in.get("seed", "")), handed_in.get("answers")
    right = [isinstance(answers, dict) and answers.get(one["question"]) == one["right"] for one in drawn(load(root, number), seed)]
    return sum(right), seed


def ask(one: Question, seed: str) -> str:
    """Asks on the terminal; returns the choice."""
    by_letter = dict(zip(LETTERS, shuffled(choices(one), seed)))
    print("\n".join([f"\n{one['question']}", *(f"  {letter}  {choice}" for letter, choice in by_letter.items())]))
    while (answer := input("> ").strip().lower()) not in by_letter:
        print(f"type one of {', '.join(by_letter)} and press Enter")
    return by_letter[answer]


def main() -> None:
    parser = argparse.ArgumentParser(prog="course quiz", description="Asks questions on a chapter.")
    parser.add_argument("number", metavar="NN", help="the chapter's two-digit number")
    parser.add_argument("--seed", default="0", help="seed that selects the questions (default: 0); your student id, if your teacher asks for it")
    arguments = parser.parse_args()
    try:
        answers = {one["question"]: ask(one, arguments.seed) for one in drawn(load(manifest.ROOT, arguments.number), arguments.seed)}
    except (Fault, EOFError, KeyboardInterrupt) as fault:
        print(f"\ncourse quiz: {fault or 'not all questions were answered, so nothing was written'}", file=sys.stderr)
        sys.exit(2)
    file = manifest.ROOT / f"quiz-{arguments.number}.json"
    file.write_text(json.dumps({"seed": arguments.seed, "answers": answers}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"\nYour answers are in {file.name}: hand it in.")


if __name__ == "__main__":
    main()
