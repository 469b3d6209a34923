"""The connections of gRPC's port. gRPC accepts them itself and says nothing of them, so they are found among the
process's descriptors; the kernel knows whose they are, and how long nothing has come. Linux only."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
import urllib.parse
from collections import Counter
from collections.abc import Iterator

from gluonjit.tools.serving.limits import Shares, client

_FOLDER = "/proc/self/fd"
_SILENT_AT = 52
"""Where `struct tcp_info` has the milliseconds since data came (tcpi_last_data_recv)."""


Peer = tuple[str, int]
"""A client's address and port."""


def peer_of(text: str) -> Peer:
    """What gRPC calls a peer, such as ipv4:127.0.0.1:1234 or ipv6:%5B::1%5D:1234."""
    address, _, port = urllib.parse.unquote(text).partition(":")[2].rpartition(":")
    return _plain(address.strip("[]")), int(port) if port.isdecimal() else 0


def _plain(address: str) -> str:
    return address.removeprefix("::ffff:")  # IPv4 at a socket of IPv6


class Connections:
    def __init__(self, port: int, most: int, share: float) -> None:
        self._port, self._most, self._share = port, most, share
        self.calls: Counter[Peer] = Counter()
        """The number of running calls of each peer."""
        self._peers: dict[int, Peer | None] = {}
        """The peers of the sockets that were seen at the last look, by inode; None if a socket is none of gRPC's."""

    def limit(self) -> None:
        """Closes connections without a call, those first that are silent for longest, until each client has its share
        at most, and there is room for others."""
        found = self._all()
        shares = Shares(self._most, self._share)
        for peer in found.values():
            shares.take(client(peer[0]), 1)
        room = self._most * 7 // 8
        if shares.used <= room and all(shares.fits(who, 0) for who in shares.by_client):
            return
        for descriptor, peer in sorted(found.items(), key=lambda item: -_silent(item[0])):
            who = client(peer[0])
            crowded = shares.used > room and shares.by_client[who] == max(shares.by_client.values())
            if peer not in self.calls and (crowded or not shares.fits(who, 0)):
                _shut(descriptor, peer)
                shares.give(who, 1)

    def end(self, peer: Peer) -> None:
        """Closes the connection of a client that does not take its answer."""
        for descriptor, of in self._all().items():
            if of == peer:
                _shut(descriptor, peer)

    def _all(self) -> dict[int, Peer]:
        """The descriptors of all connections."""
        try:
            descriptors = list(map(int, os.listdir(_FOLDER)))
        except OSError:  # no descriptor is left for it, or this is another system: gRPC's own limits hold
            return {}
        found, seen = {}, {}
        for descriptor in descriptors:
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISSOCK(status.st_mode):
                    continue
                inode = status.st_ino
                seen[inode] = self._peers[inode] if inode in self._peers else self._peer(descriptor)
            except OSError:  # it was closed meanwhile
                continue
            peer = seen[inode]
            if peer is not None:
                found[descriptor] = peer
        self._peers = seen
        return found

    def _peer(self, descriptor: int) -> Peer | None:
        with _opened(descriptor) as found:
            if found.family not in (socket.AF_INET, socket.AF_INET6) or found.getsockname()[1] != self._port:
                return None
            try:
                address, port = found.getpeername()[:2]
            except OSError:  # the socket that listens; or the client has gone
                return None
            return _plain(address), port


@contextlib.contextmanager
def _opened(descriptor: int) -> Iterator[socket.socket]:
    """A socket of another owner."""
    found = socket.socket(fileno=descriptor)
    try:
        yield found
    finally:
        found.detach()


def _silent(descriptor: int) -> int:
    """Milliseconds since data came."""
    try:
        with _opened(descriptor) as found:
            about = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    except OSError:
        return 0
    return int.from_bytes(about[_SILENT_AT : _SILENT_AT + 4], sys.byteorder)


def _shut(descriptor: int, peer: Peer) -> None:
    """gRPC sees the connection's end, and closes it. A duplicate is looked at first: the descriptor may be another's by
    now."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as found:
        address, port = found.getpeername()[:2]
        if (_plain(address), port) == peer:
            found.shutdown(socket.SHUT_RDWR)
