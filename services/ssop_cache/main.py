"""The cache service's process."""

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Final, NoReturn

from prometheus_client import CollectorRegistry
from redis.exceptions import RedisError

from ssop.v1 import cache_pb2, hints_pb2, keys_pb2, registry_pb2
from ssop.v1.errors_pb2 import ErrorReason
from ssop_cache.answers import AnswerStore
from ssop_cache.core.keys import Layout
from ssop_cache.deployment import open_deployment
from ssop_cache.feeds import Feeds
from ssop_cache.fill_watch import FillWatch
from ssop_cache.hint_store import HintServicer
from ssop_cache.key_purge import KeyPurge
from ssop_cache.key_store import KeyStoreServicer
from ssop_cache.local import LocalLevel
from ssop_cache.metrics import CacheMetrics
from ssop_cache.redis_settings import Role
from ssop_cache.registry_store import RegistryServicer
from ssop_cache.roles import RoleChecker
from ssop_cache.servicer import CacheServicer
from ssop_cache.settings import CacheSettings
from ssop_cache.similar import SimilarAnswers
from ssop_cache.store import RedisStore
from ssop_cache.wakes import Wakes
from ssop_chassis.attention import Attention
from ssop_chassis.call import Metadata, Service, bind
from ssop_chassis.dispatch import Authenticate, inner_authenticate
from ssop_chassis.errors import MeshError
from ssop_chassis.identity import Principal
from ssop_chassis.logs import describe
from ssop_chassis.serving import Process, Serving, run_service, wall_clock_ms
from ssop_codec.constants import CODEC_VERSION, WIRE_VERSION

_WARM_UP_S: Final = 5.0
_PURGE_INTERVAL_MS: Final = 3_600_000
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cache:
    """The services and the stores below them."""

    services: tuple[Service, ...]
    state: RedisStore
    cache: RedisStore
    roles: RoleChecker
    answers: AnswerStore
    fill: FillWatch


def _refuse_all(_: Metadata) -> Principal:
    raise MeshError(ErrorReason.ERROR_REASON_PRINCIPAL_INVALID, "nobody is taken in a batch here")


def open_cache(
    settings: CacheSettings,
    registry: CollectorRegistry,
    stack: AsyncExitStack,
    *,
    authenticate: Authenticate = _refuse_all,
) -> Cache:
    """Make the service from its settings; the stack closes what it holds. `authenticate` is for entries of batches."""
    metrics = CacheMetrics(registry)
    attention = Attention(metrics.loop_lag.inc)

    def open_store(role: Role) -> RedisStore:
        timeout_s = settings.redis_timeout_ms / 1000
        store = RedisStore(
            role,
            open_deployment(settings.access(role), timeout_s=timeout_s, connections=settings.redis_connections),
            metrics,
            timeout_s=timeout_s,
            attention=attention,
            connections=settings.redis_connections,
            connection_wait_s=settings.connection_wait_ms / 1000,
            probe_interval_s=settings.probe_interval_ms / 1000,
        )
        stack.push_async_callback(store.close)
        return store

    state, cache = open_store("state"), open_store("cache")
    layout = Layout(WIRE_VERSION, CODEC_VERSION)
    local = None
    if settings.local_bytes:
        local = LocalLevel(
            state,
            cache,
            metrics,
            max_bytes=settings.local_bytes,
            directory=settings.local_directory,
            sync_interval_ms=settings.local_sync_ms,
            unsynced_ms=settings.local_unsynced_ms,
            wall_ms=wall_clock_ms,
        )
        local.start()
        stack.push_async_callback(local.close)
    answers = AnswerStore(cache, layout, metrics, state=state, local=local)
    similar = SimilarAnswers(cache, answers, layout, metrics, most=settings.similar_entries, wall_ms=wall_clock_ms)
    wakes = Wakes(state)
    stack.push_async_callback(wakes.close)
    feeds = Feeds(state, answers, layout, wakes, most=settings.max_followed, gauge=metrics.feeds)
    stack.push_async_callback(feeds.close)
    fill = FillWatch(state, metrics)
    stack.push_async_callback(_stop, asyncio.ensure_future(fill.run()))
    servicer = CacheServicer(
        state,
        answers,
        feeds,
        similar=similar,
        fill=fill,
        layout=layout,
        settings=settings,
        metrics=metrics,
        authenticate=authenticate,
    )
    if settings.ended_keys_kept_ms:
        purge = KeyPurge(
            state, metrics.keys_purged, kept_ms=settings.ended_keys_kept_ms, interval_ms=_PURGE_INTERVAL_MS
        )
        stack.push_async_callback(_stop, asyncio.ensure_future(purge.run()))
    roles = RoleChecker(state, cache)
    if settings.is_role_checked:
        roles.install()
    services = (
        bind(cache_pb2.DESCRIPTOR.services_by_name["CacheService"], servicer),
        bind(keys_pb2.DESCRIPTOR.services_by_name["KeyStoreService"], KeyStoreServicer(state)),
        bind(hints_pb2.DESCRIPTOR.services_by_name["HintService"], HintServicer(state)),
        bind(registry_pb2.DESCRIPTOR.services_by_name["RegistryService"], RegistryServicer(state)),
    )
    return Cache(services, state, cache, roles, answers, fill)


async def _stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def build(process: Process[CacheSettings], stack: AsyncExitStack) -> Serving:
    """What the chassis serves."""
    authenticate = inner_authenticate(*process.secrets.accepted)
    cache = open_cache(process.settings, process.registry, stack, authenticate=authenticate)

    async def warm() -> None:
        if process.settings.is_role_checked:
            await cache.roles.wait_until_right()
        for store in (cache.state, cache.cache):
            try:
                async with asyncio.timeout(_WARM_UP_S):
                    await store.warm_up()
            except (RedisError, OSError, TimeoutError) as error:
                _log.warning("the connections could not be made ahead: %s", describe(error))

    return Serving(cache.services, process.settings.listen, authenticate=authenticate, warm=warm)


def run() -> NoReturn:
    """Run until told to stop."""
    run_service("cache", CacheSettings, build)


if __name__ == "__main__":
    run()
