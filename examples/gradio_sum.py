"""A sum for each page, kept in gradio's state, and a slow counter that shows its progress.

Needs the `gradio` package.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import gradio
from fastapi import FastAPI


def add(number: float, total: float) -> tuple[float, float]:
    """Add to the page's sum."""
    total += number
    return total, total


def count(to: float) -> Iterator[float]:
    """Count slowly."""
    for number in range(int(to)):
        yield number
        time.sleep(0.1)


def double(number: float) -> float:
    """Keep nothing."""
    return 2 * number


with gradio.Blocks() as page:
    total = gradio.State(0)
    number = gradio.Number(label="number")
    result = gradio.Number(label="sum")
    gradio.Button("add").click(add, [number, total], [result, total], api_name="add")
    gradio.Button("count").click(count, number, result, api_name="count")
    gradio.Button("double").click(double, number, result, api_name="double")

page.queue(default_concurrency_limit=None)
app = gradio.mount_gradio_app(FastAPI(), page, "/")
