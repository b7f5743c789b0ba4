/* SPDX-License-Identifier: Apache-2.0
 *
 * The generic cell rate algorithm (ITU-T I.371, annex A): a token bucket that is one number, the time at which the
 * bucket would be full again. Plain C without a library, so that the DPDK front and the XDP program share it.
 */
#ifndef SSOP_GCRA_H
#define SSOP_GCRA_H

typedef unsigned long long gcra_ns;

/* Take one token from the bucket `*full_ns` at `now_ns`; 0 if it is empty, and then nothing is changed.
 *
 * `interval_ns` is the time in which one token comes, `tolerance_ns` (burst - 1) intervals. A bucket of 0 is full.
 */
static inline __attribute__((always_inline)) int gcra_take(
    gcra_ns *full_ns, gcra_ns now_ns, gcra_ns interval_ns, gcra_ns tolerance_ns)
{
    gcra_ns start_ns = *full_ns > now_ns ? *full_ns : now_ns;

    if (start_ns - now_ns > tolerance_ns)
        return 0;
    *full_ns = start_ns + interval_ns;
    return 1;
}

#endif
