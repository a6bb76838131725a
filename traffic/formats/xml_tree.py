"""XML as elements that know their line. No document type, so no entities to expand; bounded depth and number."""

from __future__ import annotations

from dataclasses import dataclass, field
from xml.parsers import expat

from traffic.errors import TrafficError
from traffic.formats.source import MAX_OPERATIONS, Source

_MAX_DEPTH = 16


@dataclass(frozen=True)
class Element:
    tag: str
    line: int
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)


def parse_xml(source: Source) -> Element:
    """The root. Raises TrafficError, naming the line, for what is no XML or has a document type."""
    source.require_size()
    parser = expat.ParserCreate()
    root: list[Element] = []
    above: list[Element] = []
    n_elements = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal n_elements
        n_elements += 1
        element = Element(tag, parser.CurrentLineNumber, attributes)
        if len(above) >= _MAX_DEPTH:
            raise source.refusal(element.line, f"<{tag}> is nested {_MAX_DEPTH} deep: nothing in such files is")
        if n_elements > MAX_OPERATIONS:
            raise source.refusal(element.line, f"there are more than {MAX_OPERATIONS} elements: use a smaller file")
        (above[-1].children if above else root).append(element)
        above.append(element)

    def end(_: str) -> None:
        above.pop()

    def doctype(*_: object) -> None:
        raise source.refusal(parser.CurrentLineNumber, "<!DOCTYPE is not read: take it out")

    parser.StartElementHandler, parser.EndElementHandler, parser.StartDoctypeDeclHandler = start, end, doctype
    try:
        parser.Parse(source.data, True)
    except expat.ExpatError as error:
        raise source.refusal(error.lineno, f"is not XML: {expat.errors.messages[error.code]}") from None
    except TrafficError:
        raise
    except (LookupError, ValueError) as error:
        # Of an encoding that Python does not know.
        raise source.refusal(1, f"is not XML: {error}") from None
    return root[0]
