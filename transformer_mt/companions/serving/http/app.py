"""The LibreTranslate API over a server's models."""

from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from transformer_mt.companions.serving.directions import Directions
from transformer_mt.companions.serving.http.admission import Admission
from transformer_mt.companions.serving.http.answers import client_disconnected, error_response
from transformer_mt.companions.serving.http.file_routes import FileRoutes
from transformer_mt.companions.serving.http.info_routes import InfoRoutes
from transformer_mt.companions.serving.http.limits import ApiKeys, Limits
from transformer_mt.companions.serving.http.page import page_routes
from transformer_mt.companions.serving.http.prometheus_metrics import Metrics
from transformer_mt.companions.serving.http.text_routes import TextRoutes
from transformer_mt.companions.serving.translated_files import TranslatedFiles


def build_app(
    directions: Directions,
    limits: Limits,
    keys: ApiKeys | None = None,
    origins: Sequence[str] = (),
    suggestions: Path | None = None,
    metrics: bool = False,
    translated_files: TranslatedFiles | None = None,
) -> Starlette:
    """The ASGI application. Pages of the `origins` may use it from a browser (CORS). Better translations that
    are suggested become lines of the file of `suggestions`. `metrics` are answered at /metrics. Translated
    files wait in `translated_files`, by default in a folder that ends with the application.
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
