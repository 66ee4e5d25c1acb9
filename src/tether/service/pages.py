"""Pages and health: what anybody may fetch. None of it holds data."""

from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from tether.service import models

STATIC_TYPES = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}  # fmt: skip
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def add_pages(app: FastAPI, has_tokens: bool) -> None:
    """The dashboard, its files, and the two questions that a supervisor asks."""
    pages = {
        page.name: page.read_bytes()
        for page in files("tether.service").joinpath("static").iterdir()
        if page.name[page.name.rfind(".") :] in STATIC_TYPES
    }

    def served(name: str) -> Response:
        if name not in pages:
            raise HTTPException(404, f"there is no page {name!r:.80}.")
        kind = STATIC_TYPES[name[name.rfind(".") :]]
        return Response(pages[name], headers=PAGE_HEADERS, media_type=kind)

    @app.get("/", include_in_schema=False)
    async def dashboard() -> Response:
        return served("index.html")

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> Response:
        return served(name)

    @app.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, Any]:
        """The process answers. `open`: the service asks for no tokens."""
        return {"status": "ok", "open": not has_tokens}

    not_ready = {"model": models.Readiness, "description": "The log cannot be used now."}

    @app.get("/readyz", response_model=models.Readiness, responses={503: not_ready}, tags=["health"])
    async def readyz(request: Request) -> Response:
        """The log can be read, and could be written when last used."""
        if await request.app.state.hub.ready():
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": "the log cannot be used: the service's own log says why"}, 503)
