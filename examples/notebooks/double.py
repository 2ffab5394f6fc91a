"""The notebook of `notebook.py`."""

import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo

    return (mo,)


@app.cell
def _(mo):
    number = mo.ui.number(value=1, label="number")
    number
    return (number,)


@app.cell
def _(mo, number):
    mo.md(f"double: {2 * number.value}")


if __name__ == "__main__":
    app.run()
