"""What students write, marked in the source that is compiled and tested:

    // BEGIN SOLUTION ch01-scores
    for (int c = 0; c < head_dim; ++c) ...    the solution, as it runs
    //~ // TODO: sum the products.             what the hand-out has in its place, without the `//~ `
    // END SOLUTION ch01-scores

In the hand-out the region stands between `// BEGIN EXERCISE ch01-scores: title` and `// END EXERCISE ch01-scores`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

BEGIN = re.compile(r"(\s*)// BEGIN SOLUTION (\S+)\s*")
END = re.compile(r"\s*// END SOLUTION (\S+)\s*")
STUDENT_BEGIN = re.compile(r"\s*// BEGIN EXERCISE ([a-z0-9-]+)\b.*")
STUDENT_END = re.compile(r"\s*// END EXERCISE ([a-z0-9-]+)\s*")
STUB = re.compile(r"(\s*)//~ ?(.*)")
MARKER = re.compile(r"\s*//.*\b(BEGIN|END) SOLUTION\b.*")  # also one that is misspelt


class Fault(Exception):
    """What is wrong with the course or with what is asked of it, in one line that says where."""


class Broken(Fault):
    """A grader that cannot grade, whatever is handed in."""


def code(lines: Iterable[str]) -> list[str]:
    """The lines that are code, without comments and spaces."""
    bare = ("".join(re.sub(r"//.*", "", line).split()) for line in lines)
    return [line for line in bare if line]


@dataclass
class Region:
    id: str
    line: int  # of BEGIN
    indent: str
    solution: list[str] = field(default_factory=list)
    stub: list[str] = field(default_factory=list)

    def telling(self) -> set[str]:
        """Lines of code that are in the solution alone, and long enough to give it away."""
        return {line for line in set(code(self.solution)) - set(code(self.stub)) if len(line) > 25}


def parse(text: str, name: str) -> list[str | Region]:
    """The text as a list of lines and, where one stood, Regions. `name` is the file, for messages."""
    parts: list[str | Region] = []
    region: Region | None = None
    seen: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{name}:{number}"
        begin, end, stub = BEGIN.fullmatch(line), END.fullmatch(line), STUB.fullmatch(line)
        if begin:
            if region:
                raise Fault(f"{where}: {begin[2]} begins inside {region.id}, which has not ended")
            if begin[2] in seen:
                raise Fault(f"{where}: {begin[2]} is already in line {seen[begin[2]]}")
            region = Region(begin[2], number, begin[1])
            seen[region.id] = number
        elif end:
            if not region:
                raise Fault(f"{where}: {end[1]} ends, but nothing has begun")
            if end[1] != region.id:
                raise Fault(f"{where}: {end[1]} ends, but it is {region.id} that began in line {region.line}")
            if not any(line.strip() for line in region.solution):
                raise Fault(f"{name}:{region.line}: {region.id} has no solution")
            if not region.stub:
                raise Fault(f"{name}:{region.line}: {region.id} has no stub: lines that begin with //~")
            parts.append(region)
            region = None
        elif MARKER.fullmatch(line):
            raise Fault(f"{where}: not a marker: write // BEGIN SOLUTION id or // END SOLUTION id")
        elif stub:
            if not region:
                raise Fault(f"{where}: a stub line outside a solution")
            region.stub.append((stub[1] + stub[2]).rstrip())
        else:
            if region:
                region.solution.append(line)
            else:
                parts.append(line)
    if region:
        raise Fault(f"{name}:{region.line}: {region.id} never ends")
    return parts


def regions(text: str, name: str) -> list[Region]:
    return [part for part in parse(text, name) if isinstance(part, Region)]


@dataclass
class Written:
    """What a student wrote in the place of one exercise."""
    lines: list[str]
    line: int  # of the first of them, in the student's file


def written(text: str, name: str) -> tuple[dict[str, Written], dict[str, str]]:
    """What stands between a student's markers, and why there is nothing for the markers that make no pair: ({id: Written}, {id: why}).
    `name` is the file, for messages."""
    lines, found, faults, begun, begin = text.splitlines(), {}, {}, None, 0
    for number, line in enumerate(lines, 1):
        if "EXERCISE" not in line:
            continue  # quickly, since somebody may hand in a million lines
        start, end = STUDENT_BEGIN.fullmatch(line), STUDENT_END.fullmatch(line)
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
        if STUDENT_END.fullmatch(line):
            inside = False
        if not inside:
            lines.append(line.rstrip())
        if STUDENT_BEGIN.fullmatch(line):
            inside = True
    return "\n".join(lines)


def cut(text: str, name: str, titles: Mapping[str, str], solved: Collection[str] = (), answers: Mapping[str, Written] | None = None) -> str:
    """The text as students get it: each region's stub in the place of its solution. Those in `solved` keep the solution, those in
    `answers`, by id, get what was Written there, with the line numbers of the student's file. `titles` has the title of each region's
    exercise."""
    lines = []
    for part in parse(text, name):
        if not isinstance(part, Region):
            lines.append(part)
            continue
        if part.id not in titles:
            raise Fault(f"{name}:{part.line}: {part.id} belongs to no exercise: add it to exercises.json")
        lines.append(f"{part.indent}// BEGIN EXERCISE {part.id}: {titles[part.id]}")
        answer = (answers or {}).get(part.id)
        if answer:
            lines += [f'#line {answer.line} "{name}"', *answer.lines, f'#line {answer.line + len(answer.lines)} "{name}"']
        else:
            lines += part.solution if part.id in solved else part.stub
        lines.append(f"{part.indent}// END EXERCISE {part.id}")
    return "\n".join(lines) + "\n"
