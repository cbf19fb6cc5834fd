#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The page of `weft dump --format html`, loaded by Chromium: what is on it, and that it can be used.

A script that the page does not have is put at its end; it points at nodes, presses keys, filters and
zooms as a reader would, and leaves what it found where this program reads it.

    check_page.py WEFT [FOLDER_FOR_SCREENSHOTS]
"""
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

APART = "labels.every((at, i) => at[1] <= innerWidth && (!i || at[0] > labels[i - 1][1]))"
SELF_CHECK = r"""
<script>
(function () {
const root = document.documentElement, page = window.weftPage, data = page.data, state = page.state;
const found = [], canvas = document.getElementById("canvas"), $ = id => document.getElementById(id);
function check(holds, text) { if (!holds) found.push(text); }
function see() { page.paint(); return Object.assign({}, root.dataset); }
function point(type, n) {
    const [x, y] = page.place(n), rect = canvas.getBoundingClientRect();
    canvas.dispatchEvent(new MouseEvent(type, { clientX: rect.left + x, clientY: rect.top + y, bubbles: true }));
}
function press(key) { canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true })); }
// Painted pixels that are not paper.
function inked() {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const paper = [pixels[pixels.length - 4], pixels[pixels.length - 3], pixels[pixels.length - 2]];
    let count = 0;
    for (let i = 0; i < pixels.length; i += 4)
        count += pixels[i] !== paper[0] || pixels[i + 1] !== paper[1] || pixels[i + 2] !== paper[2];
    return count;
}
try {
    root.dataset.time = JSON.stringify(see());
    const apart = labels => LABELS_ARE_APART;
    check(state.labels.length > 1 && apart(state.labels), "labels of the axis touch");
    check(inked() > 500, "nothing is painted over time");
    $("tab-graph").click();
    root.dataset.graph = JSON.stringify(see());
    check(root.dataset.view === "graph" && $("tab-graph").getAttribute("aria-selected") === "true", "no graph");
    check(inked() > 500, "no graph is painted");
    $("tab-time").click();
    const shown = data.end.findIndex(end => end >= 0);
    if (shown >= 0) {
        see();
        point("mousemove", shown);
        const tip = $("tip");
        check(!tip.hidden && tip.textContent.includes(data.kinds[data.kind[state.hover]]), "no tip over a bar");
        check(tip.textContent.includes("rank" + "0") && tip.textContent.includes("start"), "the tip is short: " + tip.textContent);
        point("click", shown);
        check(state.pinned === state.hover && $("detail").textContent.includes("node"), "a click keeps nothing");
        canvas.dispatchEvent(new MouseEvent("mouseleave", {}));
        check(tip.hidden, "the tip stays");
        const before = state.pinned;
        press("ArrowRight");
        check(data.first[1] === 1 || data.end[1] < 0 || state.pinned !== before, "the arrow moves to no other node");
        press("c");
        check(!data.path.length || data.path.some(step => step[0] === state.pinned), "C is no step of the path");
        const from = data.messages[0];
        if (from !== undefined) {
            press("Escape");
            point("click", from);
            const kept = state.pinned;
            press("Enter");
            check(state.pinned !== kept, "Enter goes to no other end");
        }
        press("Escape");
        check(state.pinned === -1, "Escape keeps the node");
        const kx = state.kx;
        press("+");
        check(state.kx > kx, "+ does not zoom");
        press("0");
        check(state.kx === kx, "0 does not fit");
        const wheel = new WheelEvent("wheel", { deltaY: -200, clientX: 600, clientY: 300, bubbles: true, cancelable: true, view: window });
        canvas.dispatchEvent(wheel);
        check(state.kx > kx, "the wheel does not zoom");
        $("fit").click();
        check(state.kx === kx && state.tx === 0, "fit does not fit");
    }
    $("ranks").value = "0, 2-3, nonsense, 99999999999";
    $("ranks").dispatchEvent(new Event("input"));
    root.dataset.some = JSON.stringify(see());
    $("peers").click();
    root.dataset.peers = JSON.stringify(see());
    $("peers").click();
    $("ranks").value = "";
    $("ranks").dispatchEvent(new Event("input"));
    $("messages").click();
    root.dataset.quiet = JSON.stringify(see());
    $("messages").click();
    const theme = root.dataset.theme;
    $("theme").click();
    check(root.dataset.theme !== theme && inked() > 500, "the theme stays " + theme);
    for (const button of document.querySelectorAll("button"))
        check(button.textContent.trim() || button.getAttribute("aria-label"), "a button without a name");
    check(canvas.tabIndex === 0 && canvas.getAttribute("aria-label"), "the canvas has no name, or no focus");
    const legend = $("legend").textContent;
    for (const kind of new Set(data.kind)) check(legend.includes(data.kinds[kind]), "no legend for " + data.kinds[kind]);
} catch (error) {
    found.push(String(error) + " " + error.stack);
}
root.dataset.check = found.length ? found.join("; ") : "ok";
}());
</script>
</body>""".replace("LABELS_ARE_APART", APART)

faults = []
checks = 0


def check(holds, text):
    global checks
    checks += 1
    if not holds:
        faults.append(text)


class Browser:
    def __init__(self, program, folder):
        self.program = program
        self.folder = folder

    def run(self, words):
        environment = dict(os.environ, HOME=str(self.folder), XDG_RUNTIME_DIR=str(self.folder))
        return subprocess.run(
            [self.program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--hide-scrollbars", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--enable-logging=stderr",
             "--user-data-dir=%s" % (self.folder / "profile"), "--window-size=1300,800", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, timeout=300, check=True)

    def load(self, page, name):
        """Attributes of the page's root after the self-check, and the page as Chromium left it."""
        text = page.read_text(encoding="utf-8")
        check(text.count("</body>") == 1, "%s: one end of the body" % name)
        copy = self.folder / "checked.html"
        copy.write_text(text.replace("</body>", SELF_CHECK), encoding="utf-8")
        ran = self.run(["--virtual-time-budget=2000", "--dump-dom", copy.as_uri()])
        dom = ran.stdout.decode("utf-8")
        log = [line for line in ran.stderr.decode("utf-8", "replace").splitlines() if "CONSOLE" in line and "willReadFrequently" not in line]
        check(not log, "%s: on the console: %s" % (name, log[:3]))
        found = re.search(r"<html([^>]*)>", dom)
        data = {key: html.unescape(value)
                for key, value in re.findall(r'data-([a-z]+)="([^"]*)"', found.group(1))}
        check(data.get("errors") == "0", "%s: %s" % (name, data.get("error")))
        check(data.get("check") == "ok", "%s: %s" % (name, data.get("check")))
        return data, dom

    def shoot(self, page, fragment, path):
        self.run(["--virtual-time-budget=2000", "--screenshot=%s" % path, page.as_uri() + "#" + fragment])


def view(data, name):
    return json.loads(data.get(name, "{}"))


def expect(name, data, key, **wanted):
    seen = view(data, key)
    for what, value in wanted.items():
        check(str(seen.get(what)) == str(value), "%s: %s %s is %s, expected %s" %
              (name, key, what, seen.get(what), value))


def no_network(page, name):
    text = page.read_text(encoding="utf-8")
    check("default-src 'none'" in text, "%s: the page may load things" % name)
    check(not re.search(r"<(?:script|img|link|iframe)[^>]*\s(?:src|href)=(?!\"data:)", text),
          "%s: the page loads things" % name)


def main():
    weft = sys.argv[1]
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if not program:
        print("skipped: Chromium is not here, no page was looked at")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        browser = Browser(program, folder)

        def dump(file, *words):
            page = folder / file
            subprocess.run([weft, "dump", *words, "--format", "html", "-o", str(page)], check=True)
            no_network(page, file)
            return page

        net = ["--net", "L=1.5,o=0.3,g=0.3,G=0.0001", "--compute", "reduce=0.0001,copy=0.0001"]

        # A ring of 64 ranks: 20,160 nodes, 8,064 messages.
        page = dump("ring.html", "allreduce", "--algo", "ring", "-n", "64", "--count", "64k", *net)
        data, dom = browser.load(page, "ring")
        expect("ring", data, "time", bars=20160, arrows=8064, rows=64, hidden=0, view="time")
        expect("ring", data, "graph", bars=20160, rows=64, view="graph")
        expect("ring", data, "some", bars=3 * 315, rows=3)
        expect("ring", data, "peers", rows=6)
        expect("ring", data, "quiet", arrows=0)
        check("64 ranks" in dom and "count 65536" in dom and "makespan" in dom, "ring: no title")
        check(int(view(data, "time")["path"]) > 100, "ring: no critical path")

        # A schedule that is activated: retired nodes, signals, nodes that wait for any.
        page = dump("activation.html", "activation", "-n", "6", *net)
        data, dom = browser.load(page, "activation")
        check(int(view(data, "time")["bars"]) < int(view(data, "graph")["bars"]),
              "activation: retired nodes have bars over time")
        check("signal sent" in dom and "waits for any" in dom, "activation: the legend is short")

        # Labels are text, whatever they say; what does not end says so.
        hostile = "</script><script>document.documentElement.dataset.errors='9'</script>&amp;<b>"
        (folder / "hang.weft").write_text(
            'weft 1\nschedule "%s" size 2\nrank 0 {\n scratch b u8 4\n'
            ' n0 "%s": send b to 1\n n1: recv b from 1 tag 3\n}\n'
            'rank 1 {\n scratch b u8 4\n recv b from 0\n}\n' % (hostile, hostile), encoding="utf-8")
        page = dump("hang.html", str(folder / "hang.weft"))
        data, dom = browser.load(page, "hang")
        expect("hang", data, "time", bars=2, arrows=1)
        expect("hang", data, "graph", bars=3)
        check("It does not end" in dom, "hang: no warning")
        check(dom.count("&lt;/script&gt;") >= 2, "hang: the label is not shown")

        # Nothing at all.
        page = dump("empty.html", "barrier", "-n", "1")
        page.write_text(page.read_text(encoding="utf-8").replace("</body>", """<script>
            window.weftPage.paint();
            const labels = window.weftPage.state.labels;
            document.documentElement.dataset.apart = labels.length > 0 && %s;
            </script></body>""" % APART), encoding="utf-8")
        ran = browser.run(["--virtual-time-budget=1000", "--dump-dom", page.as_uri()])
        check(b'data-errors="0"' in ran.stdout and b'data-bars="0"' in ran.stdout, "empty: it fails")
        check(b'data-apart="true"' in ran.stdout, "empty: labels of the axis touch, or there are none")

        # Times of a real run.
        subprocess.run([weft, "run", "allreduce", "-n", "3", "--algo", "recursive-doubling",
                        "--iterations", "3", "--trace", str(folder / "run.json")], check=True,
                       stdout=subprocess.DEVNULL)
        page = dump("trace.html", "allreduce", "-n", "3", "--algo", "recursive-doubling", "--trace",
                    str(folder / "run.json"))
        data, dom = browser.load(page, "trace")
        seen = view(data, "time")
        check(seen["bars"] == view(data, "graph")["bars"] and int(seen["bars"]) > 6,
              "trace: %s bars" % seen["bars"])
        check(int(seen["path"]) > 2 and "traced, run" in dom, "trace: no critical path")

        if len(sys.argv) > 2:
            shots = pathlib.Path(sys.argv[2])
            for ranks in (4, 16, 64):
                page = dump("shot.html", "allreduce", "-n", str(ranks), *net)
                for theme in ("light", "dark"):
                    for picture in ("time", "graph"):
                        browser.shoot(page, "theme=%s&view=%s" % (theme, picture),
                                      shots / ("allreduce-%d-%s-%s.png" % (ranks, picture, theme)))
    for fault in faults:
        print("FAILED: %s" % fault)
    print("%d checks, %d failed" % (checks, len(faults)))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
