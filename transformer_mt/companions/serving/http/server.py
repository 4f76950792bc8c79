"""The HTTP server: uvicorn with its limits, and an orderly end."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from transformer_mt.companions.serving.batcher import start_batcher
from transformer_mt.companions.serving.http.admission import Admission
from transformer_mt.companions.serving.http.file_routes import FileRoutes, TranslatedFiles
from transformer_mt.companions.serving.http.info_routes import InfoRoutes, Metrics, page_routes
from transformer_mt.companions.serving.http.limits import ApiKeys, Limits
from transformer_mt.companions.serving.http.requests import client_disconnected, error_response
from transformer_mt.companions.serving.http.text_routes import TextRoutes
from transformer_mt.companions.serving.models import Directions, Models, Offer
from transformer_mt.errors import InputError, Setting
from transformer_mt.messages import say
from transformer_mt.translator import Translator

try:
    import resource
except ImportError:  # on Windows
    resource = None  # type: ignore[assignment]

_HEADER_SECONDS = 10.0
"""Seconds for a client to send the head of a request, from its first byte; for the first one, from the
connection.
"""
_REST_SECONDS = 60.0
"""Seconds to send the rest of a body that was already answered; some clients read the answer only then."""
_HEADER_BYTES = 16_384
_WRITE_SECONDS = 30.0
"""Seconds for a client to read what was written to it, if more is written than fits the buffers."""


class _Protocol(H11Protocol):
    """A connection that is closed if the client takes too long to send the headers of a request, to send the
    rest of a body that was already answered, or to read its answer.
    """

    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._timer = self.loop.call_later(_HEADER_SECONDS, transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_answered = self.cycle is not None and self.cycle.response_complete
        is_waited_for = self.conn.their_state is h11.SEND_BODY and not is_answered
        if is_waited_for or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._stop_timer()
        elif self._timer is None:
            seconds = _HEADER_SECONDS if self.conn.their_state is h11.IDLE else _REST_SECONDS
            self._timer = self.loop.call_later(seconds, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(_WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_write_timer()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@dataclass(frozen=True)
class Service:
    """The models that are served, and the rules for clients."""

    offers: Sequence[Offer]
    """Models that are always there."""
    limits: Limits
    keys: ApiKeys | None = None
    origins: Sequence[str] = ()
    """Origins whose pages may use the server from a browser."""
    proxies: Sequence[str] = ()
    """Addresses and networks of proxies: what they write into `X-Forwarded-For` is the client's address."""
    equip: Callable[[Translator], Translator] = lambda translator: translator
    """Adds the resources that the search itself does not need: terms and earlier translations."""
    suggestions: Path | None = None
    metrics: bool = False
    watched: Path | None = None
    """A folder whose models come and go."""
    offers_of: Callable[[Path], Sequence[Offer]] = lambda folder: ()
    """The function that returns the offers of a folder within it."""
    unload_after: float = 0.0
    """Seconds until a model that nobody asked is unloaded; 0 is never."""


def serve(service: Service, host: str, port: int) -> None:
    """Answer requests until a signal arrives. Requests accepted before the signal are finished."""
    limits = _within_open_files(service.limits)
    listener = _open_socket(host, port)  # first: a port that is taken is reported before models are loaded
    models = Models(
        service.offers,
        lambda offer: start_batcher(offer.load, service.equip, limits.queue_lines),
        service.watched,
        service.offers_of,
        service.unload_after,
    )
    files = TranslatedFiles()
    try:
        app = build_app(
            models.directions, limits, service.keys, service.origins, service.suggestions, service.metrics,
            files,
        )  # fmt: skip
        config = uvicorn.Config(
            app, http=_Protocol, ws="none", lifespan="off", log_level="warning", access_log=False,
            server_header=False, proxy_headers=bool(service.proxies),
            forwarded_allow_ips=list(service.proxies), limit_concurrency=limits.connections,
            h11_max_incomplete_event_size=_HEADER_BYTES,
        )  # fmt: skip
        address = listener.getsockname()
        shown = f"[{address[0]}]" if ":" in address[0] else address[0]
        pairs = [" to ".join(pair) for pair in models.directions.models]
        say(f"translating {', '.join(pairs) or 'nothing yet'} at http://{shown}:{address[1]}; Ctrl-C ends it")
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        files.close()
        models.close()


_OTHER_FILES = 50
"""Approximate maximum number of open files besides the connections."""


def _within_open_files(limits: Limits) -> Limits:
    """Raise the limit on open files (`ulimit -n`) if it is too low. Returns `limits`, with fewer connections
    if the system does not allow enough open files.
    """
    if resource is None:
        return limits
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return limits
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < wanted:
        connections = max(1, most - _OTHER_FILES)
        say(f"note: at most {connections:,} connections, as ulimit -n allows {most:,} open files")
        limits = replace(limits, connections=connections)
    return limits


def _open_socket(host: str, port: int) -> socket.socket:
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        # Name the protocol: otherwise asyncio does not see that it is TCP, and answers wait 40 ms for an ACK.
        listener = socket.socket(*addresses[0][:3])
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(addresses[0][4])
        listener.listen(2048)
        return listener
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "unknown host"
        raise InputError(
            f"{host}:{port}: must be an address this machine can listen on, but is not ({reason}); "
            "give another ",
            Setting("host"),
            " or ",
            Setting("port"),
        ) from None


def build_app(
    directions: Directions,
    limits: Limits,
    keys: ApiKeys | None = None,
    origins: Sequence[str] = (),
    suggestions: Path | None = None,
    metrics: bool = False,
    translated_files: TranslatedFiles | None = None,
) -> Starlette:
    """The ASGI application. Pages of the `origins` may use it from a browser (CORS). Suggested translations
    are appended to the file `suggestions`. `metrics` adds GET /metrics. Translated files are kept in
    `translated_files`, by default in a temporary folder that is removed with the application.
    """
    admission = Admission(limits, keys)
    texts = TextRoutes(directions, admission, suggestions)
    files = FileRoutes(directions, admission, translated_files or TranslatedFiles())
    info = InfoRoutes(directions, admission, suggestions)
    routes = [
        Route("/translate", texts.translate, methods=["POST"]),
        Route("/details", texts.details, methods=["POST"]),
        Route("/detect", texts.detect, methods=["POST"]),
        Route("/suggest", texts.suggest, methods=["POST"]),
        Route("/translate_file", files.translate, methods=["POST"]),
        Route("/download_file/{name}", files.download, methods=["GET"], name="download_file"),
        Route("/languages", info.languages, methods=["GET"]),
        Route("/models", info.models, methods=["GET"]),
        Route("/frontend/settings", info.settings, methods=["GET"]),
        Route("/spec", info.spec, methods=["GET"]),
        Route("/docs", info.docs, methods=["GET"]),
        Route("/health", info.health, methods=["GET"]),
    ]
    cors = Middleware(CORSMiddleware, allow_origins=list(origins), allow_methods=["GET", "POST"],
                      allow_headers=["Content-Type", "Authorization"])  # fmt: skip
    counted = Middleware(Metrics, directions=directions, paths=frozenset(route.path for route in routes))
    return Starlette(
        routes=[*routes, *page_routes()],
        middleware=[*[counted] * metrics, *[cors] * bool(origins)],
        exception_handlers={HTTPException: error_response, ClientDisconnect: client_disconnected},
    )
