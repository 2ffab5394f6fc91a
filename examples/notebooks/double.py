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
    double = 2 * number.value
    mo.hstack([mo.md(f"double: {double}"), mo.download(str(double).encode(), filename="double.txt")])


if __name__ == "__main__":
    app.run()
