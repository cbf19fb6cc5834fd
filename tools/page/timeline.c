/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Layout, in points; a band a method, all with the time axis at the foot:
 *
 *     +-----------------------------------------------------------+
 *     | title, subtitle, what colours mean                        |  TOP
 *     |           name  remark                                    |  HEAD    \
 *     |  compute  |  0 | 1 |  2  | 3 |                            |  LANE     |
 *     |            \    /\       \   \                            |  BETWEEN  | a band
 *     |  send          |= 0,1 =| |==== 2 ====|== 3 ==|  end       |  LANE     |
 *     | LEFT                                                RIGHT |  SPACE   /
 *     |           axis                                            |  BOTTOM
 *     +-----------------------------------------------------------+
 *
 * A group has one colour in both lanes and a ribbon between them. The colours are those of Okabe
 * and Ito, which people with any kind of colour vision tell apart; neighbours differ, and the
 * ribbon says the rest.
 */
#include "tools/page/timeline.h"

#include "tools/page/draw.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

static const double WIDTH = 1100, LEFT = 116, RIGHT = 112, TOP = 104, HEAD = 24, LANE = 26,
                    BETWEEN = 22, SPACE = 24, BOTTOM = 50;

static const double colours[][3] = {
    {0.000, 0.447, 0.698}, {0.902, 0.624, 0.000}, {0.000, 0.620, 0.451},
    {0.800, 0.475, 0.655}, {0.337, 0.706, 0.914},
};

enum { COLOURS = sizeof colours / sizeof colours[0] };

/* Ends, and what has to be looked at. */
static const double accent[3] = {0.835, 0.369, 0.000};

struct canvas {
    cairo_t *cairo;
    const struct timeline *timeline;
    /** When the computation of each layer begins: when that of the one before is ready. */
    double *begin_us;
    /** Group of each layer in the band that is being drawn. */
    size_t *group_of;
    double high_us;
    double ready_us;
    /** Microseconds of the unit of all times, and its name. */
    double unit_us;
    const char *unit;
    double height;
    /** Upper edges of the lanes of the band. */
    double compute;
    double send;
};

static double x_of(const struct canvas *canvas, double us)
{
    return LEFT + us / canvas->high_us * (WIDTH - LEFT - RIGHT);
}

/* ---- colours ---- */

/* @white from -1 (black) to 1 (white). */
static void use_colour(const struct canvas *canvas, const double *colour, double white,
                       double alpha)
{
    double to = white > 0 ? 1 : 0, share = fabs(white);

    cairo_set_source_rgba(canvas->cairo, colour[0] + (to - colour[0]) * share,
                          colour[1] + (to - colour[1]) * share,
                          colour[2] + (to - colour[2]) * share, alpha);
}

static void fill_rectangle(const struct canvas *canvas, double x1, double x2, double y)
{
    cairo_rectangle(canvas->cairo, x1, y, fmax(x2 - x1, 0.35), LANE);
    cairo_fill(canvas->cairo);
}

/* Strokes over the rectangles of the current path: what nothing hides. */
static void hatch(const struct canvas *canvas, double x1, double x2, double y)
{
    cairo_t *cairo = canvas->cairo;

    cairo_save(cairo);
    cairo_clip(cairo);
    cairo_set_source_rgba(cairo, 1, 1, 1, 0.62);
    cairo_set_line_width(cairo, 1.5);
    int first = (int)floor((x1 - LANE) / 6.0), last = (int)ceil(x2 / 6.0);
    for (int i = first; i < last; i++) {
        cairo_move_to(cairo, 6.0 * i, y + LANE);
        cairo_line_to(cairo, 6.0 * i + LANE, y);
    }
    cairo_stroke(cairo);
    cairo_restore(cairo);
}

/* A text in the middle of a block, if it has room there; on a plate where strokes are. */
static void label(const struct canvas *canvas, double x1, double x2, double y, const char *text,
                  double grey, int plate)
{
    draw_font(canvas->cairo, 11, 0, grey);
    double width = draw_text_width(canvas->cairo, text);
    double middle = (x1 + x2) / 2;

    if (!text[0] || width + 6 > x2 - x1)
        return;
    if (plate) {
        cairo_set_source_rgba(canvas->cairo, 1, 1, 1, 0.85);
        cairo_rectangle(canvas->cairo, middle - width / 2 - 2, y + LANE / 2 - 7, width + 4, 14);
        cairo_fill(canvas->cairo);
        draw_font(canvas->cairo, 11, 0, 0.1);
    }
    draw_text(canvas->cairo, middle, y + LANE / 2 + 4, 0.5, text);
}

/* ---- a band ---- */

/* From the layers to what sends them. */
static void draw_ribbon(const struct canvas *canvas, const struct timeline_group *group,
                        const double *colour)
{
    double low = INFINITY, high = 0;
    double y1 = canvas->compute + LANE, y2 = canvas->send, middle = (y1 + y2) / 2;
    cairo_t *cairo = canvas->cairo;

    for (size_t i = 0; i < group->layer_count; i++) {
        low = fmin(low, canvas->begin_us[group->layers[i]]);
        high = fmax(high, canvas->timeline->ready_us[group->layers[i]]);
    }
    double a = x_of(canvas, low), b = x_of(canvas, high);
    double c = x_of(canvas, group->end_us), d = x_of(canvas, group->start_us);
    cairo_move_to(cairo, a, y1);
    cairo_line_to(cairo, b, y1);
    cairo_curve_to(cairo, b, middle, c, middle, c, y2);
    cairo_line_to(cairo, d, y2);
    cairo_curve_to(cairo, d, middle, a, middle, a, y1);
    use_colour(canvas, colour, 0.3, 0.28);
    cairo_fill(cairo);
}

static void draw_group(const struct canvas *canvas, const struct timeline_group *group,
                       const double *colour)
{
    double start = x_of(canvas, group->start_us), end = x_of(canvas, group->end_us);
    double latency = fmin(canvas->timeline->latency_us, group->end_us - group->start_us);

    use_colour(canvas, colour, 0, 1);
    fill_rectangle(canvas, start, end, canvas->send);
    if (latency > 0) {
        use_colour(canvas, colour, -0.45, 1);
        fill_rectangle(canvas, start, x_of(canvas, group->start_us + latency), canvas->send);
    }
}

/* All at once, so that strokes go on from block to block. */
static void draw_exposed(const struct canvas *canvas, const struct timeline_method *method)
{
    double ready = x_of(canvas, canvas->ready_us), end = x_of(canvas, method->end_us);

    if (end <= ready)
        return;
    for (size_t i = 0; i < method->group_count; i++) {
        double x1 = fmax(x_of(canvas, method->groups[i].start_us), ready);
        double x2 = x_of(canvas, method->groups[i].end_us);
        if (x2 > x1)
            cairo_rectangle(canvas->cairo, x1, canvas->send, x2 - x1, LANE);
    }
    hatch(canvas, ready, end, canvas->send);
}

/* White lines between what stands in a lane, where there is room; they end the path. */
static void draw_gaps(const struct canvas *canvas)
{
    cairo_set_source_rgb(canvas->cairo, 1, 1, 1);
    cairo_set_line_width(canvas->cairo, 0.7);
    cairo_stroke(canvas->cairo);
}

static void add_gap(const struct canvas *canvas, double x, double y)
{
    cairo_move_to(canvas->cairo, x, y);
    cairo_line_to(canvas->cairo, x, y + LANE);
}

static void draw_sent(const struct canvas *canvas, const struct timeline_method *method)
{
    for (size_t i = 0; i < method->group_count; i++)
        draw_group(canvas, &method->groups[i], colours[i % COLOURS]);
    for (size_t i = 0; i < method->group_count; i++)
        if (method->groups[i].end_us - method->groups[i].start_us > canvas->high_us / 300)
            add_gap(canvas, x_of(canvas, method->groups[i].end_us), canvas->send);
    draw_gaps(canvas);
    draw_exposed(canvas, method);
    for (size_t i = 0; i < method->group_count; i++) {
        const struct timeline_group *group = &method->groups[i];
        label(canvas, x_of(canvas, group->start_us), x_of(canvas, group->end_us), canvas->send,
              group->name, 1, group->end_us > canvas->ready_us);
    }
}

static void draw_layers(const struct canvas *canvas)
{
    const struct timeline *timeline = canvas->timeline;
    size_t count = timeline->layer_count;

    for (size_t i = 0, next; i < count; i = next) {
        const double *colour = colours[canvas->group_of[i] % COLOURS];
        /* Neighbours of one group, and of one time, are one block. */
        for (next = i + 1; next < count && canvas->group_of[next] == canvas->group_of[i] &&
                           canvas->begin_us[next] == timeline->ready_us[next - 1];
             next++)
            ;
        double x1 = x_of(canvas, canvas->begin_us[i]);
        double x2 = x_of(canvas, timeline->ready_us[next - 1]);
        use_colour(canvas, colour, 0.5, 1);
        if (x2 > x1)
            fill_rectangle(canvas, x1, x2, canvas->compute);
    }
    for (size_t i = 0; i < count; i++)
        if (x_of(canvas, timeline->ready_us[i]) - x_of(canvas, canvas->begin_us[i]) > 1.5)
            add_gap(canvas, x_of(canvas, timeline->ready_us[i]), canvas->compute);
    draw_gaps(canvas);
    for (size_t i = 0; i < count; i++)
        label(canvas, x_of(canvas, canvas->begin_us[i]), x_of(canvas, timeline->ready_us[i]),
              canvas->compute, timeline->layer_names[i], 0.1, 0);
}

static void draw_head(const struct canvas *canvas, const struct timeline_method *method, double y)
{
    draw_font(canvas->cairo, 14, 1, 0.12);
    if (method->is_best)
        use_colour(canvas, accent, 0, 1);
    double width = draw_text(canvas->cairo, LEFT, y + 16, 0, method->name);
    draw_font(canvas->cairo, 12, 0, 0.35);
    draw_text(canvas->cairo, LEFT + width + 10, y + 16, 0, method->remark);
}

/* Where the last allreduce has ended. */
static void draw_end(const struct canvas *canvas, const struct timeline_method *method)
{
    double x = x_of(canvas, method->end_us), low = canvas->send + LANE;
    cairo_t *cairo = canvas->cairo;
    char text[64];

    use_colour(canvas, accent, 0, 1);
    cairo_set_line_width(cairo, 2);
    cairo_move_to(cairo, x, canvas->send - 5);
    cairo_line_to(cairo, x, low + 5);
    cairo_stroke(cairo);
    snprintf(text, sizeof text, "%.4g %s", method->end_us / canvas->unit_us, canvas->unit);
    draw_font(cairo, 13, 1, 0.12);
    if (method->is_best)
        use_colour(canvas, accent, 0, 1);
    draw_text(cairo, x + 7, canvas->send + LANE / 2 + 4.5, 0, text);
}

static void draw_band(struct canvas *canvas, const struct timeline_method *method, double top)
{
    canvas->compute = top + HEAD;
    canvas->send = canvas->compute + LANE + BETWEEN;
    for (size_t i = 0; i < method->group_count; i++)
        for (size_t j = 0; j < method->groups[i].layer_count; j++)
            canvas->group_of[method->groups[i].layers[j]] = i;
    cairo_set_source_rgb(canvas->cairo, 0.955, 0.955, 0.955);
    fill_rectangle(canvas, LEFT, WIDTH - RIGHT, canvas->compute);
    fill_rectangle(canvas, LEFT, WIDTH - RIGHT, canvas->send);
    draw_head(canvas, method, top);
    draw_font(canvas->cairo, 12, 0, 0.35);
    draw_text(canvas->cairo, LEFT - 9, canvas->compute + LANE / 2 + 4, 1, "backward pass");
    draw_text(canvas->cairo, LEFT - 9, canvas->send + LANE / 2 + 4, 1, "allreduces");
    for (size_t i = 0; i < method->group_count; i++)
        draw_ribbon(canvas, &method->groups[i], colours[i % COLOURS]);
    draw_layers(canvas);
    draw_sent(canvas, method);
}

/* ---- the whole ---- */

static void draw_grid(const struct canvas *canvas)
{
    double step = draw_tick_step(canvas->high_us / canvas->unit_us, 10.0);
    double foot = canvas->height - BOTTOM;
    char text[64];

    for (double i = 0; i * step * canvas->unit_us <= canvas->high_us * (1 + 1e-9); i++) {
        double x = x_of(canvas, i * step * canvas->unit_us);
        draw_line(canvas->cairo, x, TOP, x, foot, 1, 0.92);
        draw_line(canvas->cairo, x, foot, x, foot + 5, 1, 0.35);
        draw_font(canvas->cairo, 12, 0, 0.25);
        snprintf(text, sizeof text, "%.*f", draw_tick_digits(step), i * step);
        draw_text(canvas->cairo, x, foot + 19, 0.5, text);
    }
    draw_line(canvas->cairo, LEFT, foot, WIDTH - RIGHT, foot, 1.2, 0.35);
    draw_font(canvas->cairo, 13, 0, 0.25);
    snprintf(text, sizeof text, "time (%s)", canvas->unit);
    draw_text(canvas->cairo, (LEFT + WIDTH - RIGHT) / 2, foot + 39, 0.5, text);
}

/* When the last gradient is there, across both lanes of a band. */
static void draw_ready(const struct canvas *canvas, double top)
{
    cairo_t *cairo = canvas->cairo;
    double x = x_of(canvas, canvas->ready_us);

    cairo_save(cairo);
    cairo_set_dash(cairo, (const double[]){4, 3}, 2, 0);
    draw_line(cairo, x, top + HEAD - 1, x, top + HEAD + 2 * LANE + BETWEEN + 6, 1.4, 0.2);
    cairo_restore(cairo);
}

static double draw_key(const struct canvas *canvas, double x, double white, int hatched,
                       const char *text)
{
    const double y = 74, wide = 26;

    use_colour(canvas, colours[0], white, 1);
    cairo_rectangle(canvas->cairo, x, y, wide, 13);
    cairo_fill(canvas->cairo);
    if (hatched) {
        cairo_rectangle(canvas->cairo, x, y, wide, 13);
        hatch(canvas, x, x + wide, y - 6);
    }
    draw_font(canvas->cairo, 12, 0, 0.25);
    return x + wide + 7 + draw_text(canvas->cairo, x + wide + 7, y + 11, 0, text) + 22;
}

static void draw_titles(const struct canvas *canvas)
{
    double x = LEFT;
    char text[96];

    draw_font(canvas->cairo, 19, 1, 0.10);
    draw_text(canvas->cairo, LEFT, 34, 0, canvas->timeline->title);
    draw_font(canvas->cairo, 13, 0, 0.35);
    draw_text(canvas->cairo, LEFT, 56, 0, canvas->timeline->subtitle);
    x = draw_key(canvas, x, 0.5, 0, "a layer's gradients computed");
    if (canvas->timeline->latency_us > 0)
        x = draw_key(canvas, x, -0.45, 0, "latency of an allreduce");
    x = draw_key(canvas, x, 0, 0, "its bytes, hidden");
    x = draw_key(canvas, x, 0, 1, "exposed");
    snprintf(text, sizeof text, "last gradient, %.4g %s", canvas->ready_us / canvas->unit_us,
             canvas->unit);
    cairo_save(canvas->cairo);
    cairo_set_dash(canvas->cairo, (const double[]){4, 3}, 2, 0);
    draw_line(canvas->cairo, x + 6, 71, x + 6, 90, 1.4, 0.2);
    cairo_restore(canvas->cairo);
    draw_font(canvas->cairo, 12, 0, 0.25);
    draw_text(canvas->cairo, x + 16, 85, 0, text);
}

static void paint(cairo_t *cairo, void *user)
{
    struct canvas *canvas = user;
    const struct timeline *timeline = canvas->timeline;
    double band = HEAD + 2 * LANE + BETWEEN + SPACE;

    canvas->cairo = cairo;
    draw_titles(canvas);
    draw_grid(canvas);
    for (size_t i = 0; i < timeline->method_count; i++)
        draw_band(canvas, &timeline->methods[i], TOP + (double)i * band);
    for (size_t i = 0; i < timeline->method_count; i++) {
        draw_ready(canvas, TOP + (double)i * band);
        canvas->send = TOP + (double)i * band + HEAD + LANE + BETWEEN;
        draw_end(canvas, &timeline->methods[i]);
    }
}

/* ---- times ---- */

struct moment {
    double ready_us;
    size_t layer;
};

static int earlier(const void *a, const void *b)
{
    const struct moment *left = a, *right = b;

    if (left->ready_us != right->ready_us)
        return left->ready_us < right->ready_us ? -1 : 1;
    return (left->layer > right->layer) - (left->layer < right->layer);
}

/* Layers are computed in the order in which they are ready, which need not be theirs. */
static int find_begins(struct canvas *canvas)
{
    const struct timeline *timeline = canvas->timeline;
    struct moment *order = weft_memory_alloc(timeline->layer_count, sizeof *order);

    if (!order)
        return -1;
    for (size_t i = 0; i < timeline->layer_count; i++)
        order[i] = (struct moment){timeline->ready_us[i], i};
    qsort(order, timeline->layer_count, sizeof *order, earlier);
    for (size_t i = 0; i < timeline->layer_count; i++)
        canvas->begin_us[order[i].layer] = i ? order[i - 1].ready_us : 0;
    canvas->ready_us = order[timeline->layer_count - 1].ready_us;
    weft_memory_free(order);
    return 0;
}

static void fit(struct canvas *canvas)
{
    const struct timeline *timeline = canvas->timeline;

    canvas->high_us = canvas->ready_us;
    for (size_t i = 0; i < timeline->method_count; i++)
        canvas->high_us = fmax(canvas->high_us, timeline->methods[i].end_us);
    if (!(canvas->high_us > 0))
        canvas->high_us = 1;
    canvas->unit_us = canvas->high_us < 2e3 ? 1 : canvas->high_us < 2e6 ? 1e3 : 1e6;
    canvas->unit = canvas->unit_us < 1e3 ? "us" : canvas->unit_us < 1e6 ? "ms" : "s";
    canvas->height =
        TOP + BOTTOM + (double)timeline->method_count * (HEAD + 2 * LANE + BETWEEN + SPACE);
}

int timeline_write_svg(const struct timeline *timeline, const char *path)
{
    struct canvas canvas = {.timeline = timeline};
    size_t count = timeline->layer_count;
    int status = WEFT_ERR_MEMORY;

    canvas.begin_us = weft_memory_alloc(count, sizeof *canvas.begin_us);
    canvas.group_of = weft_memory_alloc(count, sizeof *canvas.group_of);
    if (canvas.begin_us && canvas.group_of && !find_begins(&canvas)) {
        fit(&canvas);
        status = draw_svg(path, WIDTH, canvas.height, paint, &canvas);
    } else {
        weft_error_set(WEFT_ERR_MEMORY, "no memory for a picture of %zu layers", count);
    }
    weft_memory_free(canvas.group_of);
    weft_memory_free(canvas.begin_us);
    return status;
}
