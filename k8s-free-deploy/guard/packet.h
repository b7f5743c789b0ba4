/* SPDX-License-Identifier: Apache-2.0
 *
 * The few fields of a frame that the guard judges by. Reads bytes, never structs: packets are not aligned.
 */
#ifndef SSOP_PACKET_H
#define SSOP_PACKET_H

#include <stdbool.h>
#include <stdint.h>

enum packet_kind {
    PACKET_BROKEN,
    PACKET_LOCAL, /* ARP and what else is no IP: for the first way */
    PACKET_IP,    /* IP of which no ports are known: other protocols, later fragments, extension headers */
    PACKET_TCP
};

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10
#define TCP_KNOWN 0x3f

struct packet {
    enum packet_kind kind;
    uint64_t source;     /* key of guard_source, never 0 for IP */
    uint64_t addresses;  /* mixed from both addresses: the same for all packets of a flow in this direction */
    uint32_t ports;      /* source in the high half; 0 if not TCP */
    uint8_t flags;       /* of TCP */
};

static inline uint32_t be16(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static inline uint64_t be32(const uint8_t *at)
{
    return (uint64_t)be16(at) << 16 | be16(at + 2);
}

static inline uint64_t be64(const uint8_t *at)
{
    return be32(at) << 32 | be32(at + 4);
}

/* Of IPv4 the key lies where IPv6 has multicast, which is never a source. */
#define PACKET_V4_KEY 0xffffffff00000000ULL

static inline struct packet packet_read_tcp(struct packet packet, const uint8_t *at, uint32_t length)
{
    if (length < 20 || (at[12] >> 4) < 5 || (uint32_t)(at[12] >> 4) * 4 > length) {
        packet.kind = PACKET_BROKEN;
        return packet;
    }
    packet.kind = PACKET_TCP;
    packet.ports = (uint32_t)be32(at);
    packet.flags = at[13] & TCP_KNOWN;
    return packet;
}

static inline struct packet packet_read_v4(const uint8_t *at, uint32_t length)
{
    struct packet packet = {.kind = PACKET_BROKEN};
    uint32_t head = (uint32_t)(at[0] & 0x0f) * 4, total;

    if (length < 20 || at[0] >> 4 != 4 || head < 20 || head > length)
        return packet;
    total = be16(at + 2);
    if (total < head || total > length)
        return packet;
    packet.kind = PACKET_IP;
    packet.source = PACKET_V4_KEY | be32(at + 12);
    packet.addresses = be32(at + 12) << 32 | be32(at + 16);
    if (at[9] != 6)
        return packet;
    /* The first fragment of several is the only one with ports; all of them go by addresses alone, to stay together. */
    if (be16(at + 6) & 0x3fff)
        return packet;
    return packet_read_tcp(packet, at + head, total - head);
}

static inline struct packet packet_read_v6(const uint8_t *at, uint32_t length)
{
    struct packet packet = {.kind = PACKET_BROKEN};
    uint32_t payload;

    if (length < 40 || at[0] >> 4 != 6)
        return packet;
    payload = be16(at + 4);
    if (payload > length - 40)
        return packet;
    packet.kind = PACKET_IP;
    packet.source = be64(at + 8) ? be64(at + 8) : 1;
    packet.addresses = be64(at + 8) * 31 + be64(at + 16) * 29 + be64(at + 24) * 23 + be64(at + 32);
    if (at[6] != 6)
        return packet;
    return packet_read_tcp(packet, at + 40, payload);
}

/* Read an Ethernet frame, with up to two VLAN tags (IEEE 802.1Q, 802.1ad). */
static inline struct packet packet_read(const uint8_t *data, uint32_t length)
{
    struct packet packet = {.kind = PACKET_BROKEN};
    uint32_t at = 12, type;
    int tags;

    if (length < 14)
        return packet;
    type = be16(data + at);
    for (tags = 0; (type == 0x8100 || type == 0x88a8) && tags < 2; tags++) {
        at += 4;
        if (length < at + 2)
            return packet;
        type = be16(data + at);
    }
    at += 2;
    if (type == 0x0800 && length > at)
        return packet_read_v4(data + at, length - at);
    if (type == 0x86dd && length > at)
        return packet_read_v6(data + at, length - at);
    if (type == 0x0800 || type == 0x86dd)
        return packet;
    packet.kind = PACKET_LOCAL;
    return packet;
}

#endif
