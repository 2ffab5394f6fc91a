"""A sum for each page of a Shiny app, and a download of it.

Needs the `shiny` package.
"""

from __future__ import annotations

from collections.abc import Iterator

from shiny import App, Inputs, Outputs, Session, reactive, render, ui

page = ui.page_fluid(
    ui.input_numeric("number", "number", 0),
    ui.input_action_button("add", "add"),
    ui.output_text("total"),
    ui.download_button("save", "save"),
)


def server(inputs: Inputs, _outputs: Outputs, _session: Session) -> None:
    """One session."""
    sum_so_far = reactive.value(0)

    @reactive.effect
    @reactive.event(inputs.add)
    def _() -> None:
        sum_so_far.set(sum_so_far.get() + inputs.number())

    @render.text
    def total() -> str:
        return str(sum_so_far.get())

    @render.download(filename="sum.txt")
    def save() -> Iterator[str]:
        with reactive.isolate():
            yield str(sum_so_far.get())


app = App(page, server)
