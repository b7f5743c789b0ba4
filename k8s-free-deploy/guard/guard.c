/* SPDX-License-Identifier: Apache-2.0 */
#include "guard.h"

#include "packet.h"

#define SECOND_NS 1000000000ULL
/* A stack sends its SYN again after a second (RFC 6298, 2.1); less than a fifth of that is a flood that repeats itself. */
#define RETRANSMIT_FROM_NS (SECOND_NS / 5)
#define RETRANSMIT_UNTIL_NS (10 * SECOND_NS)
#define TRUST_NS (60 * SECOND_NS)

static const char *const names[GUARD_VERDICTS] = {
    "passed", "malformed", "flags", "syn_rate", "packet_rate", "syn_guard",
};

const char *guard_name(enum guard_verdict verdict)
{
    return names[verdict];
}

static uint32_t sets_for(uint32_t sources)
{
    uint32_t sets = GUARD_MIN_SOURCES / GUARD_WAYS;

    while (sets * GUARD_WAYS < sources && sets < 1u << 26)
        sets *= 2;
    return sets;
}

size_t guard_table_bytes(uint32_t sources)
{
    return (size_t)sets_for(sources) * GUARD_WAYS * sizeof(struct guard_source);
}

bool guard_init(struct guard *guard, const struct guard_limits *limits, void *table, uint32_t sources,
                uint32_t spread, uint64_t seed)
{
    if (!limits->syn_rate || !limits->syn_burst || !limits->packet_rate || !limits->packet_burst ||
        !limits->guard_rate || !limits->guard_burst || !spread)
        return false;
    *guard = (struct guard){
        .limits = *limits,
        .syn_interval_ns = SECOND_NS / limits->syn_rate,
        .packet_interval_ns = SECOND_NS / limits->packet_rate,
        .guard_interval_ns = SECOND_NS / limits->guard_rate,
        .seed = seed,
        .sets = sets_for(sources),
        .spread = spread,
        .sources = table,
    };
    guard->syn_tolerance_ns = guard->syn_interval_ns * (limits->syn_burst - 1);
    guard->packet_tolerance_ns = guard->packet_interval_ns * (limits->packet_burst - 1);
    guard->guard_tolerance_ns = guard->guard_interval_ns * (limits->guard_burst - 1);
    return true;
}

/* The finalizer of MurmurHash3 (Appleby, public domain), keyed. */
static uint64_t mix(uint64_t value, uint64_t seed)
{
    value ^= seed;
    value = (value ^ value >> 33) * 0xff51afd7ed558ccdULL;
    value = (value ^ value >> 33) * 0xc4ceb9fe1a85ec53ULL;
    return value ^ value >> 33;
}

/* The source's place. A full set gives up the source that has been quiet the longest: a flood from many addresses
 * pushes out others that sent one packet, and not the busy ones, whose buckets are the emptiest. */
static struct guard_source *find(struct guard *guard, uint64_t key)
{
    uint64_t set = mix(key, guard->seed) & (guard->sets - 1);
    struct guard_source *first = guard->sources + set * GUARD_WAYS, *oldest = first, *source;

    for (source = first; source < first + GUARD_WAYS; source++) {
        if (source->key == key)
            return source;
        if (!source->key) {
            source->key = key;
            return source;
        }
        if (source->packet_full_ns < oldest->packet_full_ns)
            oldest = source;
    }
    guard->evictions++;
    *oldest = (struct guard_source){.key = key};
    return oldest;
}

/* While SYNs come too fast altogether, one passes only from a source that has sent one before, at the pace of a stack
 * that got no answer. A forged source never does; a real client connects a second later. */
static bool is_held_back(struct guard *guard, struct guard_source *source, gcra_ns now_ns)
{
    gcra_ns since_ns = now_ns - source->first_syn_ns;

    if (!gcra_take(&guard->guard_full_ns, now_ns, guard->guard_interval_ns, guard->guard_tolerance_ns))
        guard->guarded_until_ns = now_ns + SECOND_NS;
    if (now_ns >= guard->guarded_until_ns || now_ns < source->trusted_until_ns)
        return false;
    if (source->first_syn_ns && since_ns >= RETRANSMIT_FROM_NS && since_ns <= RETRANSMIT_UNTIL_NS) {
        source->trusted_until_ns = now_ns + TRUST_NS;
        return false;
    }
    if (!source->first_syn_ns || since_ns > RETRANSMIT_UNTIL_NS)
        source->first_syn_ns = now_ns;
    return true;
}

static bool has_odd_flags(uint8_t flags)
{
    return !flags || ((flags & TCP_SYN) && (flags & (TCP_FIN | TCP_RST))) || (flags & (TCP_FIN | TCP_RST)) == (TCP_FIN | TCP_RST);
}

static enum guard_verdict judge(struct guard *guard, const struct packet *packet, gcra_ns now_ns)
{
    struct guard_source *source;

    if (packet->kind == PACKET_BROKEN)
        return GUARD_MALFORMED;
    if (packet->kind == PACKET_LOCAL)
        return GUARD_PASS;
    if (packet->kind == PACKET_TCP && has_odd_flags(packet->flags))
        return GUARD_FLAGS;
    source = find(guard, packet->source);
    if (!gcra_take(&source->packet_full_ns, now_ns, guard->packet_interval_ns, guard->packet_tolerance_ns))
        return GUARD_PACKET_RATE;
    if (packet->kind != PACKET_TCP || (packet->flags & (TCP_SYN | TCP_ACK)) != TCP_SYN)
        return GUARD_PASS;
    if (!gcra_take(&source->syn_full_ns, now_ns, guard->syn_interval_ns, guard->syn_tolerance_ns))
        return GUARD_SYN_RATE;
    return is_held_back(guard, source, now_ns) ? GUARD_SYN_GUARD : GUARD_PASS;
}

struct guard_answer guard_judge(struct guard *guard, const uint8_t *data, uint32_t length, gcra_ns now_ns)
{
    struct packet packet = packet_read(data, length);
    struct guard_answer answer = {.verdict = judge(guard, &packet, now_ns)};

    guard->counts[answer.verdict]++;
    if (packet.kind == PACKET_IP || packet.kind == PACKET_TCP)
        answer.way = (uint32_t)(((mix(packet.addresses ^ (uint64_t)packet.ports << 16, guard->seed) >> 32) * guard->spread) >> 32);
    return answer;
}
