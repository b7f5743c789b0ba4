"""The opinion page in headless Chromium, in front of records in memory and a real desk."""

import asyncio
import contextlib
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Error as PlaywrightError

from helpers.browser import Page, open_browser, open_page
from helpers.eventually import eventually
from helpers.opinion_page import KEY, OTHER, OTHER_KEY, Opinion, run_opinion
from helpers.opinion_posts import make_post, make_record
from ssop_opinion.core.record import Record

# One browser, one page server and one loop for all of them: a browser takes seconds to start.
pytestmark = [pytest.mark.needs("chromium"), pytest.mark.asyncio(loop_scope="module")]
PHONE = {"width": 360, "height": 740}
LONG_MS = 60_000
EVIL = "<img src=x onerror=\"document.title='x'\"><script>document.title='x'</script>{{7*7}}"


def sample(count: int, now_ms: int) -> list[Record]:
    """Records of a day about a few products, some of them degraded or failed."""
    rng = random.Random(7)
    names = ["X200", "X300", "云端相机", "Support", "Delivery", "Battery pack", "App store"]
    events = ["failure", "complaint", "praise", "news", "launch"]
    found = []
    for number in range(count):
        age = rng.random() ** 1.5 * 23 * 3_600_000
        grim = rng.random() < 0.55 if number % 3 else rng.random() < 0.25
        score = rng.randint(-5, -1) if grim else rng.randint(0, 5)
        label = "negative" if score < 0 else "neutral" if score == 0 else "positive"
        name = rng.choice(names[:3] if grim else names)
        post = make_post(
            f"s{number}", at_ms=now_ms - round(age), region=rng.choice(["east", "west", "north"]),
            product_line=rng.choice(["phones", "cameras"]), text=f"Post {number} about {name}: it is what it is.",
        )  # fmt: skip
        found.append(
            make_record(
                post,
                degraded_level=2 if number % 29 == 0 else 0,
                verdict="failed" if number % 41 == 0 else "ok",
                main_entity=name,
                event_type=rng.choice(events[:2] if grim else events),
                sentiment_score=score,
                sentiment_label=label,
                severity=max(1, -score - 1),
                summary=f"{name} is {'broken' if grim else 'fine'} for somebody.",
                suggested_action="reply" if grim else "ignore",
            )
        )
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Opinion, Any]]:
    async with run_opinion(tmp_path_factory.mktemp("opinion")) as opinion, open_browser() as browser:
        now_ms = time.time_ns() // 1_000_000
        await opinion.sink.write(sample(600, now_ms))
        await opinion.take(make_record(make_post("a", at_ms=now_ms), severity=5), fields_first=True)
        await opinion.take(make_record(make_post("b", at_ms=now_ms), main_entity="X300"), fields_first=True)
        await opinion.take(make_record(make_post("c", at_ms=now_ms), main_entity="云端相机", degraded_level=1))
        await opinion.take(make_record(make_post("e", at_ms=now_ms, text=EVIL), main_entity=EVIL[:32], summary=EVIL))
        yield opinion, browser


@pytest.fixture
def opinion(shared: tuple[Opinion, Any]) -> Opinion:
    return shared[0]


@pytest_asyncio.fixture(loop_scope="module")
async def page(shared: tuple[Opinion, Any]) -> AsyncIterator[Page]:
    async with open_page(shared[1], f"{shared[0].url}/opinion", viewport={"width": 1280, "height": 900}) as page:
        page.set_default_timeout(LONG_MS)
        yield page


async def begin(page: Page, key: str = KEY) -> None:
    """Give the key by keyboard, and wait until everything is there."""
    await page.fill("#key", key)
    await page.keyboard.press("Tab")
    await page.get_by_text("As of").wait_for()


async def until(page: Page, expression: str) -> None:
    """Wait until something holds in the page. Playwright's own way needs `eval`, which the page's policy forbids."""
    async with asyncio.timeout(LONG_MS / 1_000):
        while not await page.evaluate(expression):
            await asyncio.sleep(0.02)


async def test_figures_charts_and_alerts_are_shown(page: Page) -> None:
    await begin(page)
    assert int((await page.inner_text("#n-posts")).replace(",", "")) > 500
    assert await page.locator("#series svg rect.negative").count() > 5
    assert await page.locator("#series svg text").count() > 8
    assert await page.locator("#entities li").count() >= 7
    assert await page.locator("#alerts tbody tr").count() == 4
    assert "degraded: 1" in await page.inner_text("#alerts")
    assert page.faults == []


async def test_nothing_is_shown_for_a_wrong_key(page: Page) -> None:
    await page.fill("#key", "ssop_ann_wrong")
    await page.keyboard.press("Tab")
    await page.get_by_text("KEY_INVALID").wait_for()
    assert await page.inner_text("#n-posts") == "–"


async def test_another_tenants_page_is_another(opinion: Opinion, page: Page) -> None:
    now_ms = time.time_ns() // 1_000_000
    await opinion.take(make_record(make_post("o", at_ms=now_ms, tenant=OTHER, text="only of globex")))
    await begin(page, OTHER_KEY)
    await page.get_by_text("only of globex").wait_for()
    assert "Post 1 about" not in await page.inner_text("body")


async def test_a_post_is_seen_while_it_is_analysed(opinion: Opinion, page: Page) -> None:
    await begin(page)
    await page.get_by_text("Watching.").wait_for()
    record = make_record(make_post("live", at_ms=time.time_ns() // 1_000_000, text="A live post."), sentiment_score=3)
    opinion.desk.field_arrived(record.post, "main_entity", "Lamp", record.analysed_ms)
    first = page.locator("#live li").filter(has_text="A live post.")
    await first.get_by_text("provisional").wait_for()
    await opinion.take(record)
    await first.get_by_text("verdict: ok").wait_for()
    assert await first.count() == 1


async def test_drilling_down_shows_the_post_its_frames_and_the_decision(page: Page) -> None:
    await begin(page)
    await page.locator("#alerts").get_by_role("button", name="X300 / failure", exact=True).click()
    await page.locator("#post[open]").wait_for()
    fields = await page.inner_text("#post-fields")
    assert "sentiment_score" in fields
    assert "same" in fields
    assert "ms" in fields
    assert "r-b" in await page.inner_text("#post-decision")
    await page.keyboard.press("Escape")
    await until(page, "!document.querySelector('#post').open")


async def test_a_degraded_record_is_flagged_where_it_is_shown(page: Page) -> None:
    await begin(page)
    await page.locator("#alerts").get_by_role("button", name="云端相机 / failure", exact=True).click()
    await page.locator("#post-flags").get_by_text("degraded: level 1").wait_for()


async def test_an_alert_is_acknowledged_by_keyboard(opinion: Opinion, page: Page) -> None:
    await begin(page)
    button = page.get_by_role("button", name="Acknowledge the alert about X200 / failure")
    await button.focus()
    await page.keyboard.press("Enter")
    await page.locator("#alerts").get_by_text("ann,").wait_for()

    async def is_kept() -> bool:
        return any(one.acknowledged_by == "ann" for one in await opinion.desk.alerts("acme", limit=9))

    assert await is_kept()


async def test_what_posts_hold_is_text_and_never_markup(page: Page) -> None:
    await begin(page)
    await page.fill("#text", "onerror")
    await page.keyboard.press("Enter")
    await page.get_by_text("1 records found.", exact=True).wait_for()
    await page.locator("#results button").click()
    await page.locator("#post[open]").wait_for()
    assert await page.inner_text("#post-text") == EVIL
    assert await page.locator("img, main script, dialog script").count() == 0
    assert await page.title() == "Opinion · SSOP Mesh"
    assert page.faults == []


async def hold_next(page: Page, pattern: str) -> tuple[asyncio.Event, Callable[[], Awaitable[None]]]:
    """Keep back the answer of the next question that fits: it has been asked; let it through and be seen."""
    is_asked, go_on = asyncio.Event(), asyncio.Event()

    async def keep_back(route: Any) -> None:
        response = await route.fetch()
        is_asked.set()
        await go_on.wait()
        # A page that gave the question up has nobody to answer.
        with contextlib.suppress(PlaywrightError):
            await route.fulfill(response=response)

    async def let_through() -> None:
        go_on.set()
        await page.unroute_all(behavior="wait")
        # What has come to the page before these has been looked at after them.
        for _ in range(5):
            await page.evaluate("fetch(location.href).then((response) => response.text())")

    await page.route(re.compile(pattern), keep_back, times=1)
    return is_asked, let_through


async def test_the_answer_of_an_older_search_does_not_replace_a_newer_ones(page: Page) -> None:
    await begin(page)
    await page.get_by_text("records found").wait_for()
    is_asked, let_through = await hold_next(page, r"/v1/opinion/records\?")
    await page.fill("#text", "Post")
    await page.keyboard.press("Enter")
    await is_asked.wait()
    await page.fill("#text", "onerror")
    await page.keyboard.press("Enter")
    await page.get_by_text("1 records found.", exact=True).wait_for()
    await let_through()
    assert await page.inner_text("#found") == "1 records found."
    assert await page.locator("#results li").count() == 1
    assert page.faults == []


async def test_more_is_asked_for_once_however_often_it_is_pressed(page: Page) -> None:
    await begin(page)
    await until(page, "document.querySelectorAll('#results li').length === 25")
    is_asked, let_through = await hold_next(page, r"offset=25")
    await page.click("#more")
    await is_asked.wait()
    await page.click("#more")
    await until(page, "document.querySelectorAll('#results li').length === 50")
    await let_through()
    assert await page.locator("#results li").count() == 50


async def test_figures_of_the_key_before_are_not_shown(opinion: Opinion, page: Page) -> None:
    await begin(page)
    is_asked, let_through = await hold_next(page, r"/v1/opinion/summary")
    await page.select_option("#hours", "1")
    await is_asked.wait()
    await page.fill("#key", OTHER_KEY)
    await page.keyboard.press("Tab")
    await until(page, "Number(document.querySelector('#n-posts').textContent) <= 1")
    await let_through()
    assert int(await page.inner_text("#n-posts")) <= 1
    assert page.faults == []


async def test_a_key_is_searched_with_though_figures_are_renewed_meanwhile(page: Page) -> None:
    await page.clock.install()
    await begin(page)
    await page.get_by_text("records found").wait_for()
    is_asked, let_through = await hold_next(page, r"/v1/opinion/summary")
    await page.fill("#key", OTHER_KEY)
    await page.keyboard.press("Tab")
    await is_asked.wait()
    # The page would ask for new figures now.
    await page.clock.fast_forward(6_000)
    await let_through()
    await until(page, "Number.parseInt(document.querySelector('#found').textContent) <= 1")


async def test_what_somebody_is_about_to_press_stays_when_figures_come(page: Page) -> None:
    await begin(page)
    is_asked, let_through = await hold_next(page, r"/v1/opinion/summary")
    # By the page itself, which asks for new figures again and again.
    await is_asked.wait()
    await page.locator("#alerts button").first.focus()
    await page.evaluate("document.activeElement.id = 'about-to-be-pressed'")
    await let_through()
    assert await page.evaluate("document.activeElement.id") == "about-to-be-pressed"
    assert page.faults == []


async def test_posts_are_watched_though_other_hours_are_asked_for_meanwhile(page: Page) -> None:
    is_asked, let_through = await hold_next(page, r"/v1/opinion/summary")
    await page.fill("#key", KEY)
    await page.keyboard.press("Tab")
    await is_asked.wait()
    await page.select_option("#hours", "1")
    await page.get_by_text("Watching.").wait_for()
    await page.get_by_text("records found").wait_for()
    await let_through()


async def test_an_entity_of_the_chart_is_searched_for(page: Page) -> None:
    await begin(page)
    await page.locator("#entities button").first.click()
    await page.get_by_text("records found").wait_for()
    name = (await page.input_value("#term")).removeprefix("main_entity:")
    assert name
    await until(page, "document.querySelectorAll('#results li').length > 5")


async def test_the_key_is_kept_in_memory_alone(page: Page) -> None:
    await begin(page)
    kept = await page.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
    )
    assert KEY not in kept


async def test_everything_has_a_name_and_can_be_reached_by_keyboard(page: Page) -> None:
    await begin(page)
    nameless = """[...document.querySelectorAll('input, select, button')].filter((e) =>
        !(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-label'))).length"""
    assert await page.evaluate(nameless) == 0
    assert await page.evaluate("document.querySelector('#series svg').getAttribute('role')") == "img"
    reached: set[str] = set()
    for _ in range(80):
        await page.keyboard.press("Tab")
        reached.add(await page.evaluate("document.activeElement.id"))
    assert {"pause", "text", "term", "fresh"} <= reached


async def test_a_phone_needs_no_sideways_scrolling(page: Page) -> None:
    await page.set_viewport_size(PHONE)
    await begin(page)
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


async def test_dark_and_light_follow_the_system_and_the_button(page: Page) -> None:
    theme = "document.documentElement.dataset.theme"
    await page.emulate_media(color_scheme="dark")
    await until(page, f"{theme} === 'dark'")
    await page.click("#theme")
    assert await page.evaluate(theme) == "light"


async def test_the_page_loads_nothing_from_elsewhere(opinion: Opinion, page: Page) -> None:
    await begin(page)
    assert all(url.startswith((opinion.url, "data:")) for url in page.loaded)
    assert page.policy.startswith("default-src 'none'")


async def test_a_watcher_that_leaves_is_forgotten(opinion: Opinion, shared: tuple[Opinion, Any]) -> None:
    async with open_page(shared[1], f"{opinion.url}/opinion") as page:
        page.set_default_timeout(LONG_MS)
        await begin(page)
        await page.get_by_text("Watching.").wait_for()
    await eventually(lambda: not opinion.desk.feed._watchers, 60.0)
