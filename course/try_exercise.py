#!/usr/bin/env python3
"""Runs the tests of an exercise that is built, and shows which pass and what the others say: python3 course/try_exercise.py ID. Exit
code 0 if all pass."""
import sys

import attempt
import manifest


def text(tried):
    exercise, lines = tried.exercise, [""]
    for test, verdict in zip(exercise.tests, tried.verdicts):
        lines.append(f"  {'pass' if verdict.passed else 'FAIL'}  {test.title}")
        lines += [f"        {line}" for line in verdict.message.splitlines()]
    passed = sum(verdict.passed for verdict in tried.verdicts)
    lines.append(f"\n{exercise.id}: " + ("solved" if tried.solved else f"{passed} of {len(tried.verdicts)} tests pass"))
    return "\n".join(lines)


def main():
    [exercise] = [e for e in manifest.load() if e.id == sys.argv[1]]
    tried = attempt.tested(exercise)
    print(text(tried))
    sys.exit(0 if tried.solved else 1)


if __name__ == "__main__":
    main()
