"""Reads and replaces the marked region of an exercise's file, which students edit:

    // BEGIN EXERCISE ch01-scores: One score a thread
    // TODO: sum the products.
    // END EXERCISE ch01-scores

The solutions are kept in course/solutions, which is not handed out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

BEGIN = re.compile(r"\s*// BEGIN EXERCISE ([a-z0-9-]+)\b.*")
END = re.compile(r"\s*// END EXERCISE ([a-z0-9-]+)\s*")


class Fault(Exception):
    """A mistake in the course or in a request, described in one line that says where."""


class Broken(Fault):
    """The grader itself cannot grade, whatever was submitted."""


def code(lines: Iterable[str]) -> list[str]:
    """Returns the lines of code, without comments and spaces."""
    bare = ("".join(re.sub(r"//.*", "", line).split()) for line in lines)
    return [line for line in bare if line]


@dataclass
class Written:
    """The lines between one exercise's markers."""
    lines: list[str]
    line: int = 1  # line number of the first one in its file


def written(text: str, name: str) -> tuple[dict[str, Written], dict[str, str]]:
    """Returns ({id: Written}, {id: fault}) for each pair of markers in a student's file, and for each marker without its pair. `name`: the
    file, for messages."""
    lines, found, faults, begun, begin = text.splitlines(), {}, {}, None, 0
    for number, line in enumerate(lines, 1):
        if "EXERCISE" not in line:
            continue  # keeps a file of a million lines fast
        start, end = BEGIN.fullmatch(line), END.fullmatch(line)
        if begun and (start or (end and end[1] != begun)):
            faults[begun] = f"{name}:{begin}: {begun} never ends: put the line '// END EXERCISE {begun}' back"
            begun = None
        if start and (start[1] in found or start[1] in faults):
            faults[start[1]] = f"{name}:{number}: {start[1]} occurs twice: keep one of them"
        if start:
            begun, begin = start[1], number
        elif end and begun:
            found[begun] = Written(lines[begin:number - 1], begin + 1)
            begun = None
        elif end:
            faults.setdefault(end[1], f"{name}:{number}: {end[1]} ends but never began: put the line '// BEGIN EXERCISE {end[1]}' back")
    if begun:
        faults[begun] = f"{name}:{begin}: {begun} never ends: put the line '// END EXERCISE {begun}' back"
    return {id: one for id, one in found.items() if id not in faults}, faults


def absent(id: str, name: str) -> str:
    return f"{name} has no lines '// BEGIN EXERCISE {id}' and '// END EXERCISE {id}': put them back"


def around(text: str) -> str:
    """Returns a student's file without its regions: the part that the grader ignores."""
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
    """Returns the text with each answer in place of its region. With a `name`, #line directives make compilers report an answer's lines as that
    file's."""
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
