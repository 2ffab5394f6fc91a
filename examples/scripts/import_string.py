"""A script that asks uvicorn for four workers of its own: under plain uvicorn most carts lose what was put in.

    python import_string.py --port 8000                                         four workers, carts lost
    gym-supervise run --preset custom --set 'affinity.sources=[header: x-cart]' --set affinity.unknown=claim
        import_string.py --port 8000                                            four workers, carts right

Its route:

    POST /put  {"thing": ...}  with a header X-Cart that the client has made up  -> {"cart": [...]}
"""

from __future__ import annotations

import argparse
import os

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

carts: dict[str, list[str]] = {}


async def put(request: Request) -> Response:
    """Put a thing into a cart."""
    cart = carts.setdefault(request.headers["x-cart"], [])
    cart.append((await request.json())["thing"])
    return JSONResponse({"cart": cart, "pid": os.getpid()})


async def whoami(_request: Request) -> Response:
    """The process that answers."""
    return PlainTextResponse(str(os.getpid()))


app = Starlette(routes=[Route("/put", put, methods=["POST"]), Route("/whoami", whoami)])

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8000)
    uvicorn.run("import_string:app", port=parser.parse_args().port, workers=4)
