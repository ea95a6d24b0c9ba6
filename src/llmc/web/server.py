"""The server of the web page: its roots, routes and request handlers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles

from llmc.api import commenting, orders
from llmc.api.roots import Project
from llmc.api.said import BAD, command_line, failed
from llmc.api.sign_ins import KEPT_S, SignIns
from llmc.base.clock import now_unix
from llmc.base.errors import Exit, LlmcError, NotFound, Refused, UsageError
from llmc.web import acts, pages, take
from llmc.web.guard import Guard, TooLarge, named
from llmc.web.html import HERE, Naming, file_key, render
from llmc.web.live import ALIVE, Live
from llmc.web.rules import access
from llmc.web.stream import HOME, Feeds, Stream

Found = TypeVar("Found")

#: how many threads make pages, so that a slow git does not delay other pages
THREADS = 12
#: most fields of a form
MOST_FIELDS = 100
#: how many of the latest orders every page knows the outcome of
SHOWN_JOBS = 20
#: the parts that every page has
COMMON = ("nav", "health", "said")
#: HTTP status by exit code; other failures (git, a lock) get 503, since they may be temporary
_STATUS = {Exit.NOT_FOUND: 404, Exit.USAGE: 400, Exit.REFUSED: 409}


class Site:
    """One web page for the roots of a user."""

    def __init__(
        self,
        projects: Mapping[str, Project],
        sign_ins: SignIns,
        *,
        hosts: frozenset[str],
        cookie: str,
        commands: Iterable[str],
        read_only: bool = False,
        unserved: Sequence[str] = (),
    ) -> None:
        """`projects`: by name in the URL; the first needs none. `commands`: all names. `unserved`: other roots."""
        self.lives = {
            key: Live(key if number else "", project)
            for number, (key, project) in enumerate(projects.items())
        }
        self.sign_ins, self.cookie, self.read_only = sign_ins, cookie, read_only
        self._naming = Naming(commands)
        self.unserved = tuple(command_line("--root", path, "web") for path in unserved)
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="web")
        self._feeds = Feeds()
        inner = self._routes()
        self.app = Guard(
            Starlette(
                routes=[
                    Route("/login", self.login, methods=["GET", "POST"]),
                    Route("/logout", self.logout, methods=["POST"]),
                    Route("/manifest.webmanifest", self.manifest),
                    Mount("/static", StaticFiles(directory=HERE / "static")),
                    Mount("/r/{root}", routes=inner),
                    *inner,
                ],
                middleware=[Middleware(GZipMiddleware, minimum_size=1000)],
                exception_handlers={
                    LlmcError: self._error,
                    TooLarge: _too_large,
                    404: self._unknown,
                    405: self._no_page,
                    500: self._broken,
                },
                lifespan=self._lifespan,
            ),
            sign_ins,
            hosts,
            cookie,
            read_only=read_only,
        )

    def _routes(self) -> list[BaseRoute]:
        review = "/w/{worker}/review"
        return [
            Route("/", self.of_fleet),
            Route("/stream", self.stream),
            Route("/jobs/{job}", self.job),
            Route("/fleet/{verb}", self.order_fleet, methods=["POST"]),
            Route("/tasks/{verb}", self.order_task, methods=["POST"]),
            Route("/goals/{verb}", self.order_goal, methods=["POST"]),
            Route("/night.json", self.night_data),
            Route(review, self.review),
            Route(f"{review}/files/{{number}}", self.review_file),
            Route(f"{review}/form", self.comment_form),
            Route(f"{review}/drafts", self.save_draft, methods=["POST"]),
            Route(f"{review}/drafts/{{comment}}", self.change_draft, methods=["PUT", "DELETE"]),
            Route(f"{review}/closed/{{comment}}", self.close_comment, methods=["POST"]),
            Route(f"{review}/viewed", self.mark_viewed, methods=["POST"]),
            Route("/w/{worker}/take", self.take_over),
            WebSocketRoute("/w/{worker}/terminal", self.terminal),
            Route("/w/{worker}", self.worker),
            Route("/w/{worker}/{verb}", self.order_worker, methods=["POST"]),
            Route("/{page}", self.of_fleet),
        ]

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        for live in self.lives.values():
            live.follow()
        sign_outs = asyncio.ensure_future(self._follow_sign_outs())
        yield
        sign_outs.cancel()
        for live in self.lives.values():
            await asyncio.to_thread(live.stop)
        self._threads.shutdown(wait=False)

    async def _follow_sign_outs(self) -> None:
        """End the streams of signed-out browsers; another process can sign them out, in a file of the first root."""
        first = next(iter(self.lives.values()))
        while True:
            await first.next_change(frozenset({"fleet", ALIVE})).future
            self.app.end_signed_out()

    # What a request is about.

    async def live(self, request: Any) -> Live:
        """The root of a request. Waits for the first look at it, and for a worker that was just added."""
        key = request.path_params.get("root")
        found = next(iter(self.lives.values())) if key is None else self.lives.get(key)
        if found is None:
            raise NotFound(f"no root {key[:40]!r}", hint=f"Roots: {', '.join(self.lives)}")
        await found.seen()
        if "worker" in request.path_params:
            await found.expect(request.path_params["worker"])
        return found

    async def in_thread(self, act: Callable[..., Found], *args: Any) -> Found:
        return await asyncio.get_running_loop().run_in_executor(self._threads, act, *args)

    def _shared(self, live: Live, page: str, home: str) -> dict[str, Any]:
        roots = [
            {
                "address": f"{home}{pages.address(other)}/",
                "name": other.project.root.path.name,
                "path": str(other.project.root.path),
                "fleet": other.fleet,
                "trouble": other.trouble,
                "here": other is live,
                "with_root": self._with_root(other),
            }
            for other in self.lives.values()
        ]
        jobs = live.jobs.recent(SHOWN_JOBS)
        return {
            **pages.shared(live, page, home, read_only=self.read_only),
            "roots": roots,
            "with_root": self._with_root(live),
            "unserved": self.unserved,
            "last_job": jobs[0] if jobs else None,
            "done_jobs": [job.id for job in jobs if job.said is not None and job.said.tone != BAD],
        }

    def _with_root(self, live: Live | None) -> Callable[[str], str]:
        """A function that makes the commands in a text work from any directory: those for another root name it."""
        return partial(self._naming.with_root, root=str(live.project.root.path) if live and live.key else "")

    # Pages, and their streams.

    async def show(self, request: Request, live: Live, page: pages.Page, **more: Any) -> Response:
        context = {
            **self._shared(live, page.name, request.scope["home"]),
            **await self.in_thread(page.context),
            **more,
        }
        query = dict(request.query_params)
        about = request.path_params.get("worker") or request.path_params.get("job", "")
        stream = {**query, "page": page.name, "about": about, **context.get("for_stream", {})}
        body = await self.in_thread(
            render, f"{page.name}.html", {**context, "stream": stream, "query": query}
        )
        return HTMLResponse(body)

    async def of_fleet(self, request: Request) -> Response:
        live = await self.live(request)
        name = request.path_params.get("page", "attention")
        if name not in pages.OF_FLEET:
            raise NotFound(f"no page {name[:40]!r}")
        return await self.show(request, live, pages.OF_FLEET[name](live, request.query_params))

    async def worker(self, request: Request) -> Response:
        live = await self.live(request)
        return await self.show(
            request, live, pages.worker(live, request.path_params["worker"], request.query_params)
        )

    async def review(self, request: Request) -> Response:
        """The whole change. Only this request counts as a review: the stream of an open page does not send the diff."""
        live = await self.live(request)
        page = pages.review(live, request.path_params["worker"], request.query_params)
        context = await self.in_thread(page.context)
        answer = await self.show(request, live, replace(page, context=lambda: context))
        if request.method == "GET" and not self.read_only:
            shown, seen = context["page"], live.reviewed_by(request.scope["browser"].hash)
            again = seen.get(shown.worker) == shown.review.head
            if await self.in_thread(partial(commenting.remember, live.project, shown, again=again)):
                seen[shown.worker] = shown.review.head
        return answer

    async def job(self, request: Request) -> Response:
        live = await self.live(request)
        return await self.show(request, live, pages.job(live, request.path_params["job"]))

    async def stream(self, request: Request) -> Stream:
        live = await self.live(request)
        query = dict(request.query_params)
        name, about = query.pop("page", "attention"), query.pop("about", "")
        page = pages.page_named(live, name, about, query)
        key = (live.key, name, about, *(f"{one}={query[one]}" for one in sorted(query)))
        topics = page.topics | {"job", "fleet", ALIVE}
        feed = self._feeds.joined(key, live, topics, lambda: self.in_thread(self._made_parts, live, page))
        return Stream(live, page, request.scope["home"], feed)

    def _made_parts(self, live: Live, page: pages.Page) -> dict[str, str]:
        """The live elements of a page, with `HOME` as the prefix of their URLs."""
        context = self._shared(live, page.name, HOME)
        names: tuple[str, ...] = COMMON
        try:
            context |= page.context()
            names = (*COMMON, *page.parts)
        except LlmcError as error:  # for example, the worker is gone: the rest of the page stays live
            context["trouble"] = f"{error.message}. {error.hint}" if error.hint else error.message
        return {name: render(f"parts/{name}.html", context) for name in names}

    async def night_data(self, request: Request) -> Response:
        live = await self.live(request)
        context = await self.in_thread(pages.the_night(live, request.query_params).context)
        return Response(msgspec.json.encode(context["night"]), media_type="application/json")

    # Orders.

    async def _order(
        self, request: Request, make: Callable[[Project, acts.Form], acts.Order], worker: str = ""
    ) -> Response:
        live = await self.live(request)
        form = await form_of(request)
        by = named(request.scope["browser"], request.client.host if request.client else "")
        hx, home = "hx-request" in request.headers, request.scope["home"]
        command = ""
        try:
            order = await self.in_thread(make, live.project, form)
            command = order.command

            def noted(show: Callable[[str], None]) -> Any:
                orders.note(live.project, worker, order.command, by)
                return order.act(show)

            job = live.jobs.start(order.about, worker, order.command, noted, by)
        except LlmcError as error:
            if not hx:
                raise
            said = failed(command, error, now_unix())
            return HTMLResponse(
                render("parts/said.html", {**self._shared(live, "", home), "refused": said}), 200
            )
        live.changed("job")
        if hx:
            shown = render("parts/said.html", {**self._shared(live, "", home), "last_job": job})
            return HTMLResponse(shown, 202, {"x-job": job.id})
        return RedirectResponse(f"{home}{pages.address(live)}/jobs/{job.id}", 303)

    async def order_worker(self, request: Request) -> Response:
        worker, verb = request.path_params["worker"], request.path_params["verb"]
        make = acts.OF_WORKER.get(verb)
        if make is None:
            raise NotFound(f"no action {verb[:20]!r}", hint=f"Actions: {', '.join(acts.OF_WORKER)}")
        pages.row_of(await self.live(request), worker)
        return await self._order(request, lambda project, form: make(project, worker, form), worker)

    async def order_fleet(self, request: Request) -> Response:
        return await self._order(request, _verb(acts.OF_FLEET, request))

    async def order_task(self, request: Request) -> Response:
        return await self._order(request, _verb(acts.OF_TASKS, request))

    async def order_goal(self, request: Request) -> Response:
        return await self._order(request, _verb(acts.OF_GOALS, request))

    def _refuse_if_read_only(self) -> None:
        """Refuse a page that only serves to make a change; the guard refuses the change itself."""
        if self.read_only:
            raise Refused("this server is read-only")

    # Comments of a review.

    async def review_file(self, request: Request) -> Response:
        """One file of a diff, loaded when the reader gets there."""
        live = await self.live(request)
        worker, number = request.path_params["worker"], number_of(request.path_params, "number")
        context = await self.in_thread(pages.review(live, worker, request.query_params).context)
        files = context["page"].files
        if number >= len(files):
            raise NotFound("this file is no longer in the diff", hint="Reload the page.")
        shown = {
            **self._shared(live, "review", request.scope["home"]),
            **context,
            "number": number,
            "file": files[number],
            "open": True,
        }
        return HTMLResponse(await self.in_thread(render, "parts/diff_file.html", shown))

    async def comment_form(self, request: Request) -> Response:
        self._refuse_if_read_only()
        live = await self.live(request)
        query, worker = request.query_params, request.path_params["worker"]
        draft = None
        if query.get("comment"):
            page = await self.in_thread(commenting.page, live.project, worker)
            draft = next((one for one in page.drafts if one.id == query["comment"]), None)
        common = self._shared(live, "", request.scope["home"])
        shown = {**common, "worker": worker, "where": dict(query), "draft": draft}
        return HTMLResponse(render("parts/comment_form.html", shown))

    async def save_draft(self, request: Request) -> Response:
        """Save a new comment on a row of a file, on a file, or on the whole change."""
        live, form, worker = await self.live(request), await form_of(request), request.path_params["worker"]

        def save() -> commenting.Comment:
            row = number_of(form, "row") if form.get("row") else None
            files = commenting.files_drawn(live.project, form.get("diff", "")) if form.get("path") else ()
            file = next((one for one in files if file_key(one.path) == form["path"]), None)
            if form.get("path") and file is None:
                raise NotFound(
                    "cannot save the comment: the file is no longer in the diff", hint="Reload the page."
                )
            if file is not None and row is not None and row >= len(file.rows):
                raise NotFound(
                    "cannot save the comment: the line is no longer in the diff", hint="Reload the page."
                )
            return commenting.add(live.project, worker, file, row, form.get("text", ""), save_of(form))

        comment = await self.in_thread(save)
        return self._comment(request, live, commenting.Placed(comment, comment.anchor))

    def _comment(self, request: Request, live: Live, placed: commenting.Placed) -> Response:
        worker = request.path_params["worker"]
        live.changed(f"review {worker}")
        shown = {**self._shared(live, "", request.scope["home"]), "worker": worker, "one": placed}
        return HTMLResponse(render("parts/comment.html", shown))

    async def change_draft(self, request: Request) -> Response:
        live, worker = await self.live(request), request.path_params["worker"]
        comment_id = request.path_params["comment"]
        if request.method == "DELETE":
            await self.in_thread(commenting.delete, live.project, worker, comment_id)
            live.changed(f"review {worker}")
            return HTMLResponse("")
        form = await form_of(request)
        rev = number_of(form, "rev")
        text = form.get("text", "")
        save = save_of(form)
        comment = await self.in_thread(commenting.edit, live.project, worker, comment_id, text, rev, save)
        return self._comment(request, live, commenting.Placed(comment, comment.anchor))

    async def close_comment(self, request: Request) -> Response:
        live, form, worker = await self.live(request), await form_of(request), request.path_params["worker"]

        def close() -> commenting.Placed:
            is_closed, comment_id = form.get("closed") != "no", request.path_params["comment"]
            commenting.close(live.project, worker, comment_id, is_closed=is_closed)
            placed = commenting.page(live.project, worker).comments
            return next(one for one in placed if one.comment.id == comment_id)

        return self._comment(request, live, await self.in_thread(close))

    async def mark_viewed(self, request: Request) -> Response:
        live, form, worker = await self.live(request), await form_of(request), request.path_params["worker"]

        def mark() -> None:
            shown = commenting.page(live.project, worker)
            file = next((one for one in shown.files if file_key(one.path) == form.get("path")), None)
            if file is None or form.get("diff", "").rpartition("..")[2] != shown.review.result:
                raise NotFound(
                    "cannot mark the file as viewed: the diff has changed", hint="Reload the page."
                )
            commenting.mark_viewed(live.project, worker, file, is_viewed=form.get("viewed") == "yes")

        await self.in_thread(mark)
        live.changed(f"review {worker}")
        return Response(status_code=204)

    # Take over.

    async def take_over(self, request: Request) -> Response:
        self._refuse_if_read_only()
        live = await self.live(request)
        worker = request.path_params["worker"]
        page = pages.Page("take", lambda: {"row": pages.row_of(live, worker)})
        answer = await self.show(request, live, page)
        answer.headers["content-security-policy"] = access.TAKE_OVER_POLICY
        return answer

    async def terminal(self, socket: Any) -> None:
        try:
            live = await self.live(socket)
        except LlmcError as error:
            await socket.close(1008, take.reason(error.message))
            return
        by = named(socket.scope["browser"], socket.client.host if socket.client else "")
        await take.over(socket, live.project, socket.path_params["worker"], by, self._with_root(live))

    # Signing in.

    async def login(self, request: Request) -> Response:
        guard: Guard = request.scope["guard"]
        target = access.return_path(request.query_params.get("next", "/"))
        if request.method != "POST":  # HEAD too: any page may send it
            shown = {"link": request.query_params.get("link", ""), "next": target, "problem": ""}
            return HTMLResponse(render("login.html", shown))
        form = await form_of(request)
        target = access.return_path(form.get("next", "/"))
        problem, status = "This link is invalid, has already been used, or has expired.", 403
        address = request.client.host if request.client else ""
        if not guard.may_try(address):
            problem, status, secret = "Too many failed sign-ins. Wait a minute, then try again.", 429, None
        else:
            name = browser_name(request.headers.get("user-agent", ""))
            secret = await self.in_thread(self.sign_ins.use_link, form.get("link", ""), name)
            if secret is None:
                guard.failed(address)
        if secret is None:
            # A link that was not tried still works.
            link = form.get("link", "") if status == 429 else ""
            return HTMLResponse(
                render("login.html", {"link": link, "next": target, "problem": problem}), status
            )
        with contextlib.suppress(LlmcError):  # an unreadable state must not prevent the sign-in
            by = named(self.sign_ins.browser(secret), address)
            await self.in_thread(orders.note_sign_in, next(iter(self.lives.values())).project, by)
        answer = RedirectResponse(f"/{secret.place}{target}", 303)
        answer.set_cookie(
            self.cookie,
            secret.cookie,
            max_age=int(KEPT_S),
            httponly=True,
            samesite="strict",
            secure=request.headers.get("origin", "").startswith("https:"),
            path=f"/{secret.place}",
        )
        return answer

    async def logout(self, request: Request) -> Response:
        if (browser := request.scope["browser"]) is not None:
            await self.in_thread(self.sign_ins.sign_out, browser)
            self.app.end_signed_out()
        answer = RedirectResponse("/login?out=yes", 303)
        answer.delete_cookie(self.cookie, path=request.scope["home"] or "/")
        return answer

    async def manifest(self, request: Request) -> Response:
        icon = {"src": "/static/icon.svg", "sizes": "any", "type": "image/svg+xml"}
        about = {
            "name": "llmc",
            "short_name": "llmc",
            "start_url": "/",
            "display": "standalone",
            "icons": [icon],
        }
        return JSONResponse(about, media_type="application/manifest+json")

    # Errors.

    async def _error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, LlmcError)
        return self._problem(request, _STATUS.get(error.exit_code, 503), error.message, error.hint)

    def _problem(self, request: Request, status: int, message: str, hint: str = "") -> Response:
        """The error as a page with a link back, or as a part of the page for a request by htmx."""
        template = "parts/problem.html" if "hx-request" in request.headers else "error.html"
        live = self.lives.get(request.path_params.get("root", ""))
        back = request.scope["home"] + (pages.address(live) if live else "")
        shown = {"message": message, "hint": hint, "status": status, "back": f"{back}/"}
        return HTMLResponse(render(template, {**shown, "with_root": self._with_root(live)}), status)

    async def _unknown(self, request: Request, error: Exception) -> Response:
        return self._problem(request, 404, f"no page {request.url.path[:80]}")

    async def _no_page(self, request: Request, error: Exception) -> Response:
        """For example, the URL of an order that was reloaded or opened from the history."""
        return self._problem(request, 405, f"{request.url.path[:80]} is not a page", "Nothing was changed.")

    async def _broken(self, request: Request, error: Exception) -> Response:
        """The server prints the traceback; the browser gets a page with a link back."""
        return self._problem(
            request,
            500,
            f"unexpected error: {type(error).__name__}",
            "For details, see the output of `llmc web`.",
        )


async def _too_large(request: Request, error: Exception) -> Response:
    return PlainTextResponse("the request is too large or too slow\n", 413, {"connection": "close"})


def _verb(
    known: Mapping[str, Callable[[Project, acts.Form], acts.Order]], request: Request
) -> Callable[[Project, acts.Form], acts.Order]:
    verb = request.path_params["verb"]
    if verb not in known:
        raise NotFound(f"no action {verb[:20]!r}", hint=f"Actions: {', '.join(known)}")
    return known[verb]


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form."""
    body = (await request.body()).decode("utf-8", "replace")
    try:
        fields = parse_qsl(body, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise UsageError(f"the form has more than {MOST_FIELDS} fields") from error
    # Browsers send every line break of a text as two characters.
    return {name: value.replace("\r\n", "\n") for name, value in fields}


def save_of(fields: Mapping[str, str]) -> commenting.Save:
    """Which save of which form this is; the browser numbers the saves."""
    return commenting.Save(fields.get("form", "")[:64], number_of(fields, "step") if "step" in fields else 0)


def number_of(fields: Mapping[str, str], name: str) -> int:
    number = access.whole(fields.get(name, ""))
    if number is None:
        raise UsageError(f"{name} is not a number: {fields.get(name, '')[:20]!r}", hint="Reload the page.")
    return number


_SYSTEMS = ("iPhone", "iPad", "Android", "Windows", "Macintosh", "Linux")
_BROWSERS = {"Firefox/": "Firefox", "Edg/": "Edge", "Chrome/": "Chrome", "Safari/": "Safari"}


def browser_name(user_agent: str) -> str:
    """The common name of a browser, such as `Firefox on Linux`."""
    system = next((name for name in _SYSTEMS if name in user_agent), "")
    browser = next((name for mark, name in _BROWSERS.items() if mark in user_agent), "browser")
    return f"{browser} on {system}" if system else browser
