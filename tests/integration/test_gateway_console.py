"""The console page in headless Chromium, in front of a scripted router."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from helpers.answers import PERSON, accounting_chunk, decision_chunk, document_chunks, status_chunk
from helpers.browser import Page, open_browser, open_page
from helpers.eventually import eventually
from helpers.gateway import KEY, Gateway, run_gateway
from helpers.machine import stretched
from helpers.scripted_router import ScriptedRouter, abort, as_script, serve
from ssop.v1 import mesh_pb2
from ssop.v1 import router_pb2 as pb
from ssop.v1.errors_pb2 import ErrorReason
from ssop_chassis.errors import MeshError
from ssop_codec import FrameKind, mesh_chunk

# One browser, one edge and one loop for all of them: a browser takes seconds to start.
pytestmark = [pytest.mark.needs("chromium"), pytest.mark.asyncio(loop_scope="module")]
PHONE = {"width": 360, "height": 740}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[tuple[ScriptedRouter, Gateway, Any]]:
    router = ScriptedRouter(as_script([]))
    with tempfile.TemporaryDirectory(prefix="edge") as folder:
        address = f"unix:{folder}/r.sock"
        async with serve(router, address), run_gateway(address) as gateway, open_browser() as browser:
            yield router, gateway, browser


@pytest.fixture
def scripted(shared: tuple[ScriptedRouter, Gateway, Any]) -> ScriptedRouter:
    router = shared[0]
    router.unary = {"ListModels": pb.ListModelsResponse(models=[pb.ModelInfo(model="small")])}
    router.requests.clear()
    return router


@pytest.fixture
def gateway(shared: tuple[ScriptedRouter, Gateway, Any]) -> Gateway:
    return shared[1]


@pytest_asyncio.fixture(loop_scope="module")
async def page(shared: tuple[ScriptedRouter, Gateway, Any], scripted: ScriptedRouter) -> AsyncIterator[Page]:
    async with open_page(shared[2], f"{shared[1].url}/console") as page:
        yield page


async def until(page: Page, expression: str) -> None:
    """Wait until something holds in the page. Playwright's own way needs `eval`, which the page's policy forbids."""
    async with asyncio.timeout(60):
        while not await page.evaluate(expression):
            await asyncio.sleep(0.02)


def told(*, level: int = 0) -> list[bytes]:
    """Decision and status with everything that the page shows."""
    decision = mesh_pb2.Decision(
        request_id="r",
        tier=mesh_pb2.TIER_LITE,
        tier_reason=mesh_pb2.TIER_REASON_SHORT_INSTRUCTION,
        node="local",
        model="small",
        cache_reason=mesh_pb2.CACHE_REASON_MISS,
        score=0.25,
        threshold=0.5,
    )
    status = mesh_pb2.DeliveryStatus(
        state=mesh_pb2.DELIVERY_STATE_DEGRADED if level else mesh_pb2.DELIVERY_STATE_OK,
        degraded_level=level,
        degraded_reason=mesh_pb2.DEGRADED_REASON_NODES_FAILED if level else mesh_pb2.DEGRADED_REASON_UNSPECIFIED,
        fallback_used=level > 0,
        constraint_mode=mesh_pb2.CONSTRAINT_MODE_FULL,
        passages=[mesh_pb2.PassageRef(collection="faq", document_id="returns.md", passage=3, score=0.5)],
    )
    return [
        mesh_chunk(FrameKind.DECISION, decision.SerializeToString()),
        mesh_chunk(FrameKind.STATUS, status.SerializeToString()),
    ]


async def ask(page: Page) -> None:
    """Give the key and send the form by keyboard."""
    await page.fill("#key", KEY)
    await page.focus("#prompt")
    await page.keyboard.press("Control+Enter")


async def ask_for_one_field(page: Page, scripted: ScriptedRouter) -> asyncio.Event:
    """Ask, and wait until the first field is there; the others come once what is returned is set."""
    go_on = asyncio.Event()
    chunks = document_chunks(PERSON)

    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        for chunk in [*told(), *chunks[:2]]:
            yield chunk
        await go_on.wait()
        for chunk in [*chunks[2:], accounting_chunk()]:
            yield chunk

    scripted.script = script
    await ask(page)
    await page.get_by_text("1 field is complete.").wait_for()
    return go_on


async def cells(page: Page) -> list[list[str]]:
    """Path and value of each field that is shown."""
    rows = await page.locator("#fields tbody tr").all()
    return [(await row.locator("th, td").all_inner_texts())[:2] for row in rows]


async def test_the_first_field_is_visible_within_100_ms_of_its_frame(page: Page, scripted: ScriptedRouter) -> None:
    sent_ms: list[float] = []
    is_seen = asyncio.Event()
    chunks = document_chunks(PERSON)

    async def script(request: Any, context: Any) -> AsyncIterator[bytes]:
        for chunk in [*told(), *chunks[:2]]:
            yield chunk
        sent_ms.append(time.time() * 1000)
        await is_seen.wait()
        is_seen.clear()
        for chunk in [*chunks[2:], accounting_chunk()]:
            yield chunk

    scripted.script = script
    await page.evaluate(
        """() => {
          window.seenMs = [];
          const body = document.querySelector("#fields tbody");
          new MutationObserver(() => {
            if (body.rows.length === 1 && body.rows[0].cells[1].textContent === "Ada") {
              requestAnimationFrame(() => window.seenMs.push(Date.now()));
            }
          }).observe(body, { childList: true, subtree: true, characterData: true });
        }"""
    )
    for count in range(1, 6):
        await ask(page)
        await until(page, f"window.seenMs.length === {count}")
        is_seen.set()
        await page.get_by_text("verdict: ok").wait_for()
        await until(page, "!document.querySelector('#send').disabled")
    seen_ms = await page.evaluate("window.seenMs")
    waits_ms = sorted(seen - sent for seen, sent in zip(seen_ms, sent_ms, strict=True))
    print(f"first field visible after {waits_ms} ms")
    assert waits_ms[2] < stretched(100)


async def test_fields_fill_in_as_frames_arrive_and_the_rest_is_told(page: Page, scripted: ScriptedRouter) -> None:
    go_on = await ask_for_one_field(page, scripted)
    assert await cells(page) == [["/name", "Ada"]]
    go_on.set()
    await page.get_by_text("verdict: ok").wait_for()
    assert await cells(page) == [["/name", "Ada"], ["/age", "36"], ["/tags/0", "math"], ["/tags/1", "engines"]]
    assert "short instruction" in await page.inner_text("#decision")
    assert "faq / returns.md, passage 3" in await page.inner_text("#passages")
    assert "tokens out" in await page.inner_text("#accounting")
    assert "schema held: full" in await page.inner_text("#flags")
    assert page.faults == []


async def test_a_degraded_answer_is_flagged(page: Page, scripted: ScriptedRouter) -> None:
    scripted.script = as_script([*told(level=2), *document_chunks(PERSON), accounting_chunk()])
    await ask(page)
    await page.get_by_text("degraded: level 2, nodes failed").wait_for()


async def test_an_answer_that_becomes_degraded_half_way_is_flagged_once(page: Page, scripted: ScriptedRouter) -> None:
    chunks = document_chunks(PERSON)
    scripted.script = as_script([*told(), *chunks[:4], told(level=2)[1], *chunks[4:], accounting_chunk()])
    await ask(page)
    await page.get_by_text("verdict: ok").wait_for()
    flags = await page.inner_text("#flags")
    assert "degraded: level 2" in flags
    assert "not degraded" not in flags
    assert await page.locator("#passages li").count() == 1


async def test_plain_text_is_shown_as_it_comes(page: Page, scripted: ScriptedRouter) -> None:
    scripted.script = as_script([*told(), *document_chunks("Good day.", schema=None), accounting_chunk()])
    await page.select_option("#example", "text")
    await ask(page)
    await page.get_by_text("verdict: ok").wait_for()
    assert await page.inner_text("#text") == "Good day."
    assert not scripted.requests[-1].prompt.HasField("output_schema")


async def test_what_a_model_writes_is_text_and_never_markup(page: Page, scripted: ScriptedRouter) -> None:
    evil = {"name": "<img src=x onerror=alert(1)>", "age": 1, "tags": ["<script>document.title='x'</script>"]}
    scripted.script = as_script([*told(), *document_chunks(evil), accounting_chunk()])
    await ask(page)
    await page.get_by_text("verdict: ok").wait_for()
    assert (await cells(page))[0] == ["/name", evil["name"]]
    assert await page.locator("img, #fields script").count() == 0
    assert page.faults == []


async def test_escape_cancels_the_generation(page: Page, scripted: ScriptedRouter) -> None:
    async def hang(request: Any, context: Any) -> AsyncIterator[bytes]:
        for chunk in [decision_chunk(), status_chunk(), *document_chunks(PERSON)[:2]]:
            yield chunk
        await asyncio.Event().wait()

    scripted.script = hang
    await ask(page)
    await page.get_by_text("1 field is complete.").wait_for()
    await page.keyboard.press("Escape")
    await eventually(lambda: scripted.in_flight == 0)
    await page.get_by_text("Stopped.").wait_for()


async def test_errors_are_named(page: Page, scripted: ScriptedRouter) -> None:
    async def refuse(request: Any, context: Any) -> AsyncIterator[bytes]:
        await abort(context, MeshError(ErrorReason.ERROR_REASON_RATE_LIMITED, "slow down", retry_after_ms=1_500))
        yield b""

    scripted.script = refuse
    await ask(page)
    await page.get_by_text("RATE_LIMITED: slow down (come back in 1500 ms)").wait_for()


async def test_a_schema_that_is_no_json_is_not_sent(page: Page, scripted: ScriptedRouter) -> None:
    await page.fill("#schema", "{")
    await ask(page)
    await page.get_by_text("The schema is no JSON").wait_for()
    assert not scripted.requests or not hasattr(scripted.requests[-1], "prompt")


async def test_the_mesh_is_watched(page: Page, scripted: ScriptedRouter) -> None:
    status = pb.GetMeshStatusResponse(
        in_flight=3, nodes=[pb.NodeView(address="a", is_ejected=True, ejection_reason="slow")]
    )
    status.nodes[0].status.node = "node-7"
    status.nodes[0].status.models.add(model="small", slots_total=4, tiers=[mesh_pb2.TIER_FULL])
    scripted.unary["GetMeshStatus"] = status
    await page.fill("#key", KEY)
    await page.click("#watch")
    await page.get_by_text("node-7").wait_for()
    assert "ejected: slow" in await page.inner_text("#nodes")
    status.in_flight = 4
    await until(page, "document.querySelector('#mesh dd')?.textContent === '4'")


async def test_nothing_else_is_asked_while_an_answer_comes(page: Page, scripted: ScriptedRouter) -> None:
    go_on = await ask_for_one_field(page, scripted)
    assert await page.is_disabled("#explain")
    await page.evaluate("document.querySelector('#explain').dispatchEvent(new Event('click'))")
    go_on.set()
    await page.get_by_text("verdict: ok").wait_for()
    assert len(await cells(page)) == 4
    await until(page, "!document.querySelector('#explain').disabled")


async def test_watching_begun_anew_goes_on_once(page: Page, scripted: ScriptedRouter) -> None:
    scripted.unary["GetMeshStatus"] = pb.GetMeshStatusResponse(in_flight=3)
    await page.fill("#key", KEY)
    await page.evaluate("""() => {
      const [ask, wait] = [fetch, setTimeout];
      Object.assign(window, { waiting: 0, others: [] });
      window.fetch = (...words) => (window.others.push(window.waiting), ask(...words));
      window.setTimeout = (work) => (window.waiting++, wait(() => (window.waiting--, work()), 50));
    }""")
    for _ in range(3):
        await page.click("#watch")
    # On a busy machine many turns go by before the second click, and the third finds the last of them waiting.
    begun = await page.evaluate("window.others.length")
    await until(page, f"window.others.length >= {begun + 20}")
    assert not any((await page.evaluate("window.others"))[begun + 2 :])


async def test_the_key_is_kept_in_memory_alone(page: Page, scripted: ScriptedRouter) -> None:
    scripted.script = as_script([*told(), *document_chunks(PERSON), accounting_chunk()])
    await ask(page)
    await page.get_by_text("verdict: ok").wait_for()
    kept = await page.evaluate(
        "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])"
    )
    assert KEY not in kept
    await page.reload()
    assert await page.input_value("#key") == ""


async def test_everything_can_be_reached_by_keyboard(page: Page) -> None:
    reached: set[str] = set()
    for _ in range(30):
        await page.keyboard.press("Tab")
        reached.add(await page.evaluate("document.activeElement.id"))
    assert {"key", "theme", "prompt", "schema", "model", "policy", "level", "send", "explain", "watch"} <= reached


async def test_every_field_has_a_label(page: Page) -> None:
    nameless = "[...document.querySelectorAll('input, select, textarea')].filter((e) => !e.labels.length).length"
    assert await page.evaluate(nameless) == 0


async def test_a_phone_needs_no_sideways_scrolling(page: Page, scripted: ScriptedRouter) -> None:
    scripted.script = as_script([*told(), *document_chunks({**PERSON, "name": "x" * 300}), accounting_chunk()])
    await page.set_viewport_size(PHONE)
    await ask(page)
    await page.get_by_text("verdict: ok").wait_for()
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


async def test_dark_and_light_follow_the_system_and_the_button(page: Page) -> None:
    theme = "document.documentElement.dataset.theme"
    await page.emulate_media(color_scheme="dark")
    await until(page, f"{theme} === 'dark'")
    await page.click("#theme")
    assert await page.evaluate(theme) == "light"


async def test_the_page_loads_nothing_from_elsewhere(gateway: Gateway, page: Page) -> None:
    assert all(url.startswith((gateway.url, "data:")) for url in page.loaded)
    assert page.policy.startswith("default-src 'none'")
