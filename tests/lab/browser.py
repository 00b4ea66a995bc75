# SPDX-License-Identifier: GPL-2.0
"""A browser without a window, driven by its own protocol over two pipes: JSON, with a zero byte behind each message."""

import base64
import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from pathlib import Path

# Inside the root, by the name of the folder where setup has unpacked it.
PLACE = "FERROCE_BROWSER"
PROGRAM = "usr/lib/chromium/chromium-headless-shell"
# It has no sandbox, for root has none: it opens pages that we have made. It looks up no name and asks for no news.
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
           "--disable-component-update", "--disable-sync", "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1400,900",
           "--remote-debugging-pipe")
# Seconds that an answer may take; nothing is judged by how long it took.
PATIENCE = 120


def environment(place):
    """What the program finds its libraries and fonts by."""
    libraries = f"{place}/usr/lib/x86_64-linux-gnu"
    return os.environ | {"LD_LIBRARY_PATH": f"{libraries}:{libraries}/pulseaudio", "FONTCONFIG_PATH": f"{place}/etc/fonts",
                         "XDG_DATA_HOME": f"{place}/usr/share"}


class Browser:
    """A browser with one page. It keeps what the page has asked of anybody, and what went wrong in it."""

    def __init__(self):
        self.numbers = itertools.count(1)
        self.home = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        ours, theirs = os.pipe(), os.pipe()
        with open(f"{self.home.name}/log", "wb") as log:
            place = os.environ[PLACE]
            # It reads what it is to do from file 3, and writes what it says to 4.
            self.process = subprocess.Popen(
                ["sh", "-c", f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}', "sh", f"{place}/{PROGRAM}", *OPTIONS,
                 f"--user-data-dir={self.home.name}/profile"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=environment(place), pass_fds=(ours[0], theirs[1]), start_new_session=True)
        os.close(ours[0])
        os.close(theirs[1])
        self.to, self.of, self.held = ours[1], theirs[0], b""
        self.session, self.asked, self.wrong = None, [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        """Ends it, with the processes that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.to)
        os.close(self.of)
        self.home.cleanup()

    def next(self, end):
        while b"\0" not in self.held:
            ready = select.select([self.of], [], [], max(0, end - time.monotonic()))[0]
            more = os.read(self.of, 1 << 16) if ready else b""
            if not more:
                said = Path(f"{self.home.name}/log").read_text(encoding="utf-8", errors="replace")
                raise AssertionError(f"the browser {'says nothing' if not ready else 'is gone'}: {said[-2000:]}")
            self.held += more
        message, _, self.held = self.held.partition(b"\0")
        return json.loads(message)

    def hear(self, message):
        """Keeps what an event tells."""
        method, told = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent":
            self.asked.append(told["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.wrong.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.wrong.append(told["entry"]["text"])

    def call(self, method, **how):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": how} | ({"sessionId": self.session} if self.session else {})
        left = json.dumps(message).encode() + b"\0"
        while left:
            left = left[os.write(self.to, left):]
        return self.wait(lambda one: one.get("id") == number, method)["result"]

    def wait(self, wanted, what):
        end = time.monotonic() + PATIENCE
        while True:
            message = self.next(end)
            if "error" in message:
                raise AssertionError(f"{what}: {message['error']}")
            self.hear(message)
            if wanted(message):
                return message

    def scripts(self, run):
        self.call("Emulation.setScriptExecutionDisabled", value=not run)

    def open(self, url):
        """Loads a page from its beginning, also where it differs from the one before by its fragment alone."""
        self.call("Page.navigate", url="about:blank")
        self.asked, self.wrong = [], []
        self.call("Page.navigate", url=url)
        self.wait(lambda one: one.get("method") == "Page.loadEventFired", url)

    def ask(self, script):
        done = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in done:
            raise AssertionError(f"{script}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def click(self, selector):
        """A press of the mouse on the middle of an element, wherever the page is."""
        x, y = self.ask(f"""(() => {{ const one = document.querySelector({json.dumps(selector)}); one.scrollIntoView({{block: "center"}});
            const at = one.getBoundingClientRect(); return [at.x + Math.min(at.width, 600) / 2, at.y + at.height / 2]; }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key)

    def picture(self, path):
        """What is to be seen, as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))
