"""Pages in headless Chromium, each in a profile of its own: of `gradio`, `streamlit`, `shiny` or `marimo`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from playwright.async_api import Page, async_playwright, expect
from sessions import MORE, SECONDS, URL, play_all

TURNS = 4


async def saved(page: Page, button: Any) -> str:
    """What a click on a button downloads."""
    async with page.expect_download() as started:
        await button.click()
    download = await started.value
    text: str = await asyncio.to_thread(Path(await download.path()).read_text)
    return text


async def gradio(page: Page, number: int) -> None:
    """A page's sum."""
    await page.get_by_label("number").fill(str(number))
    for turn in range(1, TURNS + 1):
        await page.get_by_role("button", name="add").click()
        await expect(page.get_by_label("sum")).to_have_value(str(number * turn))


async def streamlit(page: Page, number: int) -> None:
    """A file that is uploaded, measured, and downloaded again."""
    for turn in range(1, TURNS + 1):
        text = "x" * (100 * number + turn)
        await page.locator("input[type=file]").set_input_files(
            {"name": f"f{turn}.txt", "mimeType": "text/plain", "buffer": text.encode()}
        )
        await expect(page.get_by_text(f"size: {len(text)}")).to_be_visible()
        assert await saved(page, page.get_by_role("button", name="the same file")) == text


async def shiny(page: Page, number: int) -> None:
    """A sum, and a download of it."""
    await page.locator("#number").fill(str(number))
    await page.locator("#number").press("Tab")
    for turn in range(1, TURNS + 1):
        await page.locator("#add").click()
        await expect(page.locator("#total")).to_have_text(str(number * turn))
        assert await saved(page, page.locator("#save")) == str(number * turn)


async def marimo(page: Page, number: int) -> None:
    """A number, its double, and a download of that."""
    for turn in range(1, TURNS + 1):
        value = 100 * number + turn
        await page.locator("marimo-number input").fill(str(value))
        await page.locator("marimo-number input").press("Enter")
        await expect(page.get_by_text(f"double: {2 * value}")).to_be_visible()
        assert await saved(page, page.locator("marimo-download a, marimo-download button").first) == str(2 * value)


async def main() -> None:
    """One browser; each session has a profile of its own."""
    play = {"gradio": gradio, "streamlit": streamlit, "shiny": shiny, "marimo": marimo}[MORE[0]]
    expect.set_options(timeout=SECONDS * 1000)
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=os.environ["CHROMIUM"], args=["--no-sandbox"])

        async def one(number: int) -> None:
            context = await browser.new_context(accept_downloads=True)
            try:
                page = await context.new_page()
                page.set_default_timeout(SECONDS * 1000)
                await page.goto(URL)
                await play(page, number + 1)
            finally:
                await context.close()

        await play_all(one)


asyncio.run(main())
