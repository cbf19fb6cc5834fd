// SPDX-License-Identifier: BSD-3-Clause
// What a reader does with it: points at nodes, presses keys and buttons, follows an address.
// ---- finding, telling ----

function nodeAt(px, py) {
    if (px < GUTTER || py < TOP || !rows.length) return -1;
    const y = (py - TOP - state.ty) / state.ky, i = Math.max(d3.bisectRight(rowY, y) - 1, 0);
    const r = rows[Math.min(i, rows.length - 1)], l = layout();
    let best = -1, distance = 5;
    for (let n = data.first[r]; n < data.first[r + 1]; n++) {
        if (!l.shown[n]) continue;
        const [x, top, w, h] = box(n);
        const dx = Math.max(x - px, px - x - w, 0), dy = Math.max(top - py, py - top - h, 0);
        const d = Math.hypot(dx, dy);
        if (d < distance || (d === distance && best >= 0 && w < box(best)[2])) { best = n; distance = d; }
    }
    return best;
}

function element(name, text, className) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
}

function facts(n, full) {
    const k = data.kind[n], list = [["rank", rankOf[n]], ["node", "n" + nodeNumber(n)]];
    if (word(data.label[n])) list.push(["label", word(data.label[n])]);
    if (word(data.what[n])) list.push([k === SEND ? "sends" : k === RECV ? "into" : "does", word(data.what[n]), "what"]);
    if (data.peer[n] >= 0) list.push([k === RECV ? "from" : "to", "rank " + data.peer[n]]);
    if (k === SEND || k === RECV) list.push(["tag", data.tag[n]]);
    if (k === EVENT || k === SIGNAL) list.push(["channel", data.tag[n] < 0 ? "the application's" : data.tag[n]]);
    if (data.choice[n] >= 0) list.push(["choice", data.choice[n]]);
    if (k <= COMPUTE) list.push(["size", (data.flags[n] & UP_TO ? "up to " : "") + bytesText(data.bytes[n])]);
    if (came(n)) {
        list.push(["start", timeText(data.start[n])], ["end", timeText(data.end[n])]);
        list.push(["takes", timeText(data.end[n] - data.start[n])]);
    } else {
        list.push(["time", retired(n) ? "retired by a choice" : "it never ends"]);
    }
    if (pathPlace[n] >= 0) list.push(["critical path", "step " + (pathPlace[n] + 1) + ", " + data.path[pathPlace[n]][1]]);
    if (full) {
        const names = nodes => Array.from(nodes, m => "n" + nodeNumber(m)).join(", ");
        if (before(n).length) list.push([data.flags[n] & ANY ? "after any of" : "after", names(before(n))]);
        if (after(n).length) list.push(["before", names(after(n))]);
    }
    return list;
}

function describe(n, full) {
    const part = document.createDocumentFragment();
    const title = element("div", undefined, "title"), swatch = element("span", "", "swatch");
    swatch.style.background = css.kinds[data.kind[n]];
    title.append(swatch, element("span", data.kinds[data.kind[n]]));
    const pairs = element("dl", undefined, "pairs");
    for (const [name, value, className] of facts(n, full))
        pairs.append(element("dt", name), element("dd", String(value), className));
    part.append(title, pairs);
    return part;
}

function showTip(px, py) {
    const tip = $("tip");
    tip.hidden = state.hover < 0;
    if (state.hover < 0) return;
    tip.replaceChildren(describe(state.hover, false));
    const w = tip.offsetWidth, h = tip.offsetHeight;
    tip.style.left = (px + 16 + w > width ? Math.max(px - w - 14, 4) : px + 16) + "px";
    tip.style.top = Math.min(Math.max(py + 14 + h > height ? py - h - 12 : py + 14, 4), Math.max(height - h - 4, 4)) + "px";
}

function showDetail() {
    const n = state.pinned >= 0 ? state.pinned : state.hover;
    if (n < 0) $("detail").replaceChildren(element("p", "Point at a node, or click it to keep it here.", "hint"));
    else $("detail").replaceChildren(describe(n, true));
    root.dataset.hover = state.hover;
    root.dataset.pinned = state.pinned;
}

function hover(n, px, py) {
    const changed = n !== state.hover;
    state.hover = n;
    showTip(px, py);
    if (!changed) return;
    canvas.style.cursor = n >= 0 ? "pointer" : "default";
    showDetail();
    draw();
}

// Keeps a node, and brings it into the view.
function pin(n) {
    state.pinned = n;
    if (n >= 0) {
        if (rowOf[rankOf[n]] < 0) setFilter("");
        if (visible(n)) {
            const [x, y, w, h] = box(n);
            if (x < GUTTER || x + Math.min(w, 40) > width) state.tx += GUTTER + plotWidth() / 2 - x - Math.min(w, plotWidth()) / 2;
            if (y < TOP || y + h > height) state.ty += TOP + plotHeight() / 2 - y;
        }
    }
    showDetail();
    draw();
}

// ---- controls ----

const press = (button, on) => button.setAttribute("aria-pressed", on ? "true" : "false");

function setView(view) {
    state.view = view;
    state.hover = -1;
    $("tip").hidden = true;
    for (const name of ["time", "graph"]) {
        $("tab-" + name).setAttribute("aria-selected", name === view ? "true" : "false");
        $("tab-" + name).tabIndex = name === view ? 0 : -1;
    }
    canvas.setAttribute("aria-label", view === "time" ? "Space-time diagram: a row a rank, a bar a node, arrows for messages"
        : "Graph: a row a rank, a box a node, arrows for orders and messages");
    findRows();
    fit();
}

function setFilter(text) {
    if ($("ranks").value !== text) $("ranks").value = text;
    state.filter = parseRanks(text);
    findRows();
    fit();
}

function setTheme(theme) {
    state.theme = theme;
    root.dataset.theme = theme;
    $("theme").textContent = theme === "dark" ? "Light" : "Dark";
    readColours();
    showLegend();
    showDetail();
    draw();
}

function showLegend() {
    const used = new Set(data.kind), legend = $("legend");
    legend.replaceChildren();
    const entry = (svg, text) => {
        const item = element("li");
        item.innerHTML = '<svg width="22" height="12" aria-hidden="true">' + svg + "</svg>";
        item.append(element("span", text));
        legend.append(item);
    };
    data.kinds.forEach((name, k) => {
        if (used.has(k)) entry('<rect x="4" y="1" width="14" height="10" rx="2" fill="' + css.kinds[k] + '"/>', name);
    });
    if (data.messages.length) entry('<path d="M1 6H16" stroke="' + css.soft + '"/><path d="M21 6l-6-3v6z" fill="' + css.soft + '"/>', "message");
    if (data.signals.length) entry('<path d="M1 6H16" stroke="' + css.accent + '" stroke-dasharray="4 3"/><path d="M21 6l-6-3v6z" fill="' + css.accent + '"/>', "signal sent");
    if (data.path.length) entry('<rect x="4" y="1.5" width="14" height="9" fill="none" stroke="' + css.critical + '" stroke-width="2"/>', "critical path");
    if (data.flags.some(f => f & ANY)) entry('<rect x="4" y="1" width="14" height="10" fill="' + css.kinds[JOIN] + '"/><rect x="6.5" y="3.5" width="9" height="5" fill="none" stroke="' + css.paper + '"/>', "waits for any");
}

const MOST_STEPS = 400;
function showSteps() {
    if (!data.path.length) {
        $("steps").replaceChildren(element("p", "None.", "hint"));
        return;
    }
    const table = element("table", undefined, "steps"), head = element("tr");
    for (const name of ["rank", "node", "held by", "end"]) head.append(element("th", name));
    table.append(head);
    for (const [n, reason, , end] of data.path.slice(0, MOST_STEPS)) {
        const row = element("tr"), button = element("button", shortText(n));
        button.addEventListener("click", () => pin(n));
        const cell = element("td");
        cell.append(button);
        row.append(element("td", rankOf[n]), cell, element("td", reason), element("td", timeText(end)));
        table.append(row);
    }
    $("steps").replaceChildren(table);
    if (data.path.length > MOST_STEPS)
        $("steps").append(element("p", "and " + (data.path.length - MOST_STEPS) + " more", "hint"));
}

function showHead() {
    document.title = data.name + ", " + data.all_ranks + " ranks";
    $("title").textContent = data.name;
    $("about").textContent = [data.all_ranks + (data.all_ranks === 1 ? " rank" : " ranks"), data.parameters].filter(Boolean).join(" · ");
    let bytes = 0;
    for (let i = 0; i < data.messages.length; i += 2) bytes += data.bytes[data.messages[i]];
    const hops = data.path.filter(s => s[1] === "message" || s[1] === "rendezvous").length;
    const list = [["makespan", timeText(data.time_us)],
        ["critical path", data.path.length + " steps, " + hops + " messages"],
        ["nodes", d3.format(",")(data.all_nodes)],
        ["messages", d3.format(",")(data.messages.length / 2) + (bytes ? ", " + bytesText(bytes) : "")],
        ["times", data.source]];
    for (const [name, value] of list) {
        const pair = element("div");
        pair.append(element("dt", name), element("dd", value));
        $("facts").append(pair);
    }
    const warnings = [];
    if (data.ranks < data.all_ranks)
        warnings.push("Only ranks 0 to " + (data.ranks - 1) + " of " + data.all_ranks + " are on this page (" +
            d3.format(",")(count) + " of " + d3.format(",")(data.all_nodes) + " nodes); times are those of all.");
    if (!data.complete) warnings.push("It does not end" + (data.faults ? ": " + data.faults : "."));
    if (!data.time_us && count) warnings.push("All times are 0: a network (--net) gives messages their times.");
    if (warnings.length) {
        $("warning").textContent = warnings.join(" ");
        $("warning").hidden = false;
    }
}

function resize() {
    const rect = canvas.getBoundingClientRect(), was = width, scale = Math.max(devicePixelRatio || 1, 1);
    const fitted = state.kx === limits().fitX && state.tx === 0 && state.ty === 0;
    if (rect.width === width && rect.height === height && scale === ratio) return;
    ratio = scale;
    width = rect.width;
    height = rect.height;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    if (was === 0 || fitted) fit();
    // A canvas that gets another size is empty: it is painted before anybody sees it.
    clampView();
    paint();
}

// The neighbour of the kept node in its rank, in the order of the picture.
function neighbour(step) {
    const l = layout(), n = state.pinned;
    if (n < 0) return d3.range(count).find(visible);
    const nodes = d3.range(data.first[rankOf[n]], data.first[rankOf[n] + 1]).filter(visible);
    nodes.sort((a, b) => l.x0[a] - l.x0[b] || a - b);
    return nodes[nodes.indexOf(n) + step];
}

function otherRank(step) {
    const n = state.pinned, l = layout();
    if (n < 0) return d3.range(count).find(visible);
    for (let i = rowOf[rankOf[n]] + step; i >= 0 && i < rows.length; i += step) {
        const nodes = d3.range(data.first[rows[i]], data.first[rows[i] + 1]).filter(visible);
        if (nodes.length) return nodes.reduce((best, m) => Math.abs(l.x0[m] - l.x0[n]) < Math.abs(l.x0[best] - l.x0[n]) ? m : best);
    }
    return undefined;
}

const otherEnd = n => n < 0 ? undefined : [...messageTo(n), ...messageFrom(n), ...signalTo(n), ...signalFrom(n)][0];

function key(event) {
    const middle = [GUTTER + plotWidth() / 2, TOP + plotHeight() / 2];
    const go = n => { if (n !== undefined) pin(n); };
    const slide = (dx, dy) => { state.tx += dx; state.ty += dy; draw(); };
    const path = data.path.length;
    const keys = {
        ArrowRight: () => event.shiftKey ? slide(-120, 0) : go(neighbour(1)),
        ArrowLeft: () => event.shiftKey ? slide(120, 0) : go(neighbour(-1)),
        ArrowDown: () => event.shiftKey ? slide(0, -80) : go(otherRank(1)),
        ArrowUp: () => event.shiftKey ? slide(0, 80) : go(otherRank(-1)),
        Enter: () => go(otherEnd(state.pinned)),
        c: () => path && go(data.path[((state.pinned >= 0 ? pathPlace[state.pinned] : -1) + 1) % path][0]),
        "+": () => zoomBy(1.5, ...middle), "=": () => zoomBy(1.5, ...middle),
        "-": () => zoomBy(1 / 1.5, ...middle), 0: fit,
        Escape: () => { hover(-1, 0, 0); pin(-1); },
    };
    const action = keys[event.key] || keys[event.key.toLowerCase()];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
}

function listen() {
    $("tab-time").addEventListener("click", () => setView("time"));
    $("tab-graph").addEventListener("click", () => setView("graph"));
    for (const name of ["time", "graph"])
        $("tab-" + name).addEventListener("keydown", event => {
            if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
            setView(state.view === "time" ? "graph" : "time");
            $("tab-" + state.view).focus();
        });
    $("ranks").addEventListener("input", () => setFilter($("ranks").value));
    $("peers").addEventListener("click", () => { state.peers = !state.peers; press($("peers"), state.peers); setFilter($("ranks").value); });
    $("messages").addEventListener("click", () => { state.messages = !state.messages; press($("messages"), state.messages); draw(); });
    $("critical").addEventListener("click", () => { state.critical = !state.critical; press($("critical"), state.critical); draw(); });
    $("in").addEventListener("click", () => zoomBy(1.5, GUTTER + plotWidth() / 2, TOP + plotHeight() / 2));
    $("out").addEventListener("click", () => zoomBy(1 / 1.5, GUTTER + plotWidth() / 2, TOP + plotHeight() / 2));
    $("fit").addEventListener("click", fit);
    $("theme").addEventListener("click", () => setTheme(state.theme === "dark" ? "light" : "dark"));
    canvas.addEventListener("keydown", key);
    canvas.addEventListener("mousemove", event => {
        if (event.buttons) { hover(-1, 0, 0); return; }
        hover(nodeAt(event.offsetX, event.offsetY), event.offsetX, event.offsetY);
    });
    canvas.addEventListener("mouseleave", () => hover(-1, 0, 0));
    canvas.addEventListener("click", event => pin(nodeAt(event.offsetX, event.offsetY)));
    new ResizeObserver(resize).observe(canvas);
}

// #view=graph&ranks=0-3&theme=dark&node=R.N: so that a view can be given to somebody.
function readAddress() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    setTheme(asked.get("theme") || (dark ? "dark" : "light"));
    if (asked.get("peers") === "1") { state.peers = true; press($("peers"), true); }
    if (asked.get("messages") === "0") { state.messages = false; press($("messages"), false); }
    if (asked.get("ranks")) $("ranks").value = asked.get("ranks");
    state.filter = parseRanks($("ranks").value);
    setView(asked.get("view") === "graph" ? "graph" : "time");
    const node = /^(\d+)\.(\d+)$/.exec(asked.get("node") || "");
    if (node && Number(node[1]) < data.ranks && data.first[node[1]] + Number(node[2]) < data.first[Number(node[1]) + 1])
        pin(data.first[node[1]] + Number(node[2]));
}

readColours();
showHead();
showSteps();
findRows();
resize();
readAddress();
listen();
addEventListener("hashchange", readAddress);

// For tests: where a node is on the canvas, and what is painted at once.
window.weftPage = { data, state, paint: () => { clampView(); paint(); }, place: n => { const [x, y, w, h] = box(n); return [x + w / 2, y + h / 2]; } };
