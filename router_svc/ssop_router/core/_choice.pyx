# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Which node of a tier serves a request, and what a score adds up to: numbers compared in C.

What a node offers is worked out once for each view of it, as an array of rows. The arithmetic is that of `_choice_py`,
term by term and in doubles, so that both decide the same to the last bit; it is built without contraction of sums.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from libc.math cimport INFINITY, exp2, isnan, sqrt
from libc.stdint cimport int64_t

from ssop_router.core._tuples cimport fill

from ssop.v1.inference_pb2 import ModelState
from ssop.v1.mesh_pb2 import NodeReason, Tier

from ssop_router.core import score, snapshot, success
from ssop_router.core.candidate import UNSEEN as NOTHING_SEEN, Candidate
from ssop_router.core.request import MOST_BYTES_PER_TOKEN
from ssop_router.core.score import Score, TierSignals

cdef enum:
    MOST_IN_PLACE = 16      # rows that are compared without asking for more memory

cdef int64_t MOST_MS = 2**61      # more than any clock says

cdef double STALE_PENALTY = snapshot.STALE_PENALTY
cdef double UNSEEN_PENALTY = snapshot.UNSEEN_PENALTY
cdef double LOW_MEMORY_PENALTY = snapshot.LOW_MEMORY_PENALTY
cdef double FULL_PENALTY = snapshot.FULL_PENALTY
cdef double AGEING_SPREAD = score.AGEING_SPREAD
cdef double STALE_SPREAD = score.STALE_SPREAD
cdef double PRIOR_SUCCESSES = success.PRIOR_SUCCESSES
cdef double PRIOR_FAILURES = success.PRIOR_FAILURES
cdef double FADED = success.FADED
cdef object LITE = Tier.TIER_LITE
cdef object FULL = Tier.TIER_FULL
cdef object READY = ModelState.MODEL_STATE_READY
cdef object NO_CHOICE = (None, NodeReason.NODE_REASON_UNSPECIFIED)
cdef object ONLY_ONE = NodeReason.NODE_REASON_ONLY_ONE
cdef object STATUS_STALE = NodeReason.NODE_REASON_STATUS_STALE
cdef object BY_SUCCESS = NodeReason.NODE_REASON_SUCCESS
cdef object BY_HEADROOM = NodeReason.NODE_REASON_HEADROOM
cdef object UNSEEN = NOTHING_SEEN
cdef object NONE_FAILED = frozenset()
cdef object BYTES_PER_TOKEN = MOST_BYTES_PER_TOKEN

cdef struct Row:
    # See `_choice_py._Row`. `model` is its place among the node's; -1: the first, whatever that is.
    Py_ssize_t model
    bint is_lite, is_full, has_logprobs
    int64_t measured_at_ms
    double context_tokens, load, own_load, stale_load, caution


cdef struct Fit:
    # A row that passes the filters. The offer is one of those that are held meanwhile. `equal` is the place of the row that is the
    # best but so many, where several are.
    PyObject* offer
    Row* row
    Py_ssize_t equal


cdef class Offer:
    """What one node offers to any tier."""

    cdef object address, name
    cdef tuple models
    cdef Row* rows
    cdef Py_ssize_t count
    cdef bint is_seen, is_connected, has_outcomes
    cdef double memory_free_ratio, successes, failures, half_life_ms
    cdef int64_t at_ms

    def __cinit__(self, view):
        cdef int64_t in_flight, seen_at_ms = 0
        # Whatever number a setting has: none is too large to be compared.
        cdef double limit, weight
        cdef Py_ssize_t place
        self.rows = NULL
        # By place: a field of a named tuple costs as much as a row by its name.
        (
            self.address, self.name, self.models, seen, self.is_connected, requests, memory, tiers, is_ejected, _,
            successes, share, most,
        ) = <tuple>view
        self.is_seen = seen is not None
        if is_ejected:
            return
        self.memory_free_ratio = 1.0 if memory is None else memory
        self.successes, self.failures, at_ms, self.half_life_ms = <tuple>successes
        self.has_outcomes = at_ms is not None
        self.at_ms = at_ms if self.has_outcomes else 0
        in_flight, limit, weight = requests, most, share
        self.rows = <Row*>PyMem_Malloc((len(self.models) if self.is_seen else 1) * sizeof(Row))
        if self.rows == NULL:
            raise MemoryError
        if not self.is_seen:
            self.add_unseen(not tiers or LITE in tiers, not tiers or FULL in tiers, own_load(in_flight, limit, weight, 1))
            return
        seen_at_ms = seen
        for place in range(len(self.models)):
            self.add(place, <tuple>self.models[place], in_flight, limit, weight, seen_at_ms)

    def __dealloc__(self):
        PyMem_Free(self.rows)

    cdef void add_unseen(self, bint is_lite, bint is_full, double load) noexcept:
        cdef Row* row = self.rows
        row.model = -1
        row.is_lite, row.is_full, row.has_logprobs = is_lite, is_full, True
        row.context_tokens = 0
        row.measured_at_ms = 0
        row.load = row.own_load = load
        row.stale_load = load + UNSEEN_PENALTY
        row.caution = 0
        self.count = 1

    cdef int add(
        self, Py_ssize_t place, tuple model, int64_t in_flight, double limit, double weight, int64_t seen_at_ms
    ) except -1:
        cdef Row* row = self.rows + self.count
        cdef double slots, said, steady
        _, state, tiers, context_tokens, slots_total, busy, queued, _, has_logprobs, _, load_age_ms = model
        if state != READY:
            return 0
        slots = slots_total or 1
        said = (<double>busy + <double>queued) / slots
        row.model = place
        row.is_lite, row.is_full, row.has_logprobs = LITE in tiers, FULL in tiers, has_logprobs
        row.context_tokens = context_tokens
        row.measured_at_ms = seen_at_ms - <int64_t>load_age_ms
        row.own_load = own_load(in_flight, limit, weight, slots)
        row.stale_load = row.own_load + STALE_PENALTY
        # In this order, so that what is no number counts for nothing.
        row.load = said if said > row.own_load else row.own_load
        row.caution = 0
        if weight < 1:
            steady = own_load(in_flight, limit, 1, slots)
            row.caution = row.load - (said if said > steady else steady)
        self.count += 1
        return 0

    cdef bint is_fresh(self, Row* row, int64_t fresh_from_ms) noexcept:
        return self.is_seen and self.is_connected and row.measured_at_ms >= fresh_from_ms

    cdef void estimate(self, int64_t now_ms, double* value, double* spread) noexcept:
        """See `SuccessView.estimate`."""
        cdef double left = 0, good, bad, total
        if self.has_outcomes:
            left = exp2(-<double>(now_ms - self.at_ms if now_ms > self.at_ms else 0) / self.half_life_ms)
        good, bad = self.successes * left + PRIOR_SUCCESSES, self.failures * left + PRIOR_FAILURES
        total = good + bad
        value[0] = good / total
        spread[0] = sqrt(good * bad / (total * total * (total + 1)))

    cdef double risk(self, int64_t now_ms) noexcept:
        """See `SuccessView.risk`."""
        cdef double value, spread, hopeful
        if not self.has_outcomes or self.failures < FADED:
            return 0
        self.estimate(now_ms, &value, &spread)
        hopeful = value + spread
        return 1 / (hopeful if hopeful < 1 else 1.0) - 1

    cdef describe(
        self, Row* row, double load, int64_t now_ms, int64_t fresh_from_ms, double stale_ms, bint is_canary
    ):
        """The candidate that a row makes."""
        cdef bint is_stale = not self.is_fresh(row, fresh_from_ms)
        cdef double risk = self.risk(now_ms), success, spread, headroom, headroom_spread = STALE_SPREAD
        cdef int64_t age_ms = now_ms - row.measured_at_ms if now_ms > row.measured_at_ms else 0
        self.estimate(now_ms, &success, &spread)
        if is_stale:
            # What this router itself has put there is all that is known.
            headroom = 1 - row.own_load
        else:
            # Caution says who of a tier is asked, not how much room there is.
            headroom = 1 - (load - risk - row.caution)
            headroom_spread = AGEING_SPREAD * age_ms / stale_ms
        signals = fill(TierSignals, (
            headroom if headroom > 0 else 0.0,
            headroom_spread,
            age_ms if self.is_seen else None,
            ("stale" if self.is_seen else "unseen") if is_stale else "",
            success,
            spread,
            (now_ms - self.at_ms if now_ms > self.at_ms else 0) if self.has_outcomes else None,
        ))
        return fill(Candidate, (
            self.address,
            self.name,
            name_of(self.models[row.model]) if row.model >= 0 else "",
            load,
            is_stale,
            row.model >= 0 and row.is_lite and row.is_full,
            risk,
            signals,
            is_canary,
        ))


cdef inline name_of(model):
    return (<tuple>model)[0]


cdef inline signals_of(choice):
    """What is known of the candidate of a choice."""
    candidate = (<tuple>choice)[0]
    return UNSEEN if candidate is None else (<tuple>candidate)[7]


cdef double own_load(int64_t in_flight, double limit, double weight, double slots) noexcept:
    cdef double load = ((in_flight + 1) / weight - 1) / slots
    return load + FULL_PENALTY if in_flight >= limit else load


def choose_node(features, snapshot, settings, tier, *, now_ms, rng, failed=NONE_FAILED):
    """See `_choice_py.choose_node`."""
    cdef Choosing choosing = Choosing(features, snapshot, settings, now_ms, rng, failed)
    return choosing.choose(tier)


def choose_both(features, snapshot, settings, *, now_ms, rng, complexity):
    """See `_choice_py.choose_both`."""
    cdef Choosing choosing = Choosing(features, snapshot, settings, now_ms, rng, NONE_FAILED)
    lite, full = choosing.choose(LITE), choosing.choose(FULL)
    score = add_up(
        complexity,
        signals_of(lite),
        signals_of(full),
        settings.score,
        choosing.pinned,
    )
    return lite, full, score


cdef class Choosing:
    """What choices for one request read: its needs, the settings, and the offers of all nodes."""

    cdef list offers
    cdef object canaries, met, pinned, rng, failed, capabilities
    cdef bint needs_logprobs, needs_capabilities, is_any_failed
    cdef int64_t now_ms, fresh_from_ms
    cdef double needed_tokens, low_memory, stale_ms
    cdef Fit in_place[MOST_IN_PLACE]
    cdef Fit* fits

    def __cinit__(self, features, snapshot, settings, int64_t now_ms, rng, failed):
        cdef Py_ssize_t most = 0
        self.fits = self.in_place
        self.offers = []
        (nodes,) = <tuple>snapshot
        for view in <tuple>nodes:
            offer = view.offer
            if offer is None:
                offer = view.offer = Offer(view)
            self.offers.append(offer)
            most += (<Offer?>offer).count
        if most > MOST_IN_PLACE:
            self.fits = <Fit*>PyMem_Malloc(most * sizeof(Fit))
            if self.fits == NULL:
                raise MemoryError
        # By place, as a view is read.
        (
            _, _, _, _, _, prompt_bytes, output_tokens, self.capabilities, self.needs_logprobs, _, _, _, _, self.pinned,
            _, _, _, self.met,
        ) = <tuple>features
        self.canaries, self.rng = settings.canaries, rng
        self.failed, self.is_any_failed = failed, bool(failed)
        self.needs_capabilities = bool(self.capabilities)
        # See `Features.least_input_tokens`.
        self.needed_tokens = prompt_bytes // BYTES_PER_TOKEN + output_tokens
        stale_ms = settings.status_stale_ms
        self.now_ms, self.stale_ms, self.low_memory = now_ms, stale_ms, settings.low_memory_ratio
        # What is never old has no time from which it is not.
        self.fresh_from_ms = now_ms - <int64_t>stale_ms if self.stale_ms < MOST_MS else -MOST_MS

    def __dealloc__(self):
        if self.fits != self.in_place:
            PyMem_Free(self.fits)

    cdef choose(self, tier):
        """The candidate of a tier, and why it is that one."""
        cdef bint is_canary = False
        cdef Py_ssize_t count = self.filter_rows(tier == LITE)
        if not count:
            return NO_CHOICE
        for canary in self.canaries:
            if canary.tier == tier:
                count, is_canary = split_canary(self.fits, count, canary.model, canary.model in self.met)
        return self.compare(count, is_canary)

    cdef Py_ssize_t filter_rows(self, bint is_lite) except -1:
        """The rows that pass the filters of a request. A node that was never seen passes what nobody knows about it."""
        cdef Offer offer
        cdef Row* row
        cdef Py_ssize_t place, at, count = 0
        for place in range(len(self.offers)):
            offer = <Offer>self.offers[place]
            if self.is_any_failed and offer.address in self.failed:
                continue
            for at in range(offer.count):
                row = offer.rows + at
                if not (row.is_lite if is_lite else row.is_full) or 0 < row.context_tokens < self.needed_tokens:
                    continue
                if self.needs_logprobs and not row.has_logprobs:
                    continue
                if self.needs_capabilities and offer.is_seen and not (
                    self.capabilities <= offer.models[row.model].capabilities
                ):
                    continue
                self.fits[count].offer, self.fits[count].row = <PyObject*>offer, row
                count += 1
        return count

    cdef compare(self, Py_ssize_t count, bint is_canary):
        """The row with the least load, as a candidate, and why it is."""
        cdef double load, plain, least = INFINITY, least_plain = INFINITY, plain_of_best = INFINITY
        cdef Py_ssize_t place, equals = 0, best = 0
        cdef bint is_any_fresh = False
        cdef int64_t now_ms = self.now_ms, fresh_from_ms = self.fresh_from_ms
        cdef Fit* fits = self.fits
        cdef Offer offer
        cdef Row* row
        for place in range(count):
            offer, row = <Offer>fits[place].offer, fits[place].row
            if offer.is_fresh(row, fresh_from_ms):
                is_any_fresh = True
                plain = row.load
            else:
                plain = row.stale_load
            if offer.memory_free_ratio < self.low_memory:
                plain += LOW_MEMORY_PENALTY
            if plain < least_plain:
                least_plain = plain
            load = plain + offer.risk(now_ms)
            if load < least or not equals:
                least, plain_of_best = load, plain
                fits[0].equal = place
                equals = 1
            elif load == least and fits[fits[equals - 1].equal].offer != fits[place].offer:
                fits[equals].equal = place
                equals += 1
        if equals > 1:
            best = self.rng.choice(range(equals))
        best = fits[best].equal
        offer = <Offer>fits[best].offer
        chosen = offer.describe(fits[best].row, least, now_ms, fresh_from_ms, self.stale_ms, is_canary)
        # The rows of a node stand together.
        if fits[0].offer == fits[count - 1].offer:
            return chosen, ONLY_ONE
        if not is_any_fresh:
            return chosen, STATUS_STALE
        return chosen, BY_SUCCESS if plain_of_best > least_plain else BY_HEADROOM


cdef (Py_ssize_t, bint) split_canary(Fit* fits, Py_ssize_t count, model, bint is_met) except *:
    """Leave the rows of a model on trial, or the others. Says how many, and whether it is the former."""
    cdef Py_ssize_t place, trials = 0, kept = 0
    cdef bint is_trial
    for place in range(count):
        trials += is_of(fits + place, model)
    is_trial = trials > 0 and (is_met or trials == count)
    for place in range(count):
        if is_of(fits + place, model) == is_trial:
            fits[kept] = fits[place]
            kept += 1
    return kept, is_trial


cdef bint is_of(Fit* fit, model) except *:
    if fit.row.model < 0:
        return model == ""
    return name_of((<Offer>fit.offer).models[fit.row.model]) == model


cpdef add_up(complexity, lite, full, settings, pinned):
    """See `_choice_py.add_up`."""
    cdef double value, spread, threshold, hysteresis
    cdef double by_headroom = settings.headroom_weight, by_success = settings.success_weight
    cdef double lite_headroom, lite_headroom_spread, lite_success, lite_success_spread
    cdef double full_headroom, full_headroom_spread, full_success, full_success_spread
    alone, doubt, _ = <tuple>complexity
    if alone is None or isnan(<double>alone):
        return None
    lite_headroom, lite_headroom_spread, _, _, lite_success, lite_success_spread, _ = <tuple>lite
    full_headroom, full_headroom_spread, _, _, full_success, full_success_spread, _ = <tuple>full
    value = (
        <double>alone
        + by_headroom * (full_headroom - lite_headroom)
        + by_success * (full_success - lite_success)
    )
    spread = <double>settings.doubt_weight * <double>doubt + (
        by_headroom * (full_headroom_spread + lite_headroom_spread)
        + by_success * (full_success_spread + lite_success_spread)
    ) / 2
    threshold = settings.threshold
    if pinned:
        hysteresis = settings.hysteresis
        threshold += hysteresis if pinned == LITE else -hysteresis
        threshold = threshold if threshold < 1 else 1.0
    value = 0.0 if value < 0 else 1.0 if value > 1 else value
    return fill(Score, (value, spread, threshold, complexity, lite, full, settings))
