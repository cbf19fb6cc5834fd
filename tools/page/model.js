// SPDX-License-Identifier: BSD-3-Clause
// What the page shows: the nodes of all ranks, what follows what, where each is over time and in the
// graph, and how they are told in words.
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

// ---- words ----

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
