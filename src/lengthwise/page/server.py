"""The server of the page: on this machine only, with models in worker processes."""

import asyncio
import json
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import uvicorn
from pydantic import Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lengthwise.base import Config, UsageError, explain
from lengthwise.base.errors import shorten
from lengthwise.page import views
from lengthwise.page.export import MEDIA, STATIC
from lengthwise.page.form import parse_form
from lengthwise.page.jobs import MOST_CELLS, MOST_EXAMPLES, find_jobs
from lengthwise.page.lanes import LONGEST_SENTENCE, Lane, Refusal
from lengthwise.page.security import MOST_BYTES, Guard
from lengthwise.page.training import Queue
from lengthwise.training.api import create_run

MOST_TEXT = 25_000  # characters of a problem
QUICK_TEXT = 450  # characters of a problem that the quick lane takes
QUICK_SECONDS, LONG_SECONDS = 20.0, 120.0
MOST_REQUESTS = 400  # that wait for a lane
Name = Annotated[str, Field(min_length=1, max_length=200)]
Handler = Callable[[Request], Awaitable[Response]]
B = TypeVar("B", bound=Config)


class AskRequest(Config):
    run: Name
    problem: Annotated[str, Field(max_length=MOST_TEXT)]


class AttentionRequest(AskRequest):
    iteration: int = Field(ge=1, le=100_000)
    first: int = Field(ge=0)
    last: int = Field(ge=0)


class BreakRequest(Config):
    run: Name
    case: Name
    length: int = Field(ge=1, le=10_000)
    seed: int = Field(0, ge=0, le=2**31)


class MeasureRequest(Config):
    run: Name
    length: int = Field(ge=1, le=10_000)
    examples: int = Field(100, ge=1, le=MOST_EXAMPLES)


class GridRequest(Config):
    run: Name
    longest: int = Field(ge=1, le=10_000)
    cells: int = Field(12, ge=2, le=MOST_CELLS)
    row: int = Field(0, ge=0, lt=MOST_CELLS)
    examples: int = Field(50, ge=1, le=200)


class RunRequest(Config):
    run: Name


class Laboratory:
    """What the server holds: the directories, the lanes and the queue of training."""

    def __init__(self, root: Path, results: Path):
        self.root, self.results = root, results
        self.runs = views.RunList(root)
        jobs = partial(find_jobs, root, results)
        self.quick = Lane(jobs, QUICK_SECONDS, MOST_REQUESTS)
        self.long = Lane(jobs, LONG_SECONDS, MOST_REQUESTS)
        self.queue = Queue()

    def start(self) -> None:
        self.quick.start()
        self.long.start()

    def close(self) -> None:
        self.queue.close()
        self.quick.stop()
        self.long.stop()

    # What the page reads.

    async def list_runs(self, request: Request) -> Response:
        runs = await asyncio.to_thread(self.runs.read)
        return JSONResponse({"root": str(self.root), "runs": runs, "training": self.queue.state()})

    async def list_choices(self, request: Request) -> Response:
        return JSONResponse(views.choices())

    async def show_run(self, request: Request) -> Response:
        name = request.query_params.get("run", "")
        run = await asyncio.to_thread(views.find_run, self.root, name)
        return JSONResponse(await asyncio.to_thread(views.describe_run, run))

    async def show_paper(self, request: Request) -> Response:
        scale = request.query_params.get("scale", "cpu")
        return as_json(await self.long.run("paper", {"scale": scale}, request.is_disconnected))

    async def show_figure(self, request: Request) -> Response:
        query = request.query_params
        arguments = {"scale": query.get("scale", "cpu"), "artefact": query.get("artefact", "")}
        image = await self.long.run("figure", arguments, request.is_disconnected)
        return Response(image, media_type="image/png")

    # What the page asks of models.

    async def ask(self, request: Request) -> Response:
        asked = await read(request, AskRequest)
        lane = self.lane_for(asked.problem)
        return as_json(await lane.run("ask", asked.model_dump(), request.is_disconnected))

    async def attention(self, request: Request) -> Response:
        asked = await read(request, AttentionRequest)
        lane = self.lane_for(asked.problem)
        return as_json(await lane.run("attention", asked.model_dump(), request.is_disconnected))

    async def break_model(self, request: Request) -> Response:
        asked = await read(request, BreakRequest)
        return as_json(await self.quick.run("break", asked.model_dump(), request.is_disconnected))

    async def measure(self, request: Request) -> Response:
        asked = await read(request, MeasureRequest)
        return as_json(await self.long.run("measure", asked.model_dump(), request.is_disconnected))

    async def grid(self, request: Request) -> Response:
        asked = await read(request, GridRequest)
        return as_json(await self.long.run("grid", asked.model_dump(), request.is_disconnected))

    def lane_for(self, problem: str) -> Lane:
        """Short problems have a lane of their own, so that they never wait for long ones."""
        return self.quick if len(problem) <= QUICK_TEXT else self.long

    # What the page trains.

    async def preview(self, request: Request) -> Response:
        """The command and the Python that a form stands for."""
        form = parse_form(await read_json(request))
        experiment = await asyncio.to_thread(form.experiment)
        return JSONResponse({
            "name": experiment.name(),
            "command": form.command(str(self.root)),
            "python": form.python(str(self.root)),
        })  # fmt: skip

    async def train(self, request: Request) -> Response:
        form = parse_form(await read_json(request))

        def enqueue() -> str:
            run = create_run(form.experiment(), self.root, None, again=False)
            if run.result is None:
                self.queue.add(run)
            return run.path.name

        return JSONResponse({"run": await asyncio.to_thread(enqueue)})

    async def stop(self, request: Request) -> Response:
        chosen = await read(request, RunRequest)
        self.queue.stop(chosen.run)
        return JSONResponse(self.queue.state())

    async def resume(self, request: Request) -> Response:
        chosen = await read(request, RunRequest)
        run = await asyncio.to_thread(views.find_run, self.root, chosen.run)
        await asyncio.to_thread(self.queue.add, run)
        return JSONResponse(self.queue.state())


async def read_json(request: Request) -> Any:
    """The body of a request, which is small."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise Refusal(413, f"a request has up to {MOST_BYTES // 1024} kB")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal(400, "the request is not JSON") from None


async def read(request: Request, kind: type[B]) -> B:
    try:
        return kind.model_validate(await read_json(request))
    except ValidationError as error:
        raise UsageError(explain(error)) from None


def as_json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def answer(handler: Handler) -> Handler:
    """The handler, with an error of one sentence for everything that goes wrong."""

    async def respond(request: Request) -> Response:
        try:
            return await handler(request)
        except Refusal as refusal:
            status, sentence = refusal.status, str(refusal)
        except UsageError as error:
            status, sentence = 400, shorten(str(error), LONGEST_SENTENCE)
        except ClientDisconnect:
            status, sentence = 499, "the request was withdrawn"
        except OSError as error:
            status, sentence = 500, f"can't read or write: {(error.strerror or '').lower()}"
        clean = sentence.encode(errors="replace").decode()
        return JSONResponse({"error": clean}, status)

    return respond


async def send_file(request: Request) -> Response:
    """A file of the page, by its exact name."""
    name = request.path_params.get("name", "index.html")
    path = STATIC / name
    if path.suffix not in MEDIA or path.name != name or not path.is_file():
        raise HTTPException(404)
    return Response(path.read_bytes(), media_type=MEDIA[path.suffix])


async def explain_status(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    sentence = {404: "there is no such page", 405: "the page does not take such a request"}
    return JSONResponse({"error": sentence.get(status, "an error in the program")}, status)


def create_app(root: Path, results: Path, port: int) -> Starlette:
    """The page as an ASGI application, which answers under this port's addresses only."""
    lab = Laboratory(root, results)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        lab.start()
        try:
            yield
        finally:
            await asyncio.to_thread(lab.close)

    pages = {
        "/api/runs": lab.list_runs,
        "/api/choices": lab.list_choices,
        "/api/run": lab.show_run,
        "/api/paper": lab.show_paper,
        "/api/figure": lab.show_figure,
    }
    actions = {
        "/api/ask": lab.ask,
        "/api/attention": lab.attention,
        "/api/break": lab.break_model,
        "/api/measure": lab.measure,
        "/api/grid": lab.grid,
        "/api/preview": lab.preview,
        "/api/train": lab.train,
        "/api/stop": lab.stop,
        "/api/resume": lab.resume,
    }
    routes = [Route(path, answer(page), methods=["GET"]) for path, page in pages.items()]
    routes += [Route(path, answer(action), methods=["POST"]) for path, action in actions.items()]
    routes += [Route("/", send_file), Route("/{name}", send_file)]
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Guard, port=port)],
        exception_handlers={HTTPException: explain_status, 500: explain_status},
    )


def serve(root: Path, results: Path, port: int, open_browser: bool) -> None:
    """Serve the page until Ctrl-C."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()  # early requests wait until the server is ready
    except OverflowError:
        raise UsageError(f"a port is a number up to 65535, not {port}") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"can't use port {port}: {reason}; choose another --port") from None
    port = listener.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    print(f"the page is at {address} (Ctrl-C ends it)", flush=True)
    config = uvicorn.Config(
        create_app(root, results, port),
        log_level="warning",
        limit_concurrency=1000,
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=2,
    )
    if open_browser:
        threading.Timer(0.5, webbrowser.open, [address]).start()
    uvicorn.Server(config).run(sockets=[listener])
