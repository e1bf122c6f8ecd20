"""Writes the table of rights into docs/security.md: what each API asks for, from the registration lines of the handlers.

`./dev docs` runs it. A test compares the page with the handlers.
"""

from __future__ import annotations

from pathlib import Path

from klamm_broker.api import registry

PAGE = Path(__file__).parents[2] / "docs/security.md"
BEGIN, END = "<!-- rights of APIs: made by `./dev docs` -->\n", "<!-- end of the rights of APIs -->\n"


def main() -> None:
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")


def page(text: str) -> str:
    """Returns the page with the table between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


def table() -> str:
    """Returns the table as Markdown. An API without a declaration has an empty row."""
    rows = ["| key | API | operation | on | when |", "|---|---|---|---|---|"]
    for key, api in registry.load().items():
        name = "".join(word.capitalize() for word in api.name.split("_"))
        if not api.needs:
            rows.append(f"| {key} | {name} | {'none' if api.needs is not None else ''} |  |  |")
        for position, need in enumerate(api.needs or ()):
            which = f"{key} | {name}" if position == 0 else " | "
            rows.append(f"| {which} | {need.operation.name} | {need.kind.name} | {need.note} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
