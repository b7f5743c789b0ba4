/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of random bytes, each in memory of just its length, so that a sanitizer sees a read behind its end.
 */
#include <stdlib.h>
#include <string.h>

#include "guard.h"

int main(void)
{
    static const uint16_t kinds[] = {0x0008, 0xdd86, 0x0081, 0xa888}; /* IPv4, IPv6 and the VLAN tags, swapped */
    const struct guard_limits limits = {1, 1, 1, 1, 1, 1};
    void *table = calloc(1, guard_table_bytes(64));
    struct guard guard;

    srand(7);
    if (!guard_init(&guard, &limits, table, 64, 3, 7))
        return 1;
    for (gcra_ns now_ns = 1; now_ns < 400000; now_ns++) {
        uint32_t length = 1 + (uint32_t)rand() % 96;
        uint8_t *frame = malloc(length);

        for (uint32_t at = 0; at < length; at++)
            frame[at] = (uint8_t)rand();
        if (length > 14) {
            memcpy(frame + 12, &kinds[rand() % 4], 2);
            frame[14] = rand() % 2 ? 0x45 : 0x60;
        }
        if (length > 24 && rand() % 2)
            frame[rand() % 2 ? 23 : 20] = 6;
        guard_judge(&guard, frame, length, now_ns);
        free(frame);
    }
    free(table);
    return 0;
}
