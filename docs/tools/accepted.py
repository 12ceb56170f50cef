"""The tables of in_pytorch.md: what each argument of the Python functions accepts, and how other packages' tests end. PyTorch is not needed."""
import ast
import json
from collections.abc import Iterator
from pathlib import Path

from bench.results import Refused
from docs.tools import book
from docs.tools.pages import row

PACKAGE = book.ROOT / "python" / "flashbook"
OTHERS = book.ROOT / "python" / "tests" / "others"
MODULES = {"2": ("interface.py", "FLASH_ATTENTION_2"), "3": ("flash_attn_3.py", "FLASH_ATTENTION_3")}
TESTS = {"flash_attention_2": "FlashAttention-2", "flash_attention_3": "FlashAttention-3", "flashinfer": "FlashInfer"}
Row = tuple[str, str, str, str]


def functions(module: Path) -> dict[str, list[str]]:
    """Returns the arguments of a module's FlashAttention functions."""
    found = {}
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("flash_attn_"):
            found[node.name] = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    return found


def declared(name: str, file: Path) -> tuple[Row, ...]:
    """Returns the rows that the package declares under this name."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name and node.value:
            rows: tuple[Row, ...] = ast.literal_eval(node.value)
            return rows
    raise Refused(f"{file.name} has no {name}")


def places(rows: tuple[Row, ...], known: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Yields the function and the argument of every place that the rows describe."""
    for arguments, named, _, _ in rows:
        for argument in arguments.split():
            yield from ((function, argument) for function in
                        (named.split() or [name for name, having in known.items() if argument in having] or ["any function"]))


def accepted(version: str, package: Path = PACKAGE) -> str:
    """Returns the table of FlashAttention-2's or -3's arguments. Raises Refused unless every argument of every function
    has exactly one row."""
    module, name = MODULES[version]
    known, rows = functions(package / module), declared(name, package / "accepted.py")
    described = list(places(rows, known))
    every = {(function, argument) for function, having in known.items() for argument in having}
    for which, wrong in (("no row for", every - set(described)), ("a row, but there is no", set(described) - every),
                         ("two rows for", {place for place in described if described.count(place) > 1})):
        if wrong:
            raise Refused(f"{name} in accepted.py has {which} {', '.join(sorted(f'{argument} of {function}' for function, argument in wrong))}")
    text = row("argument", "of", "", "") + row(*["---"] * 4)
    for *names, verdict, note in rows:
        arguments, of = (", ".join(f"`{word}`" for word in words.split()) for words in names)
        text += row(arguments, of or "all", verdict, note)
    return text


def foreign() -> str:
    """Returns the counts of other packages' tests that were committed."""
    text = row("tests of", "commit", "run", "passed", "failed", "refused") + row("---", "---", *["--:"] * 4)
    for file, name in TESTS.items():
        if (path := OTHERS / f"{file}_h200.json").is_file():
            found = json.loads(path.read_text(encoding="utf-8"))
            counts = [found[key] for key in ("passed", "failed", "refused")]
            link = f"[{name}](../../{path.relative_to(book.ROOT)})"
            text += row(link, str(found.get("source") or "-")[:8], f"{sum(counts):,}", *(f"{count:,}" for count in counts))
    return text
