"""A real Chromium without a window, driven over its DevTools pipe: no driver, no network port."""

import base64
import fcntl
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 60.0
SHOWN = "[...document.querySelectorAll('.card')]"


def find_chromium() -> str | None:
    """The browser that ``COVLEARN_CHROMIUM`` names, or one on the path."""
    named = os.environ.get("COVLEARN_CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page. ``requests`` has every address that it asked for, ``problems`` what went wrong."""

    def __init__(self, program: str, folder: Path) -> None:
        self.downloads = folder / "downloads"
        self.downloads.mkdir(parents=True)
        self.requests: list[str] = []
        self.problems: list[str] = []
        to_read, self.sending = os.pipe()
        self.receiving, to_write = os.pipe()
        options = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe",
            f"--user-data-dir={folder / 'profile'}", "about:blank",
        ]  # fmt: skip
        # The browser speaks through descriptors 3 and 4; those of pipes may have these very numbers.
        low = (to_read, to_write)
        to_read, to_write = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in low)
        for end in low:
            os.close(end)
        quiet = [(os.POSIX_SPAWN_OPEN, n, os.devnull, os.O_RDWR, 0) for n in (1, 2)]
        ends = [(os.POSIX_SPAWN_DUP2, to_read, 3), (os.POSIX_SPAWN_DUP2, to_write, 4)]
        self.process = os.posix_spawn(
            program, [program, *options], os.environ, file_actions=[*quiet, *ends]
        )
        os.close(to_read)
        os.close(to_write)
        self.number = 0
        self.session: str | None = None
        self.buffer = b""
        self.loaded = False
        pages = self.send("Target.getTargets")["targetInfos"]
        target = next(page["targetId"] for page in pages if page["type"] == "page")
        self.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(self.downloads))
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility"):
            self.send(f"{domain}.enable")
        # As if its window were in front: else nothing in it has the focus.
        self.send("Emulation.setFocusEmulationEnabled", enabled=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.kill(self.process, signal.SIGTERM)
        os.waitpid(self.process, 0)
        os.close(self.sending)
        os.close(self.receiving)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Asks, and waits for the answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.sending, json.dumps(message).encode() + b"\0")
        while (answer := self.receive()).get("id") != self.number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def receive(self) -> dict[str, Any]:
        """The next message, with what it says of the page noted."""
        while b"\0" not in self.buffer:
            chunk = os.read(self.receiving, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser has gone")
            self.buffer += chunk
        line, self.buffer = self.buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        facts = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self.loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(facts["request"]["url"])
            case "Runtime.exceptionThrown":
                self.problems.append(json.dumps(facts["exceptionDetails"]))
            case "Log.entryAdded" if facts["entry"]["level"] in ("error", "warning"):
                self.problems.append(facts["entry"]["text"])
        return message

    def open(self, page: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Loads a page and waits until it is drawn."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}  # a click must not chase
        self.send("Emulation.setEmulatedMedia", features=[scheme, still])
        self.loaded = False
        self.send("Page.navigate", url=page.resolve().as_uri())
        while not self.loaded:
            self.receive()
        self.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )

    def evaluate(self, code: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        answer = self.send(
            "Runtime.evaluate",
            expression=code, returnByValue=True, awaitPromise=True, userGesture=True,
        )  # fmt: skip
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", code))
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """A key that goes down and up again."""
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, **text)

    def click(self, selector: str) -> None:
        """A press of the mouse in the middle of an element, where a person would see it."""
        spot = self.evaluate(
            f"""(() => {{ const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{block: "center", behavior: "instant"}});
            const box = element.getBoundingClientRect();
            return [box.left + box.width / 2, box.top + box.height / 2]; }})()"""
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.send(
                "Input.dispatchMouseEvent",
                type=kind, x=spot[0], y=spot[1], button="left", clickCount=1,
            )  # fmt: skip

    def choose(self, selector: str, value: str) -> None:
        """Sets a field as a person does, with the events that this brings."""
        self.evaluate(
            f"""(() => {{ const field = document.querySelector({json.dumps(selector)});
            field.value = {json.dumps(value)};
            for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, {{bubbles: true}}));
            }})()"""
        )

    def downloaded(self, name: str) -> Path:
        """The file, once it is there."""
        path, until = self.downloads / name, time.monotonic() + PATIENCE
        while not path.exists() or list(self.downloads.glob("*.crdownload")):
            if time.monotonic() > until:
                raise RuntimeError(f"{name} was not downloaded")
            time.sleep(0.05)
        return path

    def picture(self, file: Path, *, whole: bool = False) -> None:
        """What the page looks like, as a PNG."""
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(shot["data"]))

    def text(self, selector: str) -> str:
        """The text of the first such element."""
        found: str = self.evaluate(f"document.querySelector({json.dumps(selector)}).textContent")
        return found

    def ids(self) -> list[str]:
        """The examples that the gallery shows, in order."""
        found: list[str] = self.evaluate(
            f"{SHOWN}.map(card => card.querySelector('.id').textContent)"
        )
        return found
