"""The web page: four files, served as they are."""

from collections.abc import Callable, Coroutine
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/files.js": ("files.js", "text/javascript"),
}
_HEADERS = {
    # Nothing from elsewhere, and no script or style but its own files.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes() -> list[Route]:
    return [Route(path, _answer(*named), methods=["GET"]) for path, named in _FILES.items()]


def _answer(name: str, media_type: str) -> Callable[[Request], Coroutine[None, None, Response]]:
    content = files("transformer_mt.companions.serving.http").joinpath("page", name).read_bytes()

    async def answer(request: Request) -> Response:
        return Response(content, headers=_HEADERS, media_type=media_type)

    return answer
