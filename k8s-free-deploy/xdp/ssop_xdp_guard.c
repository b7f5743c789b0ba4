/* SPDX-License-Identifier: Apache-2.0
 *
 * Puts the XDP guard on an interface, says what it did, and takes it off. Nothing stays running: program and maps are
 * pinned below /sys/fs/bpf. Exit codes: 0 done, 1 failed, 2 wrong usage.
 */
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <getopt.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guard.h"

#define PINS "/sys/fs/bpf/ssop-xdp-guard"
#define SECOND_NS 1000000000ULL
#define MAX_TRUSTED 256

static const char *const verdicts[XDP_VERDICTS] = {"passed", "malformed", "flags", "syn_rate", "packet_rate"};
static const char *const map_names[] = {"sources", "counts", "trusted"};

struct options {
	const char *object;
	unsigned long syn_rate, syn_burst, packet_rate, packet_burst;
	__u32 flags;
	struct trusted_prefix trusted[MAX_TRUSTED];
	int trusted_count;
};

static int failed(const char *what)
{
	fprintf(stderr, "ssop-xdp-guard: %s: %s\n", what, strerror(errno));
	return 1;
}

static int usage(void)
{
	fputs("usage: ssop-xdp-guard attach INTERFACE [--object FILE] [--syn-rate N] [--syn-burst N]\n"
	      "                      [--packet-rate N] [--packet-burst N] [--trust PREFIX]... [--mode auto|native|generic]\n"
	      "       ssop-xdp-guard stats INTERFACE     counters, in Prometheus' text format\n"
	      "       ssop-xdp-guard detach INTERFACE\n"
	      "rates are per second and source (an IPv4 address, or an IPv6 /64), from 1 to 1000000000\n",
	      stderr);
	return 2;
}

static void pin_path(char *path, size_t bytes, const char *interface, const char *name)
{
	snprintf(path, bytes, PINS "/%s%s%s", interface, *name ? "/" : "", name);
}

static bool read_number(const char *text, unsigned long *number)
{
	char *end;

	errno = 0;
	*number = strtoul(text, &end, 10);
	return !errno && *text >= '0' && *text <= '9' && !*end && *number >= 1 && *number <= SECOND_NS;
}

static bool read_prefix(const char *text, struct trusted_prefix *prefix)
{
	char address[64], *slash;
	unsigned long bits;
	bool is_v4;

	if (snprintf(address, sizeof(address), "%s", text) >= (int)sizeof(address))
		return false;
	slash = strchr(address, '/');
	if (slash)
		*slash++ = 0;
	memset(prefix, 0, sizeof(*prefix));
	is_v4 = inet_pton(AF_INET, address, prefix->bytes + 12) == 1;
	if (is_v4)
		prefix->bytes[10] = prefix->bytes[11] = 0xff;
	else if (inet_pton(AF_INET6, address, prefix->bytes) != 1)
		return false;
	bits = is_v4 ? 32 : 128;
	if (slash && !read_number(slash, &bits))
		return false;
	if (bits > (is_v4 ? 32 : 128))
		return false;
	prefix->bits = (__u32)bits + (is_v4 ? 96 : 0);
	return true;
}

/* Read the options of `attach`; false after a message. */
static bool read_options(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{"object", required_argument, NULL, 'o'},	{"syn-rate", required_argument, NULL, 's'},
		{"syn-burst", required_argument, NULL, 'S'},	{"packet-rate", required_argument, NULL, 'p'},
		{"packet-burst", required_argument, NULL, 'P'}, {"trust", required_argument, NULL, 't'},
		{"mode", required_argument, NULL, 'm'},		{0},
	};
	int found;

	while ((found = getopt_long(argc, argv, "", known, NULL)) != -1) {
		bool is_good = true;

		if (found == 'o')
			options->object = optarg;
		else if (found == 's')
			is_good = read_number(optarg, &options->syn_rate);
		else if (found == 'S')
			is_good = read_number(optarg, &options->syn_burst);
		else if (found == 'p')
			is_good = read_number(optarg, &options->packet_rate);
		else if (found == 'P')
			is_good = read_number(optarg, &options->packet_burst);
		else if (found == 't')
			is_good = options->trusted_count < MAX_TRUSTED &&
				  read_prefix(optarg, &options->trusted[options->trusted_count++]);
		else if (found == 'm' && !strcmp(optarg, "native"))
			options->flags = XDP_FLAGS_DRV_MODE;
		else if (found == 'm' && !strcmp(optarg, "generic"))
			options->flags = XDP_FLAGS_SKB_MODE;
		else
			is_good = found == 'm' && !strcmp(optarg, "auto");
		if (!is_good) {
			if (optarg)
				fprintf(stderr, "ssop-xdp-guard: '%s' can't be used\n", optarg);
			return false;
		}
	}
	return optind == argc;
}

/* Load program and maps, with the limits in place. */
static struct bpf_object *load(const struct options *options)
{
	struct xdp_limits limits = {
		.syn_interval_ns = SECOND_NS / options->syn_rate,
		.packet_interval_ns = SECOND_NS / options->packet_rate,
	};
	struct bpf_object *object = bpf_object__open_file(options->object, NULL);
	struct bpf_map *constants = object ? bpf_object__find_map_by_name(object, ".rodata.limits") : NULL;
	const __u8 yes = 1;

	if (!constants)
		return NULL;
	limits.syn_tolerance_ns = limits.syn_interval_ns * (options->syn_burst - 1);
	limits.packet_tolerance_ns = limits.packet_interval_ns * (options->packet_burst - 1);
	if (bpf_map__set_initial_value(constants, &limits, sizeof(limits)) || bpf_object__load(object))
		return NULL;
	for (int index = 0; index < options->trusted_count; index++)
		if (bpf_map_update_elem(bpf_object__find_map_fd_by_name(object, "trusted"), &options->trusted[index], &yes,
					BPF_ANY))
			return NULL;
	return object;
}

static void unpin(const char *interface)
{
	char path[256];

	for (size_t index = 0; index < sizeof(map_names) / sizeof(*map_names); index++) {
		pin_path(path, sizeof(path), interface, map_names[index]);
		unlink(path);
	}
	pin_path(path, sizeof(path), interface, "program");
	unlink(path);
	pin_path(path, sizeof(path), interface, "");
	rmdir(path);
}

static int pin(const char *interface, struct bpf_object *object, int program)
{
	char path[256];

	unpin(interface);
	if (mkdir(PINS, 0700) && errno != EEXIST)
		return -1;
	pin_path(path, sizeof(path), interface, "");
	if (mkdir(path, 0700))
		return -1;
	for (size_t index = 0; index < sizeof(map_names) / sizeof(*map_names); index++) {
		pin_path(path, sizeof(path), interface, map_names[index]);
		if (bpf_obj_pin(bpf_object__find_map_fd_by_name(object, map_names[index]), path))
			return -1;
	}
	pin_path(path, sizeof(path), interface, "program");
	return bpf_obj_pin(program, path);
}

/* A guard that is there is replaced without a moment between; anybody else's program is left, and that is an error. */
static int set_program(const char *interface, int index, int program, __u32 flags)
{
	LIBBPF_OPTS(bpf_xdp_attach_opts, ours);
	char path[256];

	pin_path(path, sizeof(path), interface, "program");
	ours.old_prog_fd = bpf_obj_get(path);
	if (ours.old_prog_fd >= 0 && !bpf_xdp_attach(index, program, flags | XDP_FLAGS_REPLACE, &ours))
		return 0;
	/* Pins stay when an interface goes; one that was made anew has no program. */
	return bpf_xdp_attach(index, program, flags | XDP_FLAGS_UPDATE_IF_NOEXIST, NULL);
}

static int attach(const char *interface, unsigned int index, const struct options *options)
{
	struct bpf_object *object = load(options);
	int program;

	if (!object)
		return failed(options->object);
	program = bpf_program__fd(bpf_object__find_program_by_name(object, "ssop_guard"));
	if (set_program(interface, (int)index, program, options->flags))
		return failed(errno == EBUSY || errno == EEXIST ? "another XDP program is on the interface" : interface);
	if (!pin(interface, object, program))
		return 0;
	failed(PINS);
	bpf_xdp_detach((int)index, options->flags, NULL);
	unpin(interface);
	return 1;
}

static int detach(const char *interface, unsigned int index)
{
	LIBBPF_OPTS(bpf_xdp_attach_opts, ours);
	char path[256];

	pin_path(path, sizeof(path), interface, "program");
	ours.old_prog_fd = bpf_obj_get(path);
	if (ours.old_prog_fd < 0)
		return 0;
	/* An interface that was made anew has lost its program, and keeps the pins. */
	if (bpf_xdp_detach((int)index, 0, &ours) && errno != ENOENT && errno != EEXIST)
		return failed(interface);
	unpin(interface);
	return 0;
}

static int print_stats(const char *interface)
{
	int cpus = libbpf_num_possible_cpus();
	__u64 counts[cpus > 0 ? cpus : 1];
	char path[256];
	int map;

	pin_path(path, sizeof(path), interface, "counts");
	map = bpf_obj_get(path);
	if (map < 0)
		return failed(path);
	puts("# HELP ssop_guard_packets_total Packets by what the guard did with them; all but passed were dropped.\n"
	     "# TYPE ssop_guard_packets_total counter");
	for (__u32 verdict = 0; verdict < XDP_VERDICTS; verdict++) {
		__u64 sum = 0;

		if (bpf_map_lookup_elem(map, &verdict, counts))
			return failed(path);
		for (int cpu = 0; cpu < cpus; cpu++)
			sum += counts[cpu];
		printf("ssop_guard_packets_total{guard=\"xdp\",interface=\"%s\",verdict=\"%s\"} %llu\n", interface,
		       verdicts[verdict], (unsigned long long)sum);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct options options = {
		.object = "/usr/lib/ssop/guard.bpf.o",
		.syn_rate = 50,
		.syn_burst = 200,
		.packet_rate = 50000,
		.packet_burst = 100000,
	};
	unsigned int index;

	if (argc < 3)
		return usage();
	index = if_nametoindex(argv[2]);
	if (!index)
		return failed(argv[2]);
	if (!strcmp(argv[1], "attach"))
		return read_options(argc - 2, argv + 2, &options) ? attach(argv[2], index, &options) : usage();
	if (argc == 3 && !strcmp(argv[1], "stats"))
		return print_stats(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "detach"))
		return detach(argv[2], index);
	return usage();
}
