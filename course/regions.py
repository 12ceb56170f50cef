"""What students write, marked in the file of an exercise:

    // BEGIN EXERCISE ch01-scores: One score a thread
    // TODO: sum the products.
    // END EXERCISE ch01-scores

What the book has in its place, once it is solved, lies apart in course/solutions, which is not handed out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

BEGIN = re.compile(r"\s*// BEGIN EXERCISE ([a-z0-9-]+)\b.*")
END = re.compile(r"\s*// END EXERCISE ([a-z0-9-]+)\s*")


class Fault(Exception):
    """What is wrong with the course or with what is asked of it, in one line that says where."""


class Broken(Fault):
    """A grader that cannot grade, whatever is handed in."""


def code(lines: Iterable[str]) -> list[str]:
    """The lines that are code, without comments and spaces."""
    bare = ("".join(re.sub(r"//.*", "", line).split()) for line in lines)
    return [line for line in bare if line]


@dataclass
class Written:
    """What stands in the place of one exercise."""
    lines: list[str]
    line: int = 1  # of the first of them, in the file that it was taken from


def written(text: str, name: str) -> tuple[dict[str, Written], dict[str, str]]:
    """What stands between a student's markers, and why there is nothing for the markers that make no pair: ({id: Written}, {id: why}).
    `name` is the file, for messages."""
    lines, found, faults, begun, begin = text.splitlines(), {}, {}, None, 0
    for number, line in enumerate(lines, 1):
        if "EXERCISE" not in line:
            continue  # quickly, since somebody may hand in a million lines
        start, end = BEGIN.fullmatch(line), END.fullmatch(line)
        if begun and (start or (end and end[1] != begun)):
            faults[begun] = f"{name}:{begin}: {begun} never ends: put its line '// END EXERCISE {begun}' back"
            begun = None
        if start and (start[1] in found or start[1] in faults):
            faults[start[1]] = f"{name}:{number}: {start[1]} is there twice: leave one of them"
        if start:
            begun, begin = start[1], number
        elif end and begun:
            found[begun] = Written(lines[begin:number - 1], begin + 1)
            begun = None
        elif end:
            faults.setdefault(end[1], f"{name}:{number}: {end[1]} ends, but nothing has begun: put its line '// BEGIN EXERCISE {end[1]}' back")
    if begun:
        faults[begun] = f"{name}:{begin}: {begun} never ends: put its line '// END EXERCISE {begun}' back"
    return {id: one for id, one in found.items() if id not in faults}, faults


def absent(id: str, name: str) -> str:
    """Why there is nothing if a file has neither of an exercise's markers."""
    return f"{name} has no lines '// BEGIN EXERCISE {id}' and '// END EXERCISE {id}': put them back"


def around(text: str) -> str:
    """A student's file without what stands between the markers: what the grader does not read."""
    lines, inside = [], False
    for line in text.splitlines():
        if END.fullmatch(line):
            inside = False
        if not inside:
            lines.append(line.rstrip())
        if BEGIN.fullmatch(line):
            inside = True
    return "\n".join(lines)


def graft(text: str, answers: Mapping[str, Written], name: str = "") -> str:
    """The text with an answer in the place of each exercise that has one. With a `name`, compilers take an answer's lines for those of that file."""
    lines, inside = [], False
    for line in text.splitlines():
        begin = BEGIN.fullmatch(line)
        if END.fullmatch(line):
            inside = False
        if not inside:
            lines.append(line)
        if begin and begin[1] in answers:
            inside, answer = True, answers[begin[1]]
            after = answer.line + len(answer.lines)
            lines += [f'#line {answer.line} "{name}"', *answer.lines, f'#line {after} "{name}"'] if name else answer.lines
    return "\n".join(lines) + "\n"
