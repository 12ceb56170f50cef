"""Sources from Doxygen's XML: highlighted lines, and where each name is defined."""
import html
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


@dataclass(frozen=True)
class Definition:
    kind: str  # function, variable, enumvalue, namespace, struct ...
    name: str  # including its namespaces
    declaration: str
    file: str  # relative to the repository's root
    line: int  # 0 for a file
    address: str  # its address in the reference


class Piece(NamedTuple):
    """Part of a line."""

    look: str  # keyword, comment, ..., or normal
    text: str
    meant: Definition | None  # the definition that the name refers to


def text_of(element: ElementTree.Element) -> str:
    """Returns the text of an element, whose blanks are elements too."""
    inner = "".join((" " if child.tag == "sp" else text_of(child)) + (child.tail or "") for child in element)
    return (element.text or "") + inner


class Sources:
    def __init__(self, folder: Path) -> None:
        self.definitions: dict[str, Definition] = {}  # keyed by Doxygen's id
        self.lines: dict[str, dict[int, ElementTree.Element]] = {}  # keyed by file and line number
        for file in sorted(folder.glob("*.xml")):
            for compound in ElementTree.parse(file).getroot().iter("compounddef"):
                self.read(compound)

    def read(self, compound: ElementTree.Element) -> None:
        place = compound.find("location")
        if place is None:
            return
        if compound.get("kind") == "file":
            self.lines[place.get("file", "")] = {int(line.get("lineno", "0")): line for line in compound.iter("codeline")}
        self.define(compound, place, compound.findtext("compoundname", ""), f"{compound.get('id')}.html")
        for member in compound.iter("memberdef"):
            place = member.find("location")
            if place is None:
                continue
            self.define(member, place, member.findtext("qualifiedname", ""), html_address(member))
            for value in member.iter("enumvalue"):
                self.define(value, place, f"{member.findtext('qualifiedname')}::{value.findtext('name')}", html_address(value))

    def define(self, element: ElementTree.Element, place: ElementTree.Element, name: str, address: str) -> None:
        definition = element.find("definition")
        declaration = text_of(definition) + element.findtext("argsstring", "") if definition is not None else name
        declaration = " ".join(declaration.split())  # Doxygen 1.17 breaks some of these lines
        file, line = place.get("bodyfile", place.get("file", "")), place.get("bodystart", place.get("line", "0"))
        kind = element.get("kind", element.tag)
        self.definitions[element.get("id", "")] = Definition(kind, name, declaration, file, int(line), address)

    def pieces(self, file: str, number: int) -> Iterator[Piece]:
        """Yields a line of a source."""
        for highlight in self.lines[file][number].iter("highlight"):
            look = highlight.get("class", "normal")
            yield Piece(look, highlight.text or "", None)
            for child in highlight:
                text = " " if child.tag == "sp" else text_of(child)
                yield Piece(look, text, self.definitions.get(child.get("refid", "")))
                yield Piece(look, child.tail or "", None)


def html_address(element: ElementTree.Element) -> str:
    """Maps an id PAGE_1ANCHOR in Doxygen's XML to its address in Doxygen's HTML."""
    page, _, anchor = element.get("id", "").rpartition("_1")
    return f"{page}.html#{anchor}"


def escaped(text: str) -> str:
    return html.escape(text, quote=False)
