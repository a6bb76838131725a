"""Pieces of HTML. Pure text building; whatever comes from outside is escaped here or by who calls."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from lab.reporting.wording import plain


@dataclass(frozen=True)
class Cell:
    """text: as it is read; name, value: of the column in results.csv that it shows, and what stands there."""

    text: str
    kind: str = ""
    name: str = ""
    value: object = ""

    def __str__(self) -> str:
        data = f' data-column="{escape(self.name)}" data-value="{escape(str(self.value))}"' if self.name else ""
        text = f'<span class="mark {self.kind}">{escape(self.text)}</span>' if self.kind else escape(self.text)
        return f"{data}>{text}"


def section(title: str, name: str, *parts: str) -> str:
    """name: its id."""
    return f'<section id="{name}"><h2>{escape(title)}</h2>\n{"".join(parts)}</section>\n'


def paragraph(text: str, kind: str = "") -> str:
    return f"<p{_class(kind)}>{escape(text)}</p>\n"


def table(
    head: Sequence[str], rows: Iterable[Sequence[str | Cell]], text_columns: Iterable[int] = (), kind: str = ""
) -> str:
    """text_columns: aligned left; the others hold numbers."""
    text = set(text_columns)
    classes = [' class="text"' if i in text else "" for i in range(len(head))]
    top = "".join(f"<th{c}>{escape(h)}</th>" for h, c in zip(head, classes, strict=True))
    lines = (
        "".join(
            f"<td{c}{cell if isinstance(cell, Cell) else Cell(cell)}</td>" for cell, c in zip(row, classes, strict=True)
        )
        for row in rows
    )
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f'<div class="scroll"><table{_class(kind)}><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>\n'
    )


def figure(picture: str, caption: str, name: str) -> str:
    """caption: plain text, '' for none."""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure id="{name}">{picture}{below}</figure>\n'


def bullets(items: Iterable[str]) -> str:
    """items: HTML."""
    inner = "".join(f"<li>{item}</li>\n" for item in items)
    return f"<ul>{inner}</ul>\n" if inner else ""


def marked(text: str, kind: str) -> str:
    return f'<span class="mark {kind}">{escape(text)}</span>'


def facts(title: str, known: Mapping[str, Any]) -> str:
    rows = "".join(
        f'<tr><td class="text">{escape(str(key))}</td><td class="wide">{escape(plain(value))}</td></tr>\n'
        for key, value in known.items()
    )
    return f"<div><h3>{escape(title)}</h3><table>{rows}</table></div>\n"


def folded(title: str, *parts: str) -> str:
    return f"<details><summary>{escape(title)}</summary>\n{''.join(parts)}</details>\n"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
