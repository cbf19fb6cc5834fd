// SPDX-License-Identifier: BSD-3-Clause
// What of it is looked at: which picture, which ranks, and where it is on the screen.

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
