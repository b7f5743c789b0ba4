"""Puts a router together from its settings and its peers; the same for the process and for tests."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from ssop.v1 import cache_admin_pb2, rag_pb2, router_pb2, usage_pb2
from ssop_chassis.attention import Attention
from ssop_chassis.call import Peer, Service, bind
from ssop_chassis.identity import Principal
from ssop_router.answers import Answers
from ssop_router.background import Background
from ssop_router.cache_admin import CacheAdmin
from ssop_router.canned import CannedDocuments
from ssop_router.cascade import Cascade
from ssop_router.citations import Citations
from ssop_router.core.ahead import AheadJudge
from ssop_router.core.policy import TIER_OF_WORD
from ssop_router.core.success import Outcomes
from ssop_router.dependency import Dependency, InnerMetadata
from ssop_router.discovery import Discovery, Joining, make_discovery, show_age
from ssop_router.documents import DocumentEdge
from ssop_router.entrance import Entrance
from ssop_router.failpoint import open_failpoint
from ssop_router.generation import Generator
from ssop_router.hints import HintExchange
from ssop_router.inspection import Inspection
from ssop_router.limits import Limits
from ssop_router.metrics import DiscoveryMetrics, RouterMetrics
from ssop_router.nodes import Node, Nodes
from ssop_router.passages import Passages
from ssop_router.pipeline import Pipeline
from ssop_router.preparation import Preparation
from ssop_router.profiles import Regimes
from ssop_router.receipts import Receipts
from ssop_router.recorder import Recorder
from ssop_router.reports import Reports
from ssop_router.resume import Recordings
from ssop_router.retrieval import Retrieval
from ssop_router.rotation import Rotation
from ssop_router.scoring import Classifier, Scorer
from ssop_router.servicer import RouterServicer
from ssop_router.sessions import Sessions
from ssop_router.settings import RouterSettings
from ssop_router.shadow import Shadows
from ssop_router.similar import Similar, Sources
from ssop_router.similar_settings import SimilarRules
from ssop_router.traces import Traces
from ssop_router.traffic import Traffic
from ssop_router.trials import Trials
from ssop_router.usage import UsageServicer

OWN_PRINCIPAL = Principal("mesh", "router")
"""Who the router is when it asks for itself, as for a node's status."""


@dataclass(frozen=True, slots=True)
class Router:
    """The parts that outlive a call. The owner runs `nodes.watch()`, `recorder.run()` and `background.finish()`.

    It runs `hints.run()` and `discovery.run()` too, where there are. `sessions.drain()` ends sessions once what runs on
    them has finished.
    """

    services: tuple[Service, ...]
    nodes: Nodes
    pipeline: Pipeline
    recordings: Recordings
    background: Background
    metrics: RouterMetrics
    recorder: Recorder
    regimes: Regimes
    sessions: Sessions
    hints: HintExchange | None
    discovery: Discovery | None


def assemble(
    settings: RouterSettings,
    *,
    node_peers: Mapping[str, Peer],
    cache_peer: Peer | None,
    rag_peer: Peer | None,
    registry: CollectorRegistry,
    sign: Callable[[Principal], InnerMetadata],
    renew: Callable[[Principal], Principal] = lambda principal: principal,
    clock_ms: Callable[[], int],
    wall_ms: Callable[[], int],
    rng: random.Random,
    classifier: Classifier = Classifier(),  # noqa: B008 - immutable
    canned: CannedDocuments = CannedDocuments(),  # noqa: B008 - never changed
    similar_rules: SimilarRules = SimilarRules(),  # noqa: B008 - immutable
    environ: Mapping[str, str] | None = None,
    joining: Joining | None = None,
) -> Router:
    """A router over the given peers; `node_peers` has one for each address of the settings that stays.

    Nodes that join at run time need `joining`.
    `clock_ms` is monotonic, `wall_ms` tells the time; `environ` is where a failpoint may be asked for. Raises
    SettingsError for one that is asked for badly.
    """
    metrics = RouterMetrics(registry)
    background = Background()
    sessions = Sessions(settings.session_idle_ms / 1000)
    threshold_of: Callable[[float], float] | None = getattr(classifier.model, "threshold_of", None)
    regimes = Regimes(settings, threshold_of, wall_ms)
    scorer = Scorer(classifier, metrics, timeout_us=settings.classifier_timeout_us)
    metrics.classifier_loaded.labels(scorer.version).set(classifier.model is not None)
    metrics.classifier_fallback.set(classifier.model is not None and bool(classifier.detail))

    def new_outcomes() -> Outcomes:
        return Outcomes(half_life_ms=settings.success_half_life_ms, window_ms=settings.cache_rule.window_ms)

    def make_rotation(on_change: Callable[[str], None]) -> Rotation:
        return Rotation(
            node_peers,
            breaker=settings.health.breaker(),
            pool=settings.health.pool(),
            concurrency=settings.health.concurrency(),
            metrics=metrics,
            clock_ms=clock_ms,
            rng=rng,
            metadata=lambda: sign(OWN_PRINCIPAL),
            on_change=on_change,
        )

    nodes = Nodes(
        [
            Node(node_peers[node.address], frozenset(TIER_OF_WORD[word] for word in node.tiers), new_outcomes())
            for node in settings.static_nodes
        ],
        outcomes=new_outcomes(),
        rotation=make_rotation,
        clock_ms=clock_ms,
        rng=rng,
        metadata=lambda: sign(OWN_PRINCIPAL),
        stale_ms=settings.status_stale_ms,
        restart_ms=settings.watch_restart_ms,
        reconnect_ms=(settings.reconnect_min_ms, settings.reconnect_max_ms),
        on_fault=metrics.watch_faults.inc,
    )

    for node in nodes:
        show_age(node, metrics, clock_ms)

    def depend(name: str, peer: Peer | None, attention: Attention | None = None) -> Dependency | None:
        if peer is None:
            return None
        return Dependency(name, peer, skip_ms=settings.skip_ms, clock_ms=clock_ms, attention=attention)

    cache, rag = depend("cache", cache_peer, Attention(metrics.loop_lag.inc)), depend("rag", rag_peer)
    hints = None
    if (hint_store := depend("hints", cache_peer)) is not None and settings.health.hint_poll_ms:
        hints = HintExchange(
            nodes.rotation,
            hint_store,
            router_id=f"{rng.getrandbits(128):032x}",
            poll_ms=settings.health.hint_poll_ms,
            timeout_ms=settings.keys_timeout_ms,
            metadata=lambda: sign(OWN_PRINCIPAL),
            metrics=metrics,
        )
    discovery = None
    if joining is not None:
        discovery = make_discovery(
            settings,
            nodes,
            joining,
            leases=depend("registry", cache_peer),
            metadata=lambda: sign(OWN_PRINCIPAL),
            new_outcomes=new_outcomes,
            metrics=metrics,
            own_metrics=DiscoveryMetrics(registry),
            clock_ms=clock_ms,
            wall_ms=wall_ms,
        )
    for word, price in settings.prices.items():
        metrics.set_price(TIER_OF_WORD[word], price.input, price.output)
    failpoint = open_failpoint(environ or {}, metrics)
    receipts = Receipts(metrics, thin=failpoint.thin if failpoint is not None else None)
    recorder = Recorder(settings, metrics, wall_ms)
    recordings = Recordings(settings, receipts)
    traffic = Traffic(clock_ms)
    trials = Trials(regimes, metrics, clock_ms)
    traces = Traces(settings.trace_requests, receipts, wall_ms)
    preparation = Preparation(
        nodes,
        settings,
        regimes,
        metrics,
        scorer=scorer,
        recorder=recorder,
        sign=sign,
        clock_ms=clock_ms,
        rng=rng,
    )
    limits = Limits(settings, metrics, clock_ms)
    levels = depend("levels", cache_peer)
    answers = Answers(cache, settings, background, metrics, limits, sign_own=lambda: sign(OWN_PRINCIPAL), levels=levels)
    retrieval = Retrieval(rag, settings, clock_ms, regimes)
    citations = Citations(retrieval)
    sources = Sources(depend("embedder", rag_peer), depend("similar", cache_peer))
    similar = Similar(similar_rules, sources, citations, settings, metrics)
    generator = Generator(
        similar=similar,
        nodes=nodes,
        settings=settings,
        regimes=regimes,
        metrics=metrics,
        limits=limits,
        clock_ms=clock_ms,
        rng=rng,
    )
    pipeline = Pipeline(
        preparation=preparation,
        answers=answers,
        entrance=Entrance(answers, retrieval, metrics),
        passages=Passages(retrieval, AheadJudge(settings.retrieval_ahead), background, metrics),
        generator=generator,
        canned=canned,
        similar=similar,
        citations=citations,
        cascade=Cascade(generator, settings),
        recordings=recordings,
        receipts=receipts,
        reports=Reports(metrics, recorder, traces, traffic, trials),
        shadows=Shadows(
            trials, nodes, settings=settings, regimes=regimes, background=background, clock_ms=clock_ms, rng=rng
        ),
        regimes=regimes,
        settings=settings,
        background=background,
        metrics=metrics,
    )
    inspection = Inspection(
        preparation=preparation,
        pipeline=pipeline,
        answers=answers,
        retrieval=retrieval,
        nodes=nodes,
        discovery=discovery,
        receipts=receipts,
        limits=limits,
        levels=levels,
        sign_own=lambda: sign(OWN_PRINCIPAL),
        traffic=traffic,
        trials=trials,
        dependencies=[dependency for dependency in (cache, rag) if dependency is not None],
        settings=settings,
        clock_ms=clock_ms,
        started_ms=clock_ms(),
    )
    servicer = RouterServicer(
        pipeline=pipeline,
        inspection=inspection,
        retrieval=retrieval,
        recordings=recordings,
        receipts=receipts,
        traces=traces,
        settings=settings,
        background=background,
        sign=sign,
        renew=renew,
        sessions=sessions,
    )
    service = bind(router_pb2.DESCRIPTOR.services_by_name["RouterService"], servicer)
    edge = DocumentEdge(rag_peer, answers, retrieval, settings, metrics, sign=sign)
    documents = bind(rag_pb2.DESCRIPTOR.services_by_name["RagService"], edge)
    usage = bind(
        usage_pb2.DESCRIPTOR.services_by_name["UsageService"],
        UsageServicer(
            depend("usage", cache_peer), settings.prices, sign=sign, timeout_s=settings.settle_timeout_ms / 1000
        ),
    )
    levels_admin = CacheAdmin(depend("cache admin", cache_peer), sign=sign, settings=settings)
    cache_admin = bind(cache_admin_pb2.DESCRIPTOR.services_by_name["CacheAdminService"], levels_admin)
    return Router(
        (service, documents, usage, cache_admin),
        nodes,
        pipeline,
        recordings,
        background,
        metrics,
        recorder,
        regimes,
        sessions,
        hints,
        discovery,
    )
