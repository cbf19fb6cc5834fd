// SPDX-License-Identifier: BSD-3-Clause
// Two pictures of the same nodes on one canvas, rows of ranks: bars over time, and boxes by how many
// nodes and messages must come before. Canvas and not SVG: tens of thousands of nodes move without a
// stutter.
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
