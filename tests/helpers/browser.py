"""Headless Chromium by Playwright, with the browser of the system."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from playwright.async_api import ConsoleMessage, async_playwright

_PROGRAMS: Final = ("chromium-headless-shell", "chromium", "google-chrome")
Page = Any
"""A page of Playwright, and: `faults`, what it complained of; `loaded`, what it fetched; `policy`, its CSP."""


def find_chromium() -> str | None:
    """The browser's program; None where there is none."""
    return next((path for name in _PROGRAMS if (path := shutil.which(name))), None)


@asynccontextmanager
async def open_browser() -> AsyncIterator[Any]:
    """A browser, until the block ends."""
    async with async_playwright() as playwright:
        # Tests run as root in containers, where Chromium's own sandbox can't be set up.
        browser = await playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def open_page(browser: Any, url: str, **options: Any) -> AsyncIterator[Page]:
    """A page with storage of its own, until the block ends. Errors on its console are its `faults`."""
    context = await browser.new_context(**options)
    try:
        page: Any = await context.new_page()
        page.faults, page.loaded = [], []

        def note(message: ConsoleMessage) -> None:
            if message.type in {"error", "warning"}:
                page.faults.append(message.text)

        page.on("console", note)
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.on("request", lambda request: page.loaded.append(request.url))
        page.set_default_timeout(60_000)
        response = await page.goto(url)
        page.policy = response.headers["content-security-policy"]
        yield page
    finally:
        await context.close()
