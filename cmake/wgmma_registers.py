#!/usr/bin/env python3
"""Fails if a kernel overwrites registers that a wgmma in flight still uses.

    cuobjdump -sass OBJECT | wgmma_registers.py

A wgmma (HGMMA, QGMMA, IGMMA in the machine code) continues to run after it is issued. Until WARPGROUP.DEPBAR has waited
for its group, the registers of its left operand and of its accumulator must not be written. nvcc assumes that operands
are read at issue, and may reuse their registers before the wait; ptxas reports nothing, and the result is wrong now
and then. This script follows every path through a kernel's code, tracks the groups in flight, and reports each write to
their registers.

It also reports a left operand that is loaded before a loop and computed inside it: two operands, Q and P, share
registers.
"""
import functools
import itertools
import re
import sys

LINE = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
GMMA = re.compile(r"[A-Z]GMMA\.64x(\d+)x\d+\.(F32|F16|S32)\S* R(\d+), (?:R(\d+)|gdesc)")
TARGET = re.compile(r"0x([0-9a-f]+)\s*$")
JOIN = re.compile(r"BSSY\S* (B\d+), 0x([0-9a-f]+)")
FRAGMENT = 4  # registers of a left operand
WRITES_NOTHING = re.compile(r"ST|RED|BAR|BRA|BSYNC|BSSY|EXIT|UTMA|SYNCS\.ARRIVE|WARP|MEMBAR|FENCE|NOP|UR2UP|R2UR|CALL|RET|USET|DEPBAR|ERRBAR|CCTL")


def functions(lines):
    """Returns (name, {address: instruction}) of each function; the instructions come without their encodings."""
    name, code = None, {}
    for line in lines:
        if "Function :" in line:
            if code:
                yield name, code
            name, code = line.split(":", 1)[1].strip(), {}
        elif match := LINE.match(line):
            code[int(match[1], 16)] = match[2]
    if code:
        yield name, code


@functools.cache
def written(text):
    """Returns the registers that an instruction other than wgmma writes."""
    opcode, _, operands = text.partition(" ")
    if WRITES_NOTHING.match(opcode):
        return frozenset()
    for operand in operands.split(","):
        operand = operand.strip()
        if re.fullmatch(r"U?P(\d|T)", operand):
            continue  # may also be a predicate that it sets
        match = re.match(r"R(\d+)", operand)
        if not match:
            break
        wide = re.search(r"\.(128|64|WIDE|M88\.4|MT88\.4|M88\.2|MT88\.2)\b", opcode)
        count = {"128": 4, "M88.4": 4, "MT88.4": 4, None: 1}.get(wide and wide[1], 2)
        return frozenset(range(int(match[1]), int(match[1]) + count))
    return frozenset()


def successors(address, following, text, joins):
    """Returns the addresses at which execution may continue. `joins` has the addresses at which each BSSY barrier
    reconverges threads."""
    predicated = text.startswith("@") and not text.startswith("@PT")
    opcode = re.sub(r"^@\S+\s+", "", text)
    target = TARGET.search(text)
    if opcode.startswith(("EXIT", "RET", "BRX", "KILL")):
        return [following] if predicated else []
    if opcode.startswith("BRA") and target:
        certain = not predicated and re.match(r"BRA(\.\S+)? (0x|`)", opcode) and ".DIV" not in opcode and ".ANY" not in opcode
        return [int(target[1], 16)] + ([] if certain else [following])
    if opcode.startswith("BSYNC"):
        return [following, *joins.get(opcode.split()[1], ())]
    return [following]


def flow(code):
    """Returns the addresses at which execution may continue after each instruction. A BSYNC jumps to the
    target of any BSSY of its barrier register that is open at that point: several may use one register in turn."""
    addresses = sorted(code)
    after = dict(itertools.pairwise(addresses))
    onward, opened, todo = {}, {address: set() for address in addresses}, addresses[:1]  # opened: (barrier, reconvergence address)
    while todo:
        address = todo.pop()
        joins = {}
        for barrier, meeting in opened[address]:
            joins.setdefault(barrier, set()).add(meeting)
        onward[address] = [to for to in successors(address, after.get(address), code[address], joins) if to in code]
        left = opened[address]
        if match := JOIN.search(code[address]):
            left = {pair for pair in left if pair[0] != match[1]} | {(match[1], int(match[2], 16))}
        for to in onward[address]:
            if to not in onward or not left <= opened[to]:
                opened[to] |= left
                todo.append(to)
    return {address: onward.get(address, []) for address in addresses}


def shared_operands(code, onward):
    """Returns (address, fault) for left operands that one path loads and another computes."""
    before = {address: [] for address in code}
    for address, targets in onward.items():
        for target in targets:
            before[target].append(address)
    definitions = {}  # keyed by register
    for address, text in code.items():
        for register in written(re.sub(r"^@\S+\s+", "", text)):
            definitions.setdefault(register, set()).add(address)
    for address, text in code.items():
        match = GMMA.match(text)
        if not match or not match[4]:
            continue
        register = int(match[4])
        reaching, seen, todo = set(), set(), list(before[address])
        while todo:
            at = todo.pop()
            if at in seen:
                continue
            seen.add(at)
            if at in definitions.get(register, ()):
                reaching.add(code[at].split()[0].startswith("LD"))
                continue
            todo.extend(before[at])
        if len(reaching) > 1:
            yield address, f"R{register} of {text} is loaded on one path and computed on another: two operands share it"


@functools.cache
def uses(groups):
    """Returns (register, "operand" or "accumulator", its wgmma) for all groups."""
    return frozenset(use for group in groups for use in group)


def faults(code):
    """Returns (address, fault) for one function."""
    if not any("GMMA" in text for text in code.values()):
        return []
    onward = flow(code)
    unconditional = {address: re.sub(r"^@\S+\s+", "", text) for address, text in code.items()}
    found, seen = dict(shared_operands(code, onward)), set()
    todo = [(min(code), (), frozenset(), ())]  # address, committed groups in flight, registers of the open group, target of each BSYNC
    while todo:
        address, groups, open_group, joins = state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        bare, in_flight = unconditional[address], uses((*groups, open_group))
        if match := GMMA.match(bare):
            accumulator, left = int(match[3]), match[4]
            results = range(accumulator, accumulator + int(match[1]) // (4 if match[2] == "F16" else 2))
            operands = range(int(left), int(left) + FRAGMENT) if left else ()
            for register, role, issued in in_flight | {(register, "operand", address) for register in operands}:
                if role == "operand" and register in results:
                    found[address] = f"R{register} is the accumulator of {bare}, and a left operand of the wgmma at {issued:04x}"
            open_group |= {(register, "operand", address) for register in operands} | {(register, "accumulator", address) for register in results}
            if "gsb0" in bare:
                groups, open_group = (*groups, open_group), frozenset()
        elif match := re.match(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x([0-9a-f]+)", bare):
            groups = groups[max(len(groups) - int(match[1], 16), 0):]
        else:
            registers = written(bare)
            for register, role, issued in sorted((use for use in in_flight if use[0] in registers), reverse=True) if registers else ():
                found[address] = f"{bare} writes R{register}, {role} of the wgmma at {issued:04x}, before any wait for it"
        targets = onward[address]
        if match := JOIN.match(bare):
            joins = tuple(sorted({**dict(joins), match[1]: int(match[2], 16)}.items()))
        elif bare.startswith("BSYNC") and (target := dict(joins).get(bare.split()[1])) in code:
            targets = [target]  # excluding those of another BSSY with the same barrier
            joins = tuple(pair for pair in joins if pair[1] != target)
        todo.extend((target, groups, open_group, joins) for target in targets)
    return sorted(found.items())


def main():
    bad = 0
    for name, code in functions(sys.stdin):
        for address, what in faults(code):
            print(f"{name}\n  {address:04x}: {what}", file=sys.stderr)
            bad = 1
    sys.exit(bad)


if __name__ == "__main__":
    main()
