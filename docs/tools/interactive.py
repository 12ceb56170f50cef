"""The scripts in docs/figures/interactive and the figures that they replace."""
import json
import re
from pathlib import Path
from typing import Any


def scripts_of(folder: Path) -> dict[str, list[str]]:
    """Returns {figure's name: the names of its scripts, in order}: the common script, a script that must precede it
    according to its first line, its data if there are any, and the script that draws it."""
    found = {}
    for file in sorted(folder.glob("*.js")):
        data = folder / f"{file.stem}_data.js"
        text = file.read_text(encoding="utf-8")
        needed = re.findall(r"after (\w+\.js)", text.partition("\n")[0])
        scripts = ["kit.js", *needed, *([data.name] if data.exists() else []), file.name]
        for name in re.findall(r"window\.flashbookFigures\.(\w+) = ", text):
            found[name] = scripts
    return found


def data_of(folder: Path, name: str) -> dict[str, Any]:
    """Returns the data of NAME_data.js."""
    found: dict[str, Any] = json.loads((folder / f"{name}_data.js").read_text(encoding="utf-8").partition(" = ")[2].rstrip(";\n"))
    return found
