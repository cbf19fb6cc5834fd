// SPDX-License-Identifier: BSD-3-Clause
// The page of `weft dump --format html`. Two pictures of the same nodes on one canvas, rows of ranks:
// bars over time, and boxes by how many nodes and messages must come before. Canvas and not SVG: tens
// of thousands of nodes move without a stutter.
(function () {
"use strict";
const $ = id => document.getElementById(id);
const root = document.documentElement;
root.dataset.errors = "0";
addEventListener("error", event => {
    root.dataset.errors = String(Number(root.dataset.errors) + 1);
    root.dataset.error = event.message;
});

const data = JSON.parse($("data").textContent);
const count = data.kind.length;
const SEND = 0, RECV = 1, REDUCE = 2, COPY = 3, COMPUTE = 4, JOIN = 5, EVENT = 6, SIGNAL = 7;
const ANY = 1, RETIRED = 2, UP_TO = 4;

// Colours that remain apart for people who see few (after Okabe and Ito), for light and dark paper.
const colours = {
    light: ["#0072b2", "#009e73", "#e69f00", "#8c6d31", "#b6508f", "#7b8694", "#c7b200", "#56b4e9"],
    dark: ["#3d9be0", "#2bbf94", "#f0ad1f", "#c8a05a", "#dc8fc0", "#93a0b0", "#ece04a", "#8fd0f7"],
};
// How text on them reads.
const onColour = {
    light: ["#fff", "#fff", "#1b2330", "#fff", "#fff", "#fff", "#1b2330", "#1b2330"],
    dark: ["#06121d", "#06121d", "#1b1200", "#1b1200", "#1d0a16", "#0d1117", "#1b1a00", "#06121d"],
};

// ---- the model ----

const rankOf = new Uint32Array(count);
for (let r = 0; r < data.ranks; r++) rankOf.fill(r, data.first[r], data.first[r + 1]);

// Lists of numbers by number, from pairs.
function lists(pairs, back) {
    const first = new Uint32Array(count + 1), items = new Uint32Array(pairs.length / 2);
    const key = back ? 1 : 0;
    for (let i = 0; i < pairs.length; i += 2) first[pairs[i + key] + 1]++;
    for (let n = 0; n < count; n++) first[n + 1] += first[n];
    const at = first.slice();
    for (let i = 0; i < pairs.length; i += 2) items[at[pairs[i + key]]++] = pairs[i + 1 - key];
    return n => items.subarray(first[n], first[n + 1]);
}
const after = lists(data.edges, false), before = lists(data.edges, true);
const messageTo = lists(data.messages, false), messageFrom = lists(data.messages, true);
const signalTo = lists(data.signals, false), signalFrom = lists(data.signals, true);
const came = n => data.end[n] >= 0;
const retired = n => (data.flags[n] & RETIRED) !== 0;

const pathPlace = new Int32Array(count).fill(-1);
data.path.forEach((step, i) => { pathPlace[step[0]] = i; });

// How many nodes and messages must come before a node, and signals that came before. What hangs in a
// cycle comes last.
function findLevels() {
    const level = new Uint32Array(count), missing = new Uint32Array(count);
    const cameFirst = (from, to) => came(from) && came(to) && data.end[from] <= data.start[to];
    const heard = n => Array.from(signalTo(n)).filter(m => cameFirst(n, m));
    for (let n = 0; n < count; n++)
        missing[n] = before(n).length + messageFrom(n).length +
            Array.from(signalFrom(n)).filter(m => cameFirst(m, n)).length;
    const queue = [];
    for (let n = 0; n < count; n++) if (!missing[n]) queue.push(n);
    for (let i = 0; i < queue.length; i++) {
        const n = queue[i];
        for (const list of [after(n), messageTo(n), heard(n)])
            for (const m of list) {
                level[m] = Math.max(level[m], level[n] + 1);
                if (--missing[m] === 0) queue.push(m);
            }
    }
    if (queue.length < count) {
        const last = queue.reduce((most, n) => Math.max(most, level[n]), 0) + 1;
        for (let n = 0; n < count; n++) if (missing[n]) level[n] = Math.max(level[n], last);
    }
    return level;
}

// A layout: where a node begins and ends across, and on which lane of its rank it is.
function layTime() {
    const x0 = new Float64Array(count), x1 = new Float64Array(count);
    const lane = new Uint16Array(count), lanes = new Uint16Array(data.ranks).fill(1);
    const least = Math.max(data.time_us, 1e-9) * 0.004;
    const shown = new Uint8Array(count);
    for (let r = 0; r < data.ranks; r++) {
        const nodes = d3.range(data.first[r], data.first[r + 1]).filter(came);
        nodes.sort((a, b) => data.start[a] - data.start[b] || data.end[a] - data.end[b] || a - b);
        const free = [];
        for (const n of nodes) {
            shown[n] = 1;
            x0[n] = data.start[n];
            x1[n] = data.end[n];
            let l = free.findIndex(end => end <= x0[n]);
            if (l < 0) l = Math.min(free.length, 11);
            free[l] = Math.max(x1[n] > x0[n] ? x1[n] : x0[n] + least, free[l] || 0);
            lane[n] = l;
            lanes[r] = Math.max(lanes[r], l + 1);
        }
    }
    return { x0, x1, lane, lanes, shown, width: Math.max(data.time_us, d3.max(x1) || 0, 1e-9) };
}

function layGraph() {
    const level = findLevels();
    const x0 = new Float64Array(count), x1 = new Float64Array(count);
    const lane = new Uint16Array(count), lanes = new Uint16Array(data.ranks).fill(1);
    let width = 1;
    for (let r = 0; r < data.ranks; r++) {
        const used = new Map();
        for (let n = data.first[r]; n < data.first[r + 1]; n++) {
            const l = used.get(level[n]) || 0;
            used.set(level[n], l + 1);
            x0[n] = level[n] + 0.12;
            x1[n] = level[n] + 0.82;
            lane[n] = l;
            lanes[r] = Math.max(lanes[r], l + 1);
            width = Math.max(width, level[n] + 1);
        }
    }
    return { x0, x1, lane, lanes, shown: new Uint8Array(count).fill(1), width };
}
const layouts = { time: layTime(), graph: null };

// ---- state ----

const state = {
    view: "time", filter: null, peers: false, messages: true, critical: true, theme: "light",
    hover: -1, pinned: -1, kx: 1, tx: 0, ky: 1, ty: 0, labels: [], // from where to where on the axis
};
const canvas = $("canvas"), context = canvas.getContext("2d");
const GUTTER = 62, TOP = 28, GAP = 0.4, LANE_MOST = 58, LANE_LEAST = 1.5;
let width = 0, height = 0, ratio = 1;
let rows = [], rowOf = null, rowY = [], totalLanes = 1, drawn = { bars: 0, arrows: 0 };
let css = {};
const layout = () => layouts[state.view] || (layouts[state.view] = layGraph());

function readColours() {
    const style = getComputedStyle(root);
    for (const name of ["paper", "panel", "ink", "soft", "faint", "line", "lane", "accent", "critical"])
        css[name] = style.getPropertyValue("--" + name).trim();
    css.kinds = colours[state.theme];
    css.on = onColour[state.theme];
}

// "0-3, 7" as a set; null: all. Words that are no ranks are ignored.
function parseRanks(text) {
    const chosen = new Set();
    for (const part of text.split(/[\s,]+/)) {
        const found = /^(\d+)(?:(?:-|\.\.)(\d+))?$/.exec(part);
        if (!found) continue;
        const last = Math.min(Number(found[2] === undefined ? found[1] : found[2]), data.ranks - 1);
        for (let r = Number(found[1]); r <= last; r++) chosen.add(r);
    }
    return chosen.size ? chosen : null;
}

function findRows() {
    let chosen = state.filter;
    if (chosen && state.peers) {
        chosen = new Set(chosen);
        for (const list of [data.messages, data.signals])
            for (let i = 0; i < list.length; i += 2) {
                const a = rankOf[list[i]], b = rankOf[list[i + 1]];
                if (state.filter.has(a)) chosen.add(b);
                if (state.filter.has(b)) chosen.add(a);
            }
    }
    rows = d3.range(data.ranks).filter(r => !chosen || chosen.has(r));
    rowOf = new Int32Array(data.ranks).fill(-1);
    rowY = [];
    totalLanes = 0;
    rows.forEach((r, i) => {
        rowOf[r] = i;
        rowY.push(totalLanes + GAP / 2);
        totalLanes += layout().lanes[r] + GAP;
    });
    rowY.push(totalLanes + GAP / 2);
}

// ---- the view: screen = offset + k * world, across and down apart ----

const plotWidth = () => Math.max(width - GUTTER - 16, 10), plotHeight = () => Math.max(height - TOP - 8, 10);
const sx = x => GUTTER + state.tx + state.kx * x, sy = y => TOP + state.ty + state.ky * y;
const laneTop = n => rowY[rowOf[rankOf[n]]] + layout().lane[n];

function limits() {
    const fitX = plotWidth() / layout().width;
    const fitY = Math.min(Math.max(plotHeight() / totalLanes, LANE_LEAST), LANE_MOST);
    if (state.view === "graph")
        return { fitX: Math.min(Math.max(fitX, 15), 180), leastX: Math.min(fitX, 15), mostX: 400,
                 fitY: Math.max(fitY, Math.min(13, LANE_MOST)), leastY: Math.min(fitY, 4), mostY: 60 };
    return { fitX, leastX: fitX, mostX: fitX * 1e6, fitY, leastY: fitY, mostY: Math.max(LANE_MOST, 48) };
}

function clampView() {
    const l = limits();
    state.kx = Math.min(Math.max(state.kx, l.leastX), l.mostX);
    state.ky = Math.min(Math.max(state.ky, Math.min(l.leastY, l.fitY)), l.mostY);
    const across = state.kx * layout().width, down = state.ky * totalLanes;
    state.tx = Math.min(Math.max(state.tx, Math.min(plotWidth() - across, 0)), 0);
    state.ty = Math.min(Math.max(state.ty, Math.min(plotHeight() - down, 0)), 0);
}

function fit() {
    const l = limits();
    state.kx = l.fitX;
    state.ky = l.fitY;
    state.tx = state.ty = 0;
    draw();
}

function zoomBy(factor, px, py) {
    const { kx, ky } = state, l = limits();
    state.kx = Math.min(Math.max(kx * factor, l.leastX), l.mostX);
    state.ky = Math.min(Math.max(ky * factor, Math.min(l.leastY, l.fitY)), l.mostY);
    state.tx = px - GUTTER - (px - GUTTER - state.tx) * (state.kx / kx);
    state.ty = py - TOP - (py - TOP - state.ty) * (state.ky / ky);
    draw();
}

// Gestures are d3's: wheel, drag, pinch, double click. What it would do with one scale for both
// directions is done here with two.
let gesture = d3.zoomIdentity;
const zoom = d3.zoom().on("zoom", () => {
    const t = d3.event.transform, f = t.k / gesture.k;
    if (Math.abs(f - 1) > 1e-9) {
        zoomBy(f, (t.x - f * gesture.x) / (1 - f), (t.y - f * gesture.y) / (1 - f));
    } else {
        state.tx += t.x - gesture.x;
        state.ty += t.y - gesture.y;
        draw();
    }
    gesture = t;
});
d3.select(canvas).call(zoom);

// ---- times ----

function unit() {
    const t = data.time_us;
    return t >= 1e6 ? [1e-6, "s"] : t >= 1e3 ? [1e-3, "ms"] : t >= 1 || t === 0 ? [1, "µs"] : [1e3, "ns"];
}
const [unitScale, unitName] = unit();
function timeText(us) {
    const value = us * unitScale;
    return (value === 0 ? "0" : d3.format(Math.abs(value) >= 1000 ? ",.1f" : ".4~g")(value)) + " " + unitName;
}
const bytesText = b => b < 1024 ? b + " B" : b < 1048576 ? d3.format(".4~g")(b / 1024) + " KiB"
    : b < 1073741824 ? d3.format(".4~g")(b / 1048576) + " MiB" : d3.format(".4~g")(b / 1073741824) + " GiB";
const word = i => data.words[i];
const nodeNumber = n => n - data.first[rankOf[n]];

function shortText(n) {
    const k = data.kind[n];
    if (k === SEND) return "send → " + data.peer[n];
    if (k === RECV) return "recv ← " + data.peer[n];
    if (k === SIGNAL) return "signal → " + data.peer[n];
    if (k === EVENT && !word(data.label[n])) return data.tag[n] < 0 ? "event" : "event " + data.tag[n];
    if (k === REDUCE || k === COMPUTE) return word(data.what[n]).split(" ")[0] || data.kinds[k];
    return word(data.label[n]) || data.kinds[k];
}

// ---- drawing ----

let waiting = false;
function draw() {
    clampView();
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; paint(); });
}

function arrow(fromX, fromY, toX, toY, head) {
    context.beginPath();
    context.moveTo(fromX, fromY);
    if (state.view === "graph") {
        const bend = Math.max((toX - fromX) / 2, 14);
        context.bezierCurveTo(fromX + bend, fromY, toX - bend, toY, toX, toY);
    } else {
        context.lineTo(toX, toY);
    }
    context.stroke();
    if (!head) return;
    const angle = state.view === "graph" ? 0 : Math.atan2(toY - fromY, toX - fromX);
    context.save();
    context.translate(toX, toY);
    context.rotate(angle);
    context.beginPath();
    context.moveTo(0, 0);
    context.lineTo(-head, -head * 0.45);
    context.lineTo(-head, head * 0.45);
    context.fill();
    context.restore();
}

const visible = n => rowOf[rankOf[n]] >= 0 && layout().shown[n] === 1;
const middleY = n => sy(laneTop(n) + 0.5);
// Where an arrow leaves and arrives. Over time: from the end of the send if the message begins to come
// in later, else from its start to the end of the receive.
function ends(from, to, order) {
    const l = layout();
    if (state.view === "graph" || order) return [sx(l.x1[from]), middleY(from), sx(l.x0[to]), middleY(to)];
    return l.x1[from] <= l.x0[to] ? [sx(l.x1[from]), middleY(from), sx(l.x0[to]), middleY(to)]
        : [sx(l.x0[from]), middleY(from), sx(l.x1[to]), middleY(to)];
}
const onScreen = e => Math.max(e[0], e[2]) >= GUTTER && Math.min(e[0], e[2]) <= width &&
    Math.max(e[1], e[3]) >= TOP && Math.min(e[1], e[3]) <= height;

function paintRows() {
    context.font = "12px system-ui, 'Noto Sans', 'DejaVu Sans', sans-serif";
    for (let i = 0; i < rows.length; i++) {
        const top = sy(rowY[i] - GAP / 2), bottom = sy(rowY[i + 1] - GAP / 2);
        if (bottom < TOP || top > height) continue;
        if (i % 2 === 0) {
            context.fillStyle = css.lane;
            context.fillRect(GUTTER, top, width - GUTTER, bottom - top);
        }
    }
}

function paintAxis() {
    context.fillStyle = css.paper;
    context.fillRect(0, 0, width, TOP);
    context.fillRect(0, 0, GUTTER, height);
    context.strokeStyle = css.line;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(0, TOP + 0.5);
    context.lineTo(width, TOP + 0.5);
    context.moveTo(GUTTER + 0.5, 0);
    context.lineTo(GUTTER + 0.5, height);
    context.stroke();
    context.font = "11.5px system-ui, 'Noto Sans', 'DejaVu Sans', sans-serif";
    context.textBaseline = "middle";
    context.fillStyle = css.soft;
    context.textAlign = "right";
    context.fillText("rank", GUTTER - 9, TOP / 2);
    const apart = state.ky * (totalLanes / Math.max(rows.length, 1));
    const every = Math.max(1, Math.ceil(13 / apart));
    context.save();
    context.beginPath();
    context.rect(0, TOP - 5, GUTTER, height - TOP + 5);
    context.clip();
    for (let i = 0; i < rows.length; i += every) {
        const y = sy((rowY[i] + rowY[i + 1] - GAP) / 2);
        if (y < TOP - 6 || y > height + 6) continue;
        const mine = state.hover >= 0 && rankOf[state.hover] === rows[i];
        context.fillStyle = mine ? css.accent : css.ink;
        context.fillText(rows[i], GUTTER - 9, y);
    }
    context.restore();
    context.textAlign = "left";
}

function paintTicks() {
    const scale = d3.scaleLinear();
    let text;
    if (state.view === "time") {
        scale.domain([-state.tx / state.kx * unitScale, (width - GUTTER - state.tx) / state.kx * unitScale]);
        const format = scale.tickFormat(Math.max(3, Math.floor(width / 110)));
        text = t => format(t) + " " + unitName;
    } else {
        scale.domain([-state.tx / state.kx, (width - GUTTER - state.tx) / state.kx]);
        text = t => Number.isInteger(t) ? "step " + t : "";
    }
    scale.range([GUTTER, width]);
    const ticks = scale.ticks(Math.max(3, Math.floor(width / 120)))
        .filter(t => t >= 0 && (state.view === "time" || (Number.isInteger(t) && t < layout().width)));
    const shift = state.view === "graph" ? 0.47 * state.kx : 0;
    context.textBaseline = "middle";
    context.strokeStyle = css.line;
    context.lineWidth = 1;
    const labels = [];
    ticks.forEach(t => {
        const x = Math.round(scale(t) + shift) + 0.5;
        if (x < GUTTER || x > width) return;
        context.beginPath();
        context.moveTo(x, TOP);
        context.lineTo(x, height);
        context.stroke();
        labels.push([text(t), x]);
    });
    return () => {
        // Within the axis, and apart: a label that would touch the one before is left out.
        let free = GUTTER + 6;
        state.labels = [];
        context.textAlign = "left";
        context.fillStyle = css.soft;
        for (const [label, x] of labels) {
            const wide = context.measureText(label).width;
            const left = Math.max(GUTTER + 6, Math.min(x - wide / 2, width - 6 - wide));
            if (!label || left < free) continue;
            context.fillText(label, left, TOP / 2);
            state.labels.push([left, left + wide]);
            free = left + wide + 8;
        }
    };
}

const MOST_ARROWS = 12000;
function paintArrows() {
    const lit = focus();
    const faint = [], strong = [];
    for (const [list, kind] of [[data.messages, "message"], [data.signals, "signal"]])
        for (let i = 0; i < list.length; i += 2) {
            const from = list[i], to = list[i + 1];
            if (!visible(from) || !visible(to) || retired(from) || retired(to)) continue;
            const e = ends(from, to, false);
            if (!onScreen(e)) continue;
            const mine = lit >= 0 && (from === lit || to === lit);
            if (mine) strong.push([e, kind]);
            else if (state.messages) faint.push([e, kind]);
        }
    drawn.arrows = strong.length + (faint.length <= MOST_ARROWS ? faint.length : 0);
    drawn.hidden = faint.length > MOST_ARROWS ? faint.length : 0;
    if (!drawn.hidden) {
        const alpha = Math.min(Math.max(500 / Math.max(faint.length, 1), 0.16), 0.75);
        const head = faint.length <= 2500 && state.ky >= 7 ? Math.min(7, 3 + state.ky / 5) : 0;
        context.globalAlpha = lit >= 0 ? alpha * 0.6 : alpha;
        context.lineWidth = faint.length > 2500 ? 0.7 : 1;
        for (const kind of ["message", "signal"]) {
            context.strokeStyle = context.fillStyle = kind === "message" ? css.soft : css.accent;
            context.setLineDash(kind === "signal" ? [4, 3] : []);
            for (const [e, k] of faint) if (k === kind) arrow(...e, head);
        }
        context.setLineDash([]);
        context.globalAlpha = 1;
    }
    return () => {
        context.lineWidth = 2;
        for (const [e, kind] of strong) {
            context.strokeStyle = context.fillStyle = css.ink;
            context.setLineDash(kind === "signal" ? [5, 3] : []);
            arrow(...e, 9);
        }
        context.setLineDash([]);
    };
}

function paintOrders() {
    const lit = focus();
    context.lineWidth = 1;
    const one = (from, to, strong) => {
        if (!visible(from) || !visible(to)) return;
        const e = ends(from, to, true);
        if (!onScreen(e)) return;
        context.strokeStyle = context.fillStyle = strong ? css.accent : css.faint;
        context.lineWidth = strong ? 1.8 : 1;
        arrow(...e, state.kx > 40 || state.view === "time" ? 6 : 0);
    };
    if (state.view === "graph") {
        context.globalAlpha = 0.8;
        for (let i = 0; i < data.edges.length; i += 2) one(data.edges[i], data.edges[i + 1], false);
        context.globalAlpha = 1;
    }
    if (lit < 0) return;
    for (const n of before(lit)) one(n, lit, true);
    for (const n of after(lit)) one(lit, n, true);
}

// A box: its place on the screen. Nothing is narrower than can be seen.
function box(n) {
    const l = layout();
    const x = sx(l.x0[n]), least = state.view === "time" ? Math.min(Math.max(state.ky * 0.22, 2), 5) : 2;
    const y = sy(laneTop(n) + 0.08), h = Math.max(state.ky * 0.84, 1.4);
    return [x, y, Math.max(sx(l.x1[n]) - x, least), h];
}

function paintBars() {
    const l = layout();
    const room = state.ky * 0.84 >= 12;
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.font = Math.min(13, Math.max(10, state.ky * 0.5)) + "px system-ui, 'Noto Sans', 'DejaVu Sans', sans-serif";
    drawn.bars = 0;
    for (const r of rows) {
        const top = sy(rowY[rowOf[r]]);
        if (top > height || top + l.lanes[r] * state.ky < TOP) {
            for (let n = data.first[r]; n < data.first[r + 1]; n++) drawn.bars += l.shown[n];
            continue;
        }
        const right = new Float64Array(l.lanes[r]);
        for (let n = data.first[r]; n < data.first[r + 1]; n++) {
            if (!l.shown[n]) continue;
            drawn.bars++;
            if (sx(l.x1[n]) + 6 < GUTTER || sx(l.x0[n]) > width) continue;
            const [x, y, w, h] = box(n), k = data.kind[n];
            // Of narrow bars in one place, the first is seen.
            if (w < 3 && x + w < right[l.lane[n]] + 1 && x >= right[l.lane[n]] - 3) continue;
            if (w < 3) right[l.lane[n]] = x + w;
            if (retired(n)) context.globalAlpha = 0.3;
            context.fillStyle = css.kinds[k];
            const round = Math.min(3, h / 3, w / 2);
            if (round > 1.3 && k !== JOIN) {
                context.beginPath();
                rounded(x, y, w, h, k === SEND || k === RECV ? Math.min(1.5, round) : round);
                context.fill();
            } else {
                context.fillRect(x, y, w, h);
            }
            if ((data.flags[n] & ANY) && w > 6 && h > 6) {
                context.strokeStyle = css.paper;
                context.lineWidth = 1.2;
                context.strokeRect(x + 2, y + 2, w - 4, h - 4);
            }
            if (room && w > 18) label(n, x, y, w, h, k);
            context.globalAlpha = 1;
        }
    }
}

function rounded(x, y, w, h, r) {
    context.moveTo(x + r, y);
    context.arcTo(x + w, y, x + w, y + h, r);
    context.arcTo(x + w, y + h, x, y + h, r);
    context.arcTo(x, y + h, x, y, r);
    context.arcTo(x, y, x + w, y, r);
    context.closePath();
}

function label(n, x, y, w, h, k) {
    const from = Math.max(x, GUTTER), room = Math.min(x + w, width) - from - 8;
    let text = shortText(n);
    if (room < 10) return;
    if (context.measureText(text).width > room) text = text.replace(/^(send|recv|signal) /, "");
    if (context.measureText(text).width > room) {
        while (text.length > 1 && context.measureText(text + "…").width > room) text = text.slice(0, -1);
        if (text.length < 3) return;
        text = text.trimEnd() + "…";
    }
    context.fillStyle = css.on[k];
    context.fillText(text, from + 4, y + h / 2 + 0.5);
}

function paintPath() {
    if (!state.critical) return;
    context.strokeStyle = context.fillStyle = css.critical;
    let last = -1;
    for (const [n] of data.path) {
        if (!visible(n)) { last = -1; continue; }
        const [x, y, w, h] = box(n);
        context.lineWidth = state.ky > 9 ? 2 : 1.2;
        if (x + w >= GUTTER && x <= width && y + h >= TOP && y <= height)
            context.strokeRect(x - 0.5, y - 0.5, w + 1, h + 1);
        if (last >= 0) {
            const order = rankOf[last] === rankOf[n];
            const e = ends(last, n, order);
            context.lineWidth = state.ky > 9 ? 2.4 : 1.4;
            if (onScreen(e) && (!order || e[2] - e[0] > 1.5 || e[1] !== e[3])) arrow(...e, state.ky > 9 ? 8 : 0);
        }
        last = n;
    }
}

const focus = () => state.hover >= 0 ? state.hover : state.pinned;

function paintFocus() {
    for (const n of new Set([state.hover, state.pinned])) {
        if (n < 0 || !visible(n)) continue;
        const [x, y, w, h] = box(n);
        context.lineWidth = 2.5;
        context.strokeStyle = css.ink;
        context.strokeRect(x - 2, y - 2, w + 4, h + 4);
    }
}

function paint() {
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = css.paper;
    context.fillRect(0, 0, width, height);
    paintRows();
    const labels = paintTicks();
    context.save();
    context.beginPath();
    context.rect(GUTTER, TOP, width - GUTTER, height - TOP);
    context.clip();
    if (state.view === "graph") paintOrders();
    const strong = paintArrows();
    paintBars();
    paintPath();
    if (state.view === "time") paintOrders();
    strong();
    paintFocus();
    context.restore();
    paintAxis();
    labels();
    if (!count) {
        context.fillStyle = css.soft;
        context.textAlign = "center";
        context.fillText("The schedule has no nodes.", GUTTER + plotWidth() / 2, height / 2);
        context.textAlign = "left";
    }
    $("note").textContent = drawn.hidden
        ? d3.format(",")(drawn.hidden) + " messages are not drawn: zoom in, or choose ranks" : "";
    root.dataset.view = state.view;
    root.dataset.rows = rows.length;
    root.dataset.bars = drawn.bars;
    root.dataset.arrows = drawn.arrows;
    root.dataset.hidden = drawn.hidden;
    root.dataset.path = data.path.length;
    root.dataset.ready = "1";
}

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
}());
