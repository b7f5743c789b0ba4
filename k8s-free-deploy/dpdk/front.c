/* SPDX-License-Identifier: Apache-2.0
 *
 * The DPDK front: takes frames from the wire in user space, drops what the guard drops, and hands the rest to the
 * kernel over taps, where nginx listens; what the kernel sends goes out on the wire. TCP stays the kernel's.
 *
 * Port 0 is the wire, the others are taps. Worker k serves the wire's queue k, every tap t with t mod workers = k, and
 * has a guard of its own. The NIC spreads by addresses, so that one source meets one guard.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_telemetry.h>

#include "../guard/guard.h"

#define WIRE 0
#define BURST 32
#define RING 1024
#define POOL_PER_PORT 8192
#define MAX_WORKERS 16
#define MAX_TAPS 16
/* Polls without a packet after which a worker sleeps, where sleeping is allowed. */
#define IDLE_POLLS 64

struct options {
    struct guard_limits limits;
    uint32_t sources;
    uint32_t idle_us;
};

struct worker {
    struct guard guard;
    uint16_t queue, taps;
    uint16_t tap_ports[MAX_TAPS];
    uint64_t from_wire, to_taps, from_taps, to_wire, tap_full, wire_full;
} __rte_cache_aligned;

static volatile sig_atomic_t is_stopping;
static struct worker workers[MAX_WORKERS];
static uint16_t worker_count;
static uint32_t idle_us;

static void stop(int number)
{
    (void)number;
    is_stopping = 1;
}

static uint64_t now_ns(void)
{
    /* Split, because cycles times a thousand million runs over after a few seconds. */
    uint64_t hz = rte_get_tsc_hz(), cycles = rte_get_tsc_cycles();

    return cycles / hz * 1000000000ULL + cycles % hz * 1000000000ULL / hz + 1;
}

static uint64_t send_all(uint16_t port, uint16_t queue, struct rte_mbuf **frames, uint16_t count, uint64_t *lost)
{
    uint16_t sent = rte_eth_tx_burst(port, queue, frames, count);

    if (sent < count) {
        *lost += count - sent;
        rte_pktmbuf_free_bulk(frames + sent, count - sent);
    }
    return sent;
}

static uint16_t move_from_wire(struct worker *worker)
{
    struct rte_mbuf *frames[BURST], *ways[MAX_TAPS][BURST];
    uint16_t filled[MAX_TAPS] = {0}, count, index;
    uint64_t at_ns;

    count = rte_eth_rx_burst(WIRE, worker->queue, frames, BURST);
    if (!count)
        return 0;
    at_ns = now_ns();
    worker->from_wire += count;
    for (index = 0; index < count; index++) {
        const uint8_t *data = rte_pktmbuf_mtod(frames[index], const uint8_t *);
        struct guard_answer answer = guard_judge(&worker->guard, data, rte_pktmbuf_data_len(frames[index]), at_ns);

        if (answer.verdict == GUARD_PASS)
            ways[answer.way][filled[answer.way]++] = frames[index];
        else
            rte_pktmbuf_free(frames[index]);
    }
    for (index = 0; index < worker->taps; index++)
        if (filled[index])
            worker->to_taps += send_all(worker->tap_ports[index], 0, ways[index], filled[index], &worker->tap_full);
    return count;
}

static uint16_t move_from_taps(struct worker *worker)
{
    struct rte_mbuf *frames[BURST];
    uint16_t index, count, all = 0;

    for (index = 0; index < worker->taps; index++) {
        count = rte_eth_rx_burst(worker->tap_ports[index], 0, frames, BURST);
        if (!count)
            continue;
        all += count;
        worker->from_taps += count;
        worker->to_wire += send_all(WIRE, worker->queue, frames, count, &worker->wire_full);
    }
    return all;
}

static int work(void *argument)
{
    struct worker *worker = argument;
    uint32_t idle = 0;

    while (!is_stopping) {
        if (move_from_wire(worker) + move_from_taps(worker))
            idle = 0;
        else if (idle_us && ++idle > IDLE_POLLS)
            rte_delay_us_sleep(idle_us);
    }
    return 0;
}

static int answer_stats(const char *command, const char *parameters, struct rte_tel_data *data)
{
    struct worker sum = {0};
    uint16_t index;
    int verdict;

    (void)command;
    (void)parameters;
    for (index = 0; index < worker_count; index++) {
        const struct worker *worker = &workers[index];

        sum.from_wire += worker->from_wire;
        sum.to_taps += worker->to_taps;
        sum.from_taps += worker->from_taps;
        sum.to_wire += worker->to_wire;
        sum.tap_full += worker->tap_full;
        sum.wire_full += worker->wire_full;
        sum.guard.evictions += worker->guard.evictions;
        for (verdict = 0; verdict < GUARD_VERDICTS; verdict++)
            sum.guard.counts[verdict] += worker->guard.counts[verdict];
    }
    rte_tel_data_start_dict(data);
    rte_tel_data_add_dict_u64(data, "from_wire", sum.from_wire);
    rte_tel_data_add_dict_u64(data, "to_taps", sum.to_taps);
    rte_tel_data_add_dict_u64(data, "from_taps", sum.from_taps);
    rte_tel_data_add_dict_u64(data, "to_wire", sum.to_wire);
    rte_tel_data_add_dict_u64(data, "tap_full", sum.tap_full);
    rte_tel_data_add_dict_u64(data, "wire_full", sum.wire_full);
    rte_tel_data_add_dict_u64(data, "evictions", sum.guard.evictions);
    for (verdict = 0; verdict < GUARD_VERDICTS; verdict++)
        rte_tel_data_add_dict_u64(data, guard_name(verdict), sum.guard.counts[verdict]);
    return 0;
}

static void start_port(uint16_t port, uint16_t queues, struct rte_mempool *pool)
{
    struct rte_eth_conf conf = {0};
    struct rte_eth_dev_info info;
    uint16_t rx = RING, tx = RING, queue;
    int socket = rte_eth_dev_socket_id(port);

    if (rte_eth_dev_info_get(port, &info))
        rte_exit(EXIT_FAILURE, "port %u says nothing of itself\n", port);
    if (queues > info.max_rx_queues || queues > info.max_tx_queues)
        rte_exit(EXIT_FAILURE, "port %u has no %u queues; give fewer cores\n", port, queues);
    if (queues > 1) {
        conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf = RTE_ETH_RSS_IP & info.flow_type_rss_offloads;
        if (!conf.rx_adv_conf.rss_conf.rss_hf)
            rte_exit(EXIT_FAILURE, "port %u can't spread by addresses; give one core\n", port);
    }
    if (rte_eth_dev_configure(port, queues, queues, &conf) || rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx))
        rte_exit(EXIT_FAILURE, "port %u can't be configured\n", port);
    for (queue = 0; queue < queues; queue++)
        if (rte_eth_rx_queue_setup(port, queue, rx, socket, NULL, pool) || rte_eth_tx_queue_setup(port, queue, tx, socket, NULL))
            rte_exit(EXIT_FAILURE, "port %u, queue %u can't be set up\n", port, queue);
    if (rte_eth_dev_start(port))
        rte_exit(EXIT_FAILURE, "port %u can't be started\n", port);
}

static uint32_t read_number(const char *name, const char *text, uint32_t least)
{
    char *end;
    unsigned long number;

    errno = 0;
    number = strtoul(text, &end, 10);
    if (errno || *text < '0' || *text > '9' || *end || number < least || number > 1000000000UL)
        rte_exit(EXIT_FAILURE, "--%s takes a number from %u to 1000000000\n", name, least);
    return (uint32_t)number;
}

static struct options read_options(int argc, char **argv)
{
    static const struct option known[] = {
        {"syn-rate", required_argument, NULL, 0},   {"syn-burst", required_argument, NULL, 1},
        {"packet-rate", required_argument, NULL, 2}, {"packet-burst", required_argument, NULL, 3},
        {"guard-rate", required_argument, NULL, 4}, {"guard-burst", required_argument, NULL, 5},
        {"sources", required_argument, NULL, 6},    {"idle-us", required_argument, NULL, 7},
        {0},
    };
    struct options options = {
        .limits = {.syn_rate = 50, .syn_burst = 200, .packet_rate = 50000, .packet_burst = 100000,
                   .guard_rate = 5000, .guard_burst = 5000},
        .sources = 65536,
        .idle_us = 0,
    };
    uint32_t *const places[] = {
        &options.limits.syn_rate, &options.limits.syn_burst, &options.limits.packet_rate, &options.limits.packet_burst,
        &options.limits.guard_rate, &options.limits.guard_burst, &options.sources, &options.idle_us,
    };
    int found, index;

    while ((found = getopt_long(argc, argv, "", known, &index)) != -1) {
        if (found == '?')
            rte_exit(EXIT_FAILURE, "known options: --syn-rate --syn-burst --packet-rate --packet-burst --guard-rate "
                                   "--guard-burst --sources --idle-us\n");
        *places[found] = read_number(known[found].name, optarg, found == 7 ? 0 : 1);
    }
    if (optind != argc)
        rte_exit(EXIT_FAILURE, "'%s' is no option\n", argv[optind]);
    return options;
}

static void set_up_worker(struct worker *worker, uint16_t number, uint16_t taps, const struct options *options)
{
    void *table = rte_zmalloc("guard", guard_table_bytes(options->sources), RTE_CACHE_LINE_SIZE);
    uint64_t seed;
    uint16_t tap;

    if (!table || getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
        rte_exit(EXIT_FAILURE, "no memory for %u sources\n", options->sources);
    worker->queue = number;
    for (tap = number; tap < taps; tap += worker_count)
        worker->tap_ports[worker->taps++] = WIRE + 1 + tap;
    if (!guard_init(&worker->guard, &options->limits, table, options->sources, worker->taps, seed))
        rte_exit(EXIT_FAILURE, "limits are from 1\n");
}

int main(int argc, char **argv)
{
    int taken = rte_eal_init(argc, argv);
    struct rte_mempool *pool;
    struct options options;
    uint16_t ports, index;
    unsigned int core;

    if (taken < 0)
        rte_exit(EXIT_FAILURE, "the arguments before -- can't be used\n");
    options = read_options(argc - taken, argv + taken);
    idle_us = options.idle_us;
    ports = rte_eth_dev_count_avail();
    worker_count = (uint16_t)rte_lcore_count();
    if (ports < 2 || ports > MAX_TAPS + 1 || worker_count > MAX_WORKERS)
        rte_exit(EXIT_FAILURE, "needs one wire, 1 to %d taps and 1 to %d cores\n", MAX_TAPS, MAX_WORKERS);
    if (worker_count > ports - 1)
        rte_exit(EXIT_FAILURE, "%u cores need as many taps\n", worker_count);
    pool = rte_pktmbuf_pool_create("frames", POOL_PER_PORT * ports, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, (int)rte_socket_id());
    if (!pool)
        rte_exit(EXIT_FAILURE, "no memory for frames: %s\n", rte_strerror(rte_errno));
    for (index = 0; index < worker_count; index++)
        set_up_worker(&workers[index], index, ports - 1, &options);
    for (index = 0; index < ports; index++)
        start_port(index, index == WIRE ? worker_count : 1, pool);
    rte_eth_promiscuous_enable(WIRE);
    rte_telemetry_register_cmd("/ssop/front", answer_stats, "Frames moved, and frames dropped by reason. No parameters.");
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    printf("ssop-front: forwarding, %u taps, %u cores\n", ports - 1, worker_count);
    fflush(stdout);
    index = 1;
    RTE_LCORE_FOREACH_WORKER(core)
        rte_eal_remote_launch(work, &workers[index++], core);
    work(&workers[0]);
    rte_eal_mp_wait_lcore();
    for (index = 0; index < ports; index++)
        rte_eth_dev_stop(index);
    rte_eal_cleanup();
    return 0;
}
