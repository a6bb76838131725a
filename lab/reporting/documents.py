"""A document of headings, sentences, tables and pictures, written as Markdown and as one HTML file. Pure text building."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    """One paragraph."""

    text: str


@dataclass(frozen=True)
class Points:
    texts: Sequence[str]


@dataclass(frozen=True)
class Table:
    """columns: their titles; rows: cells, numbers shown with four digits, NaN as N/A."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]] = field(default_factory=list)


@dataclass(frozen=True)
class Picture:
    """file: beside the document, for Markdown; svg: its text, for HTML."""

    title: str
    file: str
    svg: str


Block = Heading | Text | Points | Table | Picture


def pairs(values: Mapping[str, object]) -> Table:
    return Table(("what", "value"), list(values.items()))


def cell(value: object) -> str:
    if isinstance(value, float):
        if math.isnan(value):
            return "N/A"
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"
    return str(value)


# -- Markdown ---------------------------------------------------------------------------------------------------------


def markdown(blocks: Iterable[Block]) -> str:
    return "\n\n".join(map(_as_markdown, blocks)) + "\n"


def _as_markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Text(text):
            return text
        case Points(texts):
            return "\n".join(f"- {text}" for text in texts)
        case Picture(title, file, _):
            return f"![{title}]({file})"
        case Table(columns, rows):
            lines = [columns, ["---"] * len(columns), *rows]
            return "\n".join("| " + " | ".join(cell(c).replace("|", "\\|") for c in line) + " |" for line in lines)


# -- HTML -------------------------------------------------------------------------------------------------------------

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; display: block; overflow-x: auto; }
td, th { border: 1px solid #ccc; padding: .25em .6em; text-align: left; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th { background: #f2f2f2; }
h2 { border-bottom: 1px solid #ccc; margin-top: 2em; }
figure { margin: 1em 0; } figure svg { max-width: 100%; height: auto; }
@media print { body { max-width: none; } table { display: table; } }
"""


def html(title: str, blocks: Iterable[Block]) -> str:
    """One file that opens offline."""
    body = "\n".join(map(_as_html, blocks))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def _as_html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Text(text):
            return f"<p>{escape(text)}</p>"
        case Points(texts):
            return "<ul>" + "".join(f"<li>{escape(text)}</li>" for text in texts) + "</ul>"
        case Picture(title, _, svg):
            return f"<figure>{svg[max(svg.find('<svg'), 0) :]}<figcaption>{escape(title)}</figcaption></figure>"
        case Table(columns, rows):
            head = "".join(f"<th>{escape(column)}</th>" for column in columns)
            lines = "".join("<tr>" + "".join(map(_html_cell, line)) + "</tr>" for line in rows)
            return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _html_cell(value: object) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    number = ' class="n"' if is_number else ""
    return f"<td{number}>{escape(cell(value))}</td>"
