"""One headless Chromium, driven over the DevTools protocol's pipe: no port, no driver, no other package."""

import json
import os
import select
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

PATH = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE_S = 20.0

Message = dict[str, Any]


class Chromium:
    """A browser and the one page it shows. `events` holds what the page reported since it was loaded."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._buffer = b""
        self._last = 0
        self._session: str | None = None
        self.events: list[Message] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: object) -> Message:
        """The result of one command; events that come before it are kept. Raises RuntimeError for a refusal."""
        self._last += 1
        message: Message = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._last:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        result: Message = answer["result"]
        return result

    def load(self, page: Path) -> None:
        """Show a file and wait until it is drawn."""
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def view(self, *, width: int, dark: bool = False, media: str = "screen") -> None:
        """How wide the page is, and what it is told about colours and media."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def evaluate(self, script: str) -> Any:
        """The JSON value of an expression; the page's policy does not bind it. Raises RuntimeError where it throws."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def close(self) -> None:
        """End the browser."""
        self._session = None
        self.call("Browser.close")

    def press_enter(self) -> None:
        """The key, down and up, on whatever has the focus."""
        for kind in ("keyDown", "keyUp"):
            text = "\r" if kind == "keyDown" else ""
            self.call(
                "Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text=text
            )

    def _next(self) -> Message:
        deadline = monotonic() + PATIENCE_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], max(deadline - monotonic(), 0))
            read = os.read(self._from, 1 << 16) if ready else b""
            if not read:
                raise RuntimeError("the browser " + ("closed its pipe" if ready else "does not answer"))
            self._buffer += read
        first, _, self._buffer = self._buffer.partition(b"\0")
        message: Message = json.loads(first)
        return message


@contextmanager
def chromium(profile: Path) -> Iterator[Chromium]:
    """A browser with a profile of its own, ended with the block. Only where `PATH` is not None."""
    assert PATH is not None
    commands, to_browser = os.pipe()
    from_browser, answers = os.pipe()
    assert min(commands, answers) > 4, "3 and 4, where the browser looks for its pipes, must be free in it"
    actions = [
        (os.POSIX_SPAWN_DUP2, commands, 3),
        (os.POSIX_SPAWN_DUP2, answers, 4),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    command = [PATH, *FLAGS, f"--user-data-dir={profile}"]
    pid = os.posix_spawn(PATH, command, os.environ, file_actions=actions, setsid=True)
    os.close(commands)
    os.close(answers)
    try:
        browser = Chromium(to_browser, from_browser)
        yield browser
        browser.close()
    finally:
        # Without its pipe a browser ends by itself; one that hangs is ended, with the group that is its own.
        os.close(to_browser)
        os.close(from_browser)
        if not _ends(pid):
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _ends(pid: int) -> bool:
    """Whether the process ends within PATIENCE_S."""
    handle = os.pidfd_open(pid)
    try:
        ended = bool(select.select([handle], [], [], PATIENCE_S)[0])
    finally:
        os.close(handle)
    if ended:
        os.waitpid(pid, 0)
    return ended
