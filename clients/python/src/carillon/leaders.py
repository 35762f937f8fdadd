"""Who leads which shard."""

from __future__ import annotations

import re
import struct
from typing import Dict, List, Optional

_HEADER = re.compile(r'"([^"]+)";shard=(\d{1,5});shards=(\d{1,5})')
_MAX_SHARDS = 65535


class Leaders:
    """What answers have said of who leads which shard. It knows only the nodes that it was made
    with: no answer makes the client send a request, or a token, anywhere else. Memory is
    O(shards). Threads may share it: each of its steps replaces one value."""

    def __init__(self, addresses: List[str]) -> None:
        self._nodes: Dict[str, int] = {address: index for index, address in enumerate(addresses)}
        self._shards: List[Optional[int]] = []  # by shard - 1: the index of the node

    def node(self, topic: str, id: str) -> Optional[int]:
        """The index of the node that leads a timer's shard. An empty id is that of no timer."""
        shards = self._shards
        return shards[shard_of(topic, id, len(shards)) - 1] if shards and id else None

    def learn(self, header: str) -> None:
        """Takes over what an answer's Carillon-Leader says. A text of any other form changes
        nothing."""
        match = _HEADER.fullmatch(header)
        if not match or not 1 <= int(match[2]) <= int(match[3]) <= _MAX_SHARDS:
            return
        if len(self._shards) != int(match[3]):
            self._shards = [None] * int(match[3])
        self._shards[int(match[2]) - 1] = self._nodes.get(match[1])

    def forget(self, topic: str, id: str) -> None:
        """Makes the leader of a timer's shard unknown, after a request to it that had no answer."""
        shards = self._shards
        if shards and id:
            shards[shard_of(topic, id, len(shards)) - 1] = None


_MADE = re.compile("s([0-9a-f]{4})-[0-9a-v]{20}")
_KEY = re.compile(r"\{([^}]+)\}")


def shard_of(topic: str, id: str, shards: int) -> int:
    """The shard of a timer, 1 to shards: 1 + xxh64(topic, a zero byte, key or id) mod shards. An
    id that the cluster made names its shard itself."""
    made = _MADE.fullmatch(id)
    if made and int(made[1], 16) > 0:
        return 1 + (int(made[1], 16) - 1) % shards
    key = _KEY.match(id)
    return 1 + xxh64(f"{topic}\0{key[1] if key else id}".encode()) % shards


_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_MASK = (1 << 64) - 1


def _rotate(n: int, by: int) -> int:
    return (n << by | n >> (64 - by)) & _MASK


def _round(lane: int, value: int) -> int:
    return _rotate((lane + value * _P2) & _MASK, 31) * _P1 & _MASK


def xxh64(b: bytes) -> int:
    """The 64-bit xxHash with seed 0 (github.com/Cyan4973/xxHash, doc/xxhash_spec.md)."""
    at, h = 0, _P5
    if len(b) >= 32:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        for at in range(0, len(b) - 31, 32):
            lanes = [_round(lane, value) for lane, value in zip(lanes, struct.unpack_from("<4Q", b, at))]
        at += 32
        h = sum(_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18))) & _MASK
        for lane in lanes:
            h = ((h ^ _round(0, lane)) * _P1 + _P4) & _MASK
    h = (h + len(b)) & _MASK
    while at + 8 <= len(b):
        h = (_rotate(h ^ _round(0, int.from_bytes(b[at : at + 8], "little")), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(b):
        h = (_rotate(h ^ int.from_bytes(b[at : at + 4], "little") * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in b[at:]:
        h = _rotate(h ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    h = (h ^ h >> 33) * _P2 & _MASK
    h = (h ^ h >> 29) * _P3 & _MASK
    return h ^ h >> 32
