"""The port that the server takes, and how its connections send."""

import socket

from app.cli import _listen
from app.settings import Settings


def test_small_parts_of_an_answer_are_sent_at_once() -> None:
    with (
        _listen(Settings(port=0)) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
