/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The page of `weft dump --format html`: the template page.html with the data in it as JSON, a
 * column a property, so that a page of 100,000 nodes stays small and is read fast.
 */
#include "tools/page/html.h"

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* ---- growing text ---- */

static int reserve(struct html_text *out, size_t more)
{
    size_t capacity = out->capacity ? out->capacity : 1 << 16;

    if (out->failed || out->length + more < more)
        return -1;
    while (capacity < out->length + more && capacity <= SIZE_MAX / 2)
        capacity *= 2;
    if (capacity != out->capacity) {
        char *text = capacity < out->length + more ? NULL : weft_memory_alloc(capacity, 1);
        if (!text) {
            out->failed = 1;
            return -1;
        }
        if (out->length)
            memcpy(text, out->text, out->length);
        weft_memory_free(out->text);
        out->text = text;
        out->capacity = capacity;
    }
    return 0;
}

void html_add(struct html_text *out, const char *text, size_t length)
{
    if (!reserve(out, length + 1)) {
        memcpy(out->text + out->length, text, length);
        out->length += length;
        out->text[out->length] = '\0';
    }
}

void html_print(struct html_text *out, const char *format, ...)
{
    char text[512];
    va_list list;

    va_start(list, format);
    int length = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    html_add(out, text, length < 0 ? 0 : strlen(text));
}

/* A JSON string that may stand in a page: nothing in it is taken for a tag. */
static void add_string(struct html_text *out, const char *text)
{
    html_add(out, "\"", 1);
    for (size_t plain; *text; text += plain) {
        plain = 0;
        while (text[plain] && !strchr("\"\\<&", text[plain]) && (unsigned char)text[plain] >= ' ' &&
               text[plain] != 127)
            plain++;
        html_add(out, text, plain);
        if (text[plain])
            html_print(out, "\\u%04x", (unsigned char)text[plain++]);
    }
    html_add(out, "\"", 1);
}

/* ---- texts that many nodes share ---- */

struct words {
    struct html_text all; /* one after the other, each with its NUL */
    size_t *begin;        /* of word n in `all` */
    size_t count, capacity;
    size_t *table; /* open addressing: word + 1, or 0 */
    size_t mask;
    int failed;
};

/* Of word n; no text is there before the first. */
static const char *word_text(const struct words *words, size_t n)
{
    return words->all.text ? words->all.text + words->begin[n] : "";
}

static size_t *word_place(struct words *words, const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (const char *c = text; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    size_t at = (size_t)(hash ^ hash >> 29) & words->mask;
    while (words->table[at] && strcmp(word_text(words, words->table[at] - 1), text) != 0)
        at = (at + 1) & words->mask;
    return &words->table[at];
}

static int words_grow(struct words *words)
{
    size_t capacity = words->capacity ? words->capacity * 2 : 1024;
    size_t *begin = weft_memory_alloc(capacity, sizeof *begin);
    size_t *table = weft_memory_alloc(capacity * 2, sizeof *table);

    if (!begin || !table) {
        weft_memory_free(begin);
        weft_memory_free(table);
        return -1;
    }
    if (words->count)
        memcpy(begin, words->begin, words->count * sizeof *begin);
    weft_memory_free(words->begin);
    weft_memory_free(words->table);
    words->begin = begin;
    words->table = table;
    words->capacity = capacity;
    words->mask = capacity * 2 - 1;
    for (size_t i = 0; i < words->count; i++)
        *word_place(words, word_text(words, i)) = i + 1;
    return 0;
}

/* Number of a word; 0 is "". */
static size_t word(struct words *words, const char *text)
{
    if (words->failed || (words->count == words->capacity && words_grow(words))) {
        words->failed = 1;
        return 0;
    }
    size_t *place = word_place(words, text);
    if (!*place) {
        words->begin[words->count] = words->all.length;
        html_add(&words->all, text, strlen(text) + 1);
        *place = ++words->count;
        words->failed |= words->all.failed;
    }
    return *place - 1;
}

static void words_free(struct words *words)
{
    weft_memory_free(words->all.text);
    weft_memory_free(words->begin);
    weft_memory_free(words->table);
}

/* ---- what a node does, in words ---- */

static void name_region(char *text, size_t size, const struct weft_schedule *schedule,
                        const struct weft_region *region)
{
    struct weft_slot_info slot = {.struct_size = sizeof slot};
    struct weft_value_info value = {.struct_size = sizeof value};
    size_t used = strlen(text);

    if (weft_schedule_get_slot(schedule, region->slot, &slot) != WEFT_OK)
        return;
    snprintf(text + used, size - used, "%s[%zu:%zu]", slot.name, region->offset,
             region->offset + region->count);
    if (region->value && weft_schedule_get_value(schedule, region->value, &value) == WEFT_OK) {
        used = strlen(text);
        snprintf(text + used, size - used, " x %s", value.name);
    }
}

static void name_node(char *text, size_t size, const struct weft_schedule *schedule,
                      const struct weft_node_info *node)
{
    enum { MOST = 4 };
    int named = node->kind == WEFT_NODE_REDUCE || node->kind == WEFT_NODE_COMPUTE;

    text[0] = '\0';
    if (named)
        snprintf(text, size, "%s ", weft_op_name(node->op));
    for (size_t i = 0; i < node->region_count && i < MOST; i++) {
        size_t used = strlen(text);
        const char *separator = i == 0                                      ? ""
                                : i == 1 && node->kind != WEFT_NODE_COMPUTE ? " = "
                                                                            : ", ";
        snprintf(text + used, size - used, "%s", separator);
        name_region(text, size, schedule, &node->regions[i]);
    }
    if (node->region_count > MOST) {
        size_t used = strlen(text);
        snprintf(text + used, size - used, " and %zu more", node->region_count - MOST);
    }
}

static uint64_t node_bytes(const struct weft_schedule *schedule, const struct weft_node_info *node)
{
    struct weft_slot_info slot = {.struct_size = sizeof slot};

    if (!node->region_count ||
        weft_schedule_get_slot(schedule, node->regions[0].slot, &slot) != WEFT_OK)
        return 0;
    return (uint64_t)node->regions[0].count * weft_dtype_size(slot.dtype);
}

/* ---- the data ---- */

struct data {
    struct html_text *out;
    const struct html_page *page;
    size_t ranks; /* that are on the page */
    size_t nodes;
    struct words words;
};

/* A number column: `name`: [f(0), f(1), ...]. */
static void begin_column(struct data *data, const char *name)
{
    html_print(data->out, ",\n\"%s\":[", name);
}

/* Microseconds with a resolution of a picosecond, short. */
static void add_time(struct html_text *out, double us)
{
    char text[40];

    snprintf(text, sizeof text, "%.6f", us);
    size_t length = strlen(text);
    while (length && text[length - 1] == '0')
        length--;
    length -= length && text[length - 1] == '.';
    html_add(out, text, length);
}

enum { FLAG_ANY = 1, FLAG_RETIRED = 2, FLAG_UP_TO = 4 };

/* What a node's column says. */
enum column { KIND, PEER, TAG, BYTES, FLAGS, CHOICE, LABEL, WHAT, START, END, COLUMNS };

static void add_cell(struct data *data, enum column column, size_t rank, size_t node)
{
    const struct weft_schedule *schedule = data->page->schedules[rank];
    const struct html_node *did = &data->page->nodes[data->page->first[rank] + node];
    struct weft_node_info info = {.struct_size = sizeof info};
    char text[400];

    if (weft_schedule_get_node(schedule, (weft_node_t)node, &info) != WEFT_OK)
        memset(&info, 0, sizeof info);
    int message = info.kind == WEFT_NODE_SEND || info.kind == WEFT_NODE_RECV;
    int control = info.kind == WEFT_NODE_EVENT || info.kind == WEFT_NODE_SIGNAL;
    switch (column) {
    case KIND:
        html_print(data->out, "%d", (int)info.kind);
        break;
    case PEER:
        html_print(data->out, "%d", info.peer);
        break;
    case TAG:
        html_print(data->out, "%lld",
                   message                                        ? (long long)info.tag
                   : control && info.channel != WEFT_CHANNEL_NONE ? (long long)info.channel
                                                                  : -1LL);
        break;
    case BYTES:
        html_print(data->out, "%llu", (unsigned long long)node_bytes(schedule, &info));
        break;
    case FLAGS:
        html_print(data->out, "%d",
                   (info.any ? FLAG_ANY : 0) | (did->retired ? FLAG_RETIRED : 0) |
                       (info.up_to ? FLAG_UP_TO : 0));
        break;
    case CHOICE:
        html_print(data->out, "%d", info.kind == WEFT_NODE_EVENT ? info.choice : -1);
        break;
    case LABEL:
        html_print(data->out, "%zu", word(&data->words, info.label ? info.label : ""));
        break;
    case WHAT:
        name_node(text, sizeof text, schedule, &info);
        html_print(data->out, "%zu", word(&data->words, text));
        break;
    case START:
        add_time(data->out, did->start_us);
        break;
    case END:
    case COLUMNS:
        add_time(data->out, did->end_us);
        break;
    }
}

static void add_columns(struct data *data)
{
    static const char *const names[COLUMNS] = {"kind",   "peer",  "tag",  "bytes", "flags",
                                               "choice", "label", "what", "start", "end"};

    for (int column = 0; column < COLUMNS; column++) {
        int any = 0;
        begin_column(data, names[column]);
        for (size_t r = 0; r < data->ranks; r++) {
            for (size_t n = 0; n < weft_schedule_node_count(data->page->schedules[r]); n++) {
                if (any)
                    html_add(data->out, ",", 1);
                any = 1;
                add_cell(data, (enum column)column, r, n);
            }
        }
        html_add(data->out, "]", 1);
    }
}

static void add_pair(struct data *data, int *any, size_t from, size_t to)
{
    html_print(data->out, *any ? ",%zu,%zu" : "%zu,%zu", from, to);
    *any = 1;
}

static void add_edges(struct data *data)
{
    const struct html_page *page = data->page;
    int any = 0;

    begin_column(data, "edges");
    for (size_t r = 0; r < data->ranks; r++) {
        for (size_t e = 0; e < weft_schedule_edge_count(page->schedules[r]); e++) {
            weft_node_t before = 0;
            weft_node_t after = 0;
            if (weft_schedule_get_edge(page->schedules[r], e, &before, &after) == WEFT_OK) {
                add_pair(data, &any, page->first[r] + (size_t)before,
                         page->first[r] + (size_t)after);
            }
        }
    }
    html_add(data->out, "]", 1);
}

static void add_messages(struct data *data)
{
    const struct html_page *page = data->page;
    struct weft_node_info info = {.struct_size = sizeof info};
    int any = 0;

    begin_column(data, "messages");
    for (size_t r = 0; r < data->ranks; r++) {
        for (size_t n = 0; n < weft_schedule_node_count(page->schedules[r]); n++) {
            int64_t peer = page->nodes[page->first[r] + n].peer;
            if (peer >= 0 && (size_t)peer < data->nodes &&
                weft_schedule_get_node(page->schedules[r], (weft_node_t)n, &info) == WEFT_OK &&
                info.kind == WEFT_NODE_SEND)
                add_pair(data, &any, page->first[r] + n, (size_t)peer);
        }
    }
    html_add(data->out, "]", 1);
}

/* A signal reaches the events on its channel. */
static void add_signals(struct data *data)
{
    const struct html_page *page = data->page;
    struct weft_node_info signal = {.struct_size = sizeof signal};
    struct weft_node_info event = {.struct_size = sizeof event};
    int any = 0;

    begin_column(data, "signals");
    for (size_t r = 0; r < data->ranks; r++) {
        for (size_t n = 0; n < weft_schedule_node_count(page->schedules[r]); n++) {
            if (weft_schedule_get_node(page->schedules[r], (weft_node_t)n, &signal) != WEFT_OK ||
                signal.kind != WEFT_NODE_SIGNAL || (size_t)signal.peer >= data->ranks)
                continue;
            const struct weft_schedule *to = page->schedules[signal.peer];
            for (size_t e = 0; e < weft_schedule_node_count(to); e++)
                if (weft_schedule_get_node(to, (weft_node_t)e, &event) == WEFT_OK &&
                    event.kind == WEFT_NODE_EVENT && event.channel == signal.channel)
                    add_pair(data, &any, page->first[r] + n, page->first[signal.peer] + e);
        }
    }
    html_add(data->out, "]", 1);
}

static void add_path(struct data *data)
{
    const struct html_page *page = data->page;
    int any = 0;

    begin_column(data, "path");
    for (size_t i = 0; i < page->path_length; i++) {
        if (page->path[i].node >= data->nodes)
            continue;
        html_print(data->out, any ? ",[%zu," : "[%zu,", page->path[i].node);
        add_string(data->out, page->path[i].reason);
        html_add(data->out, ",", 1);
        add_time(data->out, page->path[i].start_us);
        html_add(data->out, ",", 1);
        add_time(data->out, page->path[i].end_us);
        html_add(data->out, "]", 1);
        any = 1;
    }
    html_add(data->out, "]", 1);
}

static void add_first(struct data *data)
{
    begin_column(data, "first");
    for (size_t r = 0; r <= data->ranks; r++)
        html_print(data->out, r ? ",%zu" : "%zu", data->page->first[r]);
    html_add(data->out, "]", 1);
}

static void add_text(struct data *data, const char *name, const char *text)
{
    html_print(data->out, ",\n\"%s\":", name);
    add_string(data->out, text);
}

static void add_data(struct html_text *out, const struct html_page *page)
{
    struct data data = {.out = out, .page = page};

    while (data.ranks < page->ranks &&
           (!data.ranks || page->first[data.ranks + 1] <= HTML_MOST_NODES))
        data.ranks++;
    data.nodes = page->first[data.ranks];
    word(&data.words, "");
    html_print(out, "{\"ranks\":%zu,\"all_ranks\":%zu,\"all_nodes\":%zu,\"complete\":%d",
               data.ranks, page->ranks, page->first[page->ranks], page->complete);
    html_add(out, ",\n\"time_us\":", strlen(",\n\"time_us\":"));
    add_time(out, page->time_us);
    add_text(&data, "name", weft_schedule_name(page->schedules[0]));
    add_text(&data, "source", page->source);
    add_text(&data, "parameters", page->parameters);
    add_text(&data, "faults", page->faults);
    add_text(&data, "version", weft_version());
    begin_column(&data, "kinds");
    for (int kind = 0; kind < WEFT_NODE_KIND_COUNT; kind++)
        html_print(out, kind ? ",\"%s\"" : "\"%s\"", weft_node_kind_name((weft_node_kind_t)kind));
    html_add(out, "]", 1);
    add_first(&data);
    add_columns(&data);
    add_edges(&data);
    add_messages(&data);
    add_signals(&data);
    add_path(&data);
    begin_column(&data, "words");
    for (size_t i = 0; i < data.words.count; i++) {
        if (i)
            html_add(out, ",", 1);
        add_string(out, data.words.all.text + data.words.begin[i]);
    }
    html_add(out, "]}\n", 3);
    out->failed |= data.words.failed;
    words_free(&data.words);
}

char *html_write(const struct html_page *page, size_t *length)
{
    static const char mark[] = "@DATA@";
    const char *at = strstr(html_template, mark);
    struct html_text out = {0};

    html_add(&out, html_template, (size_t)(at - html_template));
    add_data(&out, page);
    html_add(&out, at + strlen(mark), strlen(at + strlen(mark)));
    if (out.failed) {
        weft_memory_free(out.text);
        return NULL;
    }
    *length = out.length;
    return out.text;
}

void html_free(struct html_page *page)
{
    weft_memory_free(page->first);
    weft_memory_free(page->nodes);
    weft_memory_free(page->path);
    memset(page, 0, sizeof *page);
}
