"""The decision core in an application's own process."""

import asyncio
import gc
import threading

import pytest

import ssop_sdk
from helpers.classifiers import FixedClassifier
from ssop_chassis.settings import SettingsError
from ssop_router.local import LocalNode, LocalRouter

NODES = [
    LocalNode("http://small:8001", "lite", "small", slots=4, context_tokens=1000),
    LocalNode("http://big-1:8002", "full", "big", slots=2, context_tokens=8000),
    LocalNode("http://big-2:8003", "full", "big", slots=2, context_tokens=8000),
]


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def make(clock: Clock | None = None, **settings: object) -> LocalRouter:
    model = FixedClassifier(0.9, {"easy": 0.1})
    return LocalRouter(
        NODES, settings={"classifier_timeout_us": 10**7, **settings}, classifier=model, seed=1, clock_s=clock or Clock()
    )


def test_chooses_and_says_why() -> None:
    choice = make().route("Translate this")
    assert (choice.address, choice.model, choice.tier, choice.rule) == (
        "http://small:8001", "small", "lite", "short_instruction",
    )  # fmt: skip


def test_score_decides() -> None:
    router = make(score={"threshold": 0.5})
    assert router.route("easy").tier == "lite"
    choice = router.route("hard")
    assert (choice.tier, choice.reason, choice.complexity) == ("full", "score", 0.9)


def test_requests_spread_over_servers() -> None:
    router = make()
    chosen = [router.route("hard") for _ in range(2)]
    assert {choice.address for choice in chosen} == {"http://big-1:8002", "http://big-2:8003"}


def test_server_that_fails_is_left_alone_and_comes_back() -> None:
    clock = Clock()
    router = make(clock)
    for _ in range(60):
        with router.route("hard") as choice:
            if choice.address == "http://big-1:8002":
                choice.failed()
    tried = [router.route("hard", exclude=["http://small:8001"]) for _ in range(2)]
    assert tried[0].address == "http://big-2:8003"
    del tried, choice
    gc.collect()
    clock.now_s += 3600
    assert {router.route("hard").address for _ in range(20)} == {"http://big-1:8002", "http://big-2:8003"}


def test_block_counts_an_exception_as_failure() -> None:
    router = make()
    with pytest.raises(RuntimeError), router.route("hard") as choice:
        raise RuntimeError
    verdicts = {v.node: v.success for v in router.explain("hard").verdicts}
    assert verdicts[choice.address] < 0.95


def test_cancellation_is_neutral() -> None:
    router = make()
    before = {v.node: v.success for v in router.explain("hard").verdicts}
    with pytest.raises(asyncio.CancelledError), router.route("hard"):
        raise asyncio.CancelledError
    assert {v.node: v.success for v in router.explain("hard").verdicts} == before


def test_only_the_first_word_counts() -> None:
    router = make()
    choice = router.route("hard")
    choice.was_busy()
    choice.failed()
    assert {v.load for v in router.explain("hard").verdicts} == {0.0}


def test_choice_that_is_thrown_away_occupies_nothing() -> None:
    router = make()
    choice = router.route("hard")
    assert any(v.load for v in router.explain("hard").verdicts)
    del choice
    gc.collect()
    assert not any(v.load for v in router.explain("hard").verdicts)


def test_what_a_server_says_of_itself_grows_old() -> None:
    clock = Clock()
    router = make(clock)
    router.update("http://big-1:8002", slots_busy=2, queue_length=5)
    assert router.route("hard").address == "http://big-2:8003"
    clock.now_s += 60
    choice = router.route("hard", exclude=["http://big-2:8003", "http://small:8001"])
    assert choice.weak_signals == ("headroom:stale",)


def test_context_is_a_filter() -> None:
    choice = make().route("Translate this", prompt_bytes=20_000)
    assert (choice.tier, choice.reason) == ("full", "context_fit")


def test_conversation_keeps_its_tier() -> None:
    router = make()
    assert router.route("hard", conversation_id="c").tier == "full"
    assert router.route("Translate it", conversation_id="c").tier == "full"


def test_settings_are_checked() -> None:
    with pytest.raises(SettingsError, match="unknown key nonsense"):
        make(nonsense=1)
    with pytest.raises(SettingsError, match="default_tier"):
        make(default_tier="huge")


def test_no_nodes() -> None:
    with pytest.raises(ValueError, match="at least one"):
        LocalRouter([])


def test_sdk_raises_its_own_errors() -> None:
    router = ssop_sdk.LocalRouter(NODES[:1], settings={"classifier_file": ""})
    with pytest.raises(ssop_sdk.PolicyInvalid):
        router.route("x", policy="nonsense")
    with pytest.raises(ssop_sdk.Unavailable) as caught:
        router.route("x", policy="full")
    assert caught.value.reason == "NO_BACKEND"
    with pytest.raises(ssop_sdk.ContextExceeded):
        router.route("x", policy="lite", prompt_bytes=10**6)


def test_policy_that_nothing_here_can_keep_is_refused() -> None:
    router = ssop_sdk.LocalRouter(NODES, settings={"classifier_file": ""})
    with pytest.raises(ssop_sdk.Unsupported):
        router.route("x", policy="cache_only")


def test_cascade_begins_with_the_lite_tier() -> None:
    choice = make().route("hard", policy="cascade")
    assert (choice.tier, choice.reason) == ("lite", "cascade_lite")


def test_threads_share_a_router() -> None:
    router = make()

    def work() -> None:
        for _ in range(200):
            with router.route("hard"):
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {v.load for v in router.explain("hard").verdicts} == {0.0}
