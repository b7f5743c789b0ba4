"""The door for a Kafka topic, through a consumer group: offsets are committed when the posts are in the queue."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

from ssop_chassis.logs import describe
from ssop_opinion.core.post import PostError
from ssop_opinion.core.reading import parse_post
from ssop_opinion.intake import Intake, Origin
from ssop_opinion.metrics import OpinionMetrics
from ssop_opinion.settings import KafkaSourceSettings
from ssop_opinion.tenants import read_secret

_COUNT: Final = 500
_BLOCK_MS: Final = 1_000
_LONGEST_PAUSE_S: Final = 30.0
_log = logging.getLogger(__name__)


class Consumer(Protocol):
    """What is used of aiokafka's consumer."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[Any, list[Any]]: ...

    async def commit(self) -> None: ...


def make_consumer(settings: KafkaSourceSettings) -> Consumer:
    """A consumer that commits nothing by itself.

    Raises ImportError without the extra `kafka`, SettingsError and OSError for files that can't be read, and
    ssl.SSLError for certificates that are none.
    """
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415 - needs the extra [kafka]

    made: Consumer = AIOKafkaConsumer(
        settings.topic,
        bootstrap_servers=settings.servers,
        group_id=settings.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **_secure(settings),
    )
    return made


def _secure(settings: KafkaSourceSettings) -> dict[str, Any]:
    """What aiokafka is told of TLS and of the user."""
    said: dict[str, Any] = {}
    if settings.has_tls:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.certificate_file is not None:
            context.load_cert_chain(settings.certificate_file, settings.key_file)
        said["ssl_context"] = context
    if settings.password_file is not None:
        said["sasl_mechanism"] = settings.sasl_mechanism
        said["sasl_plain_username"] = settings.username
        said["sasl_plain_password"] = read_secret(settings.password_file)
    protocol = "SASL_" if settings.password_file is not None else ""
    return {"security_protocol": protocol + ("SSL" if settings.has_tls else "PLAINTEXT"), **said}


class KafkaSource:
    """A topic of a tenant."""

    def __init__(
        self,
        settings: KafkaSourceSettings,
        intake: Intake,
        metrics: OpinionMetrics,
        make: Callable[[KafkaSourceSettings], Consumer] = make_consumer,
    ) -> None:
        self._settings = settings
        self._intake = intake
        self._metrics = metrics
        self._make = make
        self._origin = Origin(settings.tenant, settings.source, "kafka", has_unknown_members=True)

    async def run(self) -> None:
        """Read until cancelled, through all breaks: the group goes on from what was committed."""
        pause_s = 0.1
        while True:
            try:
                async with self._consumer() as consumer:
                    while True:
                        await self._take(consumer)
                        pause_s = 0.1
            except Exception as error:  # noqa: BLE001 - the client's own errors share no base with those of its sockets
                self._metrics.tries.labels("kafka_source").inc()
                _log.warning("the topic can't be read: %s", describe(error))
                await asyncio.sleep(pause_s)
                pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[Consumer]:
        consumer = self._make(self._settings)
        try:
            await consumer.start()
            yield consumer
        finally:
            await consumer.stop()

    async def _take(self, consumer: Consumer) -> None:
        found = await consumer.getmany(timeout_ms=_BLOCK_MS, max_records=_COUNT)
        values = [record.value or b"" for records in found.values() for record in records]
        if values:
            await self._intake.take([_read(value) for value in values], self._origin)
            await consumer.commit()


def _read(value: bytes) -> tuple[Any, bytes]:
    try:
        return parse_post(value), value
    except PostError as error:
        return error, value
