"""How each process learns that another one has ended or is frozen: MPI does not tell, it waits.

All ranks hold a TCP connection to rank 0, apart from MPI. Each end sends a beat every second, and says how its process
ends if it can; rank 0 passes that on. A connection that closes without such a word means that the process was killed,
one that stays silent for `SILENCE` beats that it or its machine is frozen.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

SILENCE = 15
"""Beats, of a second each, that a living process may leave out. A process counts its own beats for time, so if the
whole machine is frozen for a while nobody is missed."""
FINISHED = "has come to the end of its program"
_LONGEST = 1 << 16
"""Bytes of a message."""


class _Peer:
    """A connection, with what has arrived of the next message."""

    def __init__(self, connection: socket.socket, rank: int) -> None:
        self.connection = connection
        self.rank = rank
        self.silent = 0
        self.arrived = b""

    def send(self, message: dict[str, Any]) -> None:
        # A message is short; if the other end has stopped reading, its silence is noticed anyway.
        with contextlib.suppress(OSError):
            self.connection.send(json.dumps(message).encode() + b"\n")

    def receive(self) -> list[dict[str, Any]] | None:
        """The messages that have arrived; None if the connection is closed."""
        try:
            data = self.connection.recv(_LONGEST)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data or len(self.arrived) > _LONGEST:
            return None
        self.silent = 0
        *lines, self.arrived = (self.arrived + data).split(b"\n")
        return [json.loads(line) for line in lines]


class Heartbeats:
    """Connections of this process with rank 0, or of rank 0 with all.

    `ended`: how other ranks have ended, by rank. `gather` gives every rank's bytes to every rank.
    """

    def __init__(self, rank: int, size: int, gather: Callable[[bytes], list[bytes]]) -> None:
        self.rank, self.size = rank, size
        self.ended: dict[int, str] = {}
        self._stopped = False
        hosts = gather(socket.gethostname().encode())
        self.hosts = [host.decode() for host in hosts]
        one_machine = len(set(hosts)) == 1
        token, listener = secrets.token_bytes(16), None
        if rank == 0:
            listener = socket.create_server(("127.0.0.1" if one_machine else "", 0), backlog=size)
            addresses = ["127.0.0.1"] if one_machine else _own_addresses()
            gather(json.dumps([addresses, listener.getsockname()[1], token.hex()]).encode())
            self._peers = self._accepted(listener, token)
        else:
            addresses, port, code = json.loads(gather(b"")[0])
            connection = _connected(addresses, port)
            connection.sendall(bytes.fromhex(code) + rank.to_bytes(4, "little"))
            self._peers = [_Peer(connection, 0)]
        for peer in self._peers:
            peer.connection.setblocking(False)
        threading.Thread(target=self._beat, name="gluonjit-heartbeats", daemon=True).start()
        # A worker of a DataLoader that outlives its parent must not keep the connection open.
        os.register_at_fork(after_in_child=self._forget)

    def _accepted(self, listener: socket.socket, token: bytes) -> list[_Peer]:
        """The connections of all other ranks; those that do not know the token are closed."""
        found: dict[int, _Peer] = {}
        listener.settimeout(30)
        with listener:
            while len(found) < self.size - 1:
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    missing = ", ".join(self.name(r) for r in range(1, self.size) if r not in found)
                    raise ConnectionError(f"no connection from {missing}") from None
                connection.settimeout(5)
                with contextlib.suppress(OSError):
                    greeting = connection.recv(20, socket.MSG_WAITALL)
                    rank = int.from_bytes(greeting[16:], "little")
                    if secrets.compare_digest(greeting[:16], token) and 0 < rank < self.size and rank not in found:
                        found[rank] = _Peer(connection, rank)
                        continue
                connection.close()
        return list(found.values())

    def _beat(self) -> None:
        with selectors.DefaultSelector() as selector:
            for peer in self._peers:
                selector.register(peer.connection, selectors.EVENT_READ, peer)
            due = time.monotonic() + 1
            while not self._stopped and selector.get_map():
                for key, _ in selector.select(max(0.0, due - time.monotonic())):
                    self._hear(key.data, selector)
                if time.monotonic() < due:
                    continue
                due = time.monotonic() + 1
                for key in list(selector.get_map().values()):
                    peer = key.data
                    peer.send({})
                    peer.silent += 1
                    if peer.silent > SILENCE:
                        self._lose(peer, f"has not been heard of for {SILENCE} s", selector)

    def _hear(self, peer: _Peer, selector: selectors.BaseSelector) -> None:
        messages = peer.receive()
        if messages is None:
            self._lose(peer, "has died", selector)
            return
        for message in messages:
            if "ended" in message:
                self._learn(int(message["ended"]), str(message["how"]))

    def _lose(self, peer: _Peer, how: str, selector: selectors.BaseSelector) -> None:
        selector.unregister(peer.connection)
        self._learn(peer.rank, how)

    def _learn(self, rank: int, how: str) -> None:
        """Takes down how a rank has ended; the first word counts. Rank 0 passes it on."""
        if rank in self.ended or rank == self.rank:
            return
        first = how != FINISHED and not self.lost()
        self.ended[rank] = how
        if first:
            print(f"gluonjit: {self.name(rank)} {how} (seen by rank {self.rank})", file=sys.stderr, flush=True)
        if self.rank == 0:
            for peer in self._peers:
                peer.send({"ended": rank, "how": how})

    def tell(self, how: str) -> None:
        """Says how this process ends."""
        for peer in self._peers:
            peer.send({"ended": self.rank, "how": how[:1000]})

    def lost(self) -> dict[int, str]:
        """How other ranks have ended, without those that came to the end of their program."""
        return {rank: how for rank, how in list(self.ended.items()) if how != FINISHED}

    def name(self, rank: int) -> str:
        return f"rank {rank} (on {self.hosts[rank]})"

    def _forget(self) -> None:
        self._stopped = True
        for peer in self._peers:
            peer.connection.close()


def _own_addresses() -> list[str]:
    """Addresses under which other machines may reach this one."""
    name = socket.gethostname()
    found = {str(info[4][0]) for info in socket.getaddrinfo(name, None, socket.AF_INET)}
    # The address of the interface that leads outside. Connecting a datagram socket sends nothing.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))
        found.add(probe.getsockname()[0])
    return sorted(found, key=lambda a: a.startswith("127."))


def _connected(addresses: list[str], port: int) -> socket.socket:
    for address in addresses:
        with contextlib.suppress(OSError):
            return socket.create_connection((address, port), timeout=5)
    raise ConnectionError(
        f"rank 0 cannot be reached at {', '.join(addresses)}, port {port}: the machines must be able to open TCP "
        "connections to it"
    )
