/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The y axis is logarithmic in what is missing to 100 %, so that the first steps and the last
 * tenths of a percent are both seen; that of the lower panel goes by the square root, so that small
 * things are seen beside large ones and 0 has its place. Layout, in points:
 *
 *     +--------------------------------------------------+
 *     | title, subtitle                                  |  TOP
 *     |      +------------------------------+            |
 *     | LEFT | grid, axes, lines            |  legend    |  RIGHT; UPPER high
 *     |      +------------------------------+            |
 *     |      | a bar a line that has phases |  their key |  BAR each
 *     |                                                  |  GAP
 *     |      +------------------------------+            |
 *     |      | the lower panel, if any      |            |  LOWER high
 *     |      +------------------------------+            |
 *     |        x label                                   |  BOTTOM
 *     +--------------------------------------------------+
 *
 * Colours are mostly Okabe and Ito's, which people with any kind of colour vision tell apart; the
 * lines also differ in their markers, and in their dashes once the colours are used up.
 */
#include "tools/page/plot.h"

#include "tools/page/draw.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <weft/status.h>

static const double WIDTH = 936, LEFT = 76, RIGHT = 232, TOP = 78, UPPER = 380, GAP = 34,
                    LOWER = 170, BOTTOM = 62, BAR = 17;

static const double colours[][3] = {
    {0.300, 0.300, 0.300}, {0.902, 0.624, 0.000}, {0.000, 0.620, 0.451}, {0.800, 0.475, 0.655},
    {0.337, 0.706, 0.914}, {0.520, 0.320, 0.150}, {0.640, 0.640, 0.160}, {0.000, 0.447, 0.698},
};

static const double featured_colour[3] = {0.835, 0.369, 0.000};

enum { COLOURS = sizeof colours / sizeof colours[0] };

struct canvas {
    cairo_t *cairo;
    const struct plot *plot;
    double height;
    /** Of all bars. */
    double bars;
    /** Of the panels: LEFT, or what the names of bars need. */
    double left;
    double x_high;
    /** The panel that is being drawn: where it lies, and what is at its upper edge. */
    int is_lower;
    double top;
    double bottom;
    double y_high;
};

static double x_of(const struct canvas *canvas, double x)
{
    return canvas->left + x / canvas->x_high * (WIDTH - canvas->left - RIGHT);
}

/* How far what is missing to 100 % has shrunk, in decades below 100 %. */
static double height_of(double percent)
{
    return 2.0 - log10(fmax(100.0 - percent, 1e-3));
}

static double y_of(const struct canvas *canvas, double y)
{
    double share =
        canvas->is_lower ? sqrt(y / canvas->y_high) : height_of(y) / height_of(canvas->y_high);

    return canvas->bottom - share * (canvas->bottom - canvas->top);
}

static const struct plot_point *points_of(const struct canvas *canvas,
                                          const struct plot_series *series)
{
    return canvas->is_lower ? series->lower : series->points;
}

static void draw_titles(const struct canvas *canvas)
{
    const struct plot *plot = canvas->plot;

    draw_font(canvas->cairo, 19, 1, 0.10);
    draw_text(canvas->cairo, canvas->left, 34, 0.0, plot->title);
    draw_font(canvas->cairo, 13, 0, 0.35);
    draw_text(canvas->cairo, canvas->left, 56, 0.0, plot->subtitle);
    draw_font(canvas->cairo, 14, 0, 0.15);
    draw_text(canvas->cairo, (canvas->left + WIDTH - RIGHT) / 2, canvas->height - 16, 0.5,
              plot->x_label);
}

static void draw_y_label(const struct canvas *canvas, const char *label)
{
    draw_font(canvas->cairo, 14, 0, 0.15);
    cairo_save(canvas->cairo);
    cairo_translate(canvas->cairo, 24, (canvas->top + canvas->bottom) / 2);
    cairo_rotate(canvas->cairo, -acos(0.0));
    draw_text(canvas->cairo, 0, 0, 0.5, label);
    cairo_restore(canvas->cairo);
}

/* Only the lowest panel has numbers; bars are between it and them. */
static void draw_x_axis(const struct canvas *canvas)
{
    int lowest = canvas->is_lower || !canvas->plot->lower_label;
    double step = draw_tick_step(canvas->x_high, 7.0);
    char text[64];

    for (double i = 0.0; i * step <= canvas->x_high * (1.0 + 1e-9); i++) {
        double x = x_of(canvas, i * step);
        if (i > 0.0)
            draw_line(canvas->cairo, x, canvas->top, x, canvas->bottom, 1.0, 0.93);
        draw_line(canvas->cairo, x, canvas->bottom, x, canvas->bottom + 5, 1.0, 0.35);
        if (!lowest)
            continue;
        draw_font(canvas->cairo, 13, 0, 0.25);
        snprintf(text, sizeof text, "%.*f", draw_tick_digits(step), i * step);
        double below = canvas->is_lower ? 0.0 : canvas->bars;
        draw_text(canvas->cairo, x, canvas->bottom + 20 + below, 0.5, text);
    }
    draw_line(canvas->cairo, canvas->left, canvas->bottom, WIDTH - RIGHT, canvas->bottom, 1.2,
              0.35);
}

static void draw_y_tick(const struct canvas *canvas, double tick, const char *text)
{
    double y = y_of(canvas, tick);

    draw_line(canvas->cairo, canvas->left, y, WIDTH - RIGHT, y, 1.0, 0.90);
    draw_font(canvas->cairo, 13, 0, 0.25);
    draw_text(canvas->cairo, canvas->left - 9, y + 4.5, 1.0, text);
}

static void draw_percent_ticks(const struct canvas *canvas)
{
    static const double ticks[] = {0.0,  25.0, 50.0, 70.0, 80.0, 90.0, 95.0,
                                   97.0, 98.0, 99.0, 99.5, 99.8, 99.9};
    char text[64];

    for (size_t i = 0; i < sizeof ticks / sizeof ticks[0] && ticks[i] <= canvas->y_high; i++) {
        snprintf(text, sizeof text, "%g", ticks[i]);
        draw_y_tick(canvas, ticks[i], text);
    }
}

/* 0, and of 1, 2 and 5 times powers of ten, from the largest, those that have room. */
static void draw_root_ticks(const struct canvas *canvas)
{
    static const double leads[] = {5.0, 2.0, 1.0};
    double power = pow(10.0, floor(log10(canvas->y_high)));
    double last = -1e9;
    char text[64];

    draw_y_tick(canvas, 0.0, "0");
    for (int i = 0; i < 12; i++, power = i % 3 == 0 ? power / 10.0 : power) {
        double tick = leads[i % 3] * power;
        double y = y_of(canvas, fmin(tick, canvas->y_high));
        if (tick > canvas->y_high || y - last < 24.0 || canvas->bottom - y < 18.0)
            continue;
        snprintf(text, sizeof text, "%g", tick);
        draw_y_tick(canvas, tick, text);
        last = y;
    }
}

static void draw_y_axis(const struct canvas *canvas)
{
    if (canvas->is_lower)
        draw_root_ticks(canvas);
    else
        draw_percent_ticks(canvas);
    draw_line(canvas->cairo, canvas->left, canvas->top, canvas->left, canvas->bottom, 1.2, 0.35);
}

/* One of five shapes, so that lines differ without colour. */
static void draw_marker(const struct canvas *canvas, size_t number, double x, double y)
{
    cairo_t *cairo = canvas->cairo;
    const double r = 4.2;

    cairo_new_path(cairo);
    switch (number % 5) {
    case 0:
        cairo_arc(cairo, x, y, r, 0, 4.0 * acos(0.0));
        break;
    case 1:
        cairo_rectangle(cairo, x - 0.9 * r, y - 0.9 * r, 1.8 * r, 1.8 * r);
        break;
    case 2:
        cairo_move_to(cairo, x, y - 1.2 * r);
        cairo_line_to(cairo, x + 1.1 * r, y + 0.8 * r);
        cairo_line_to(cairo, x - 1.1 * r, y + 0.8 * r);
        break;
    case 3:
        cairo_move_to(cairo, x, y - 1.25 * r);
        cairo_line_to(cairo, x + 1.25 * r, y);
        cairo_line_to(cairo, x, y + 1.25 * r);
        cairo_line_to(cairo, x - 1.25 * r, y);
        break;
    default:
        cairo_move_to(cairo, x, y + 1.2 * r);
        cairo_line_to(cairo, x + 1.1 * r, y - 0.8 * r);
        cairo_line_to(cairo, x - 1.1 * r, y - 0.8 * r);
        break;
    }
    cairo_close_path(cairo);
    cairo_fill(cairo);
}

static const double *colour_of(const struct canvas *canvas, size_t number)
{
    return canvas->plot->series[number].featured ? featured_colour : colours[number % COLOURS];
}

static void use_line_style(const struct canvas *canvas, size_t number)
{
    static const double dashes[] = {7.0, 4.0};
    int featured = canvas->plot->series[number].featured;
    const double *colour = colour_of(canvas, number);

    cairo_set_source_rgb(canvas->cairo, colour[0], colour[1], colour[2]);
    cairo_set_line_width(canvas->cairo, featured ? 3.4 : 1.8);
    cairo_set_line_join(canvas->cairo, CAIRO_LINE_JOIN_ROUND);
    cairo_set_dash(canvas->cairo, dashes, number >= COLOURS ? 2 : 0, 0.0);
}

static void draw_series(const struct canvas *canvas, size_t number)
{
    const struct plot_series *series = &canvas->plot->series[number];
    const struct plot_point *points = points_of(canvas, series);
    double last_marker = -1e9;

    if (!points || series->count == 0)
        return;
    double end = x_of(canvas, points[series->count - 1].x);

    cairo_save(canvas->cairo);
    cairo_rectangle(canvas->cairo, canvas->left, canvas->top - 6, WIDTH - canvas->left - RIGHT + 6,
                    canvas->bottom - canvas->top + 12);
    cairo_clip(canvas->cairo);
    use_line_style(canvas, number);
    for (size_t i = 0; i < series->count; i++)
        cairo_line_to(canvas->cairo, x_of(canvas, points[i].x), y_of(canvas, points[i].y));
    cairo_stroke(canvas->cairo);
    for (size_t i = 0; i < series->count; i++) {
        double x = x_of(canvas, points[i].x);
        if ((x - last_marker >= 48.0 && end - x >= 24.0) || i + 1 == series->count) {
            draw_marker(canvas, number, x, y_of(canvas, points[i].y));
            last_marker = x;
        }
    }
    cairo_restore(canvas->cairo);
}

/* From one line of the legend to the next. */
static double legend_step(const struct canvas *canvas)
{
    return fmin(38.0, (canvas->height - TOP - 30) / (double)canvas->plot->series_count);
}

/* Below it. */
static double legend_end(const struct canvas *canvas)
{
    return TOP + legend_step(canvas) * (double)canvas->plot->series_count;
}

/* ---- phases ---- */

enum { NAMES = 8 };

/* The phases of different names that there are, at most NAMES. */
static size_t name_phases(const struct plot *plot, const struct plot_phase **named)
{
    size_t count = 0;

    for (size_t i = 0; i < plot->series_count; i++) {
        for (size_t j = 0; j < plot->series[i].phase_count; j++) {
            const struct plot_phase *phase = &plot->series[i].phases[j];
            size_t known = 0;
            while (known < count && strcmp(named[known]->name, phase->name) != 0)
                known++;
            if (known == count && count < NAMES)
                named[count++] = phase;
        }
    }
    return count;
}

/* A part of a bar; towards white as it is less dark. */
static void draw_part(const struct canvas *canvas, const double *colour, double shade, double left,
                      double right, double y)
{
    cairo_set_source_rgb(canvas->cairo, 1.0 - shade * (1.0 - colour[0]),
                         1.0 - shade * (1.0 - colour[1]), 1.0 - shade * (1.0 - colour[2]));
    cairo_rectangle(canvas->cairo, left, y, right - left, BAR - 5);
    cairo_fill(canvas->cairo);
}

/* Where panels begin: names of bars stand before them. */
static double left_of(const struct canvas *canvas)
{
    double left = LEFT;

    draw_font(canvas->cairo, 11, 0, 0.25);
    for (size_t i = 0; i < canvas->plot->series_count; i++)
        if (canvas->plot->series[i].phase_count > 0)
            left = fmax(left, draw_text_width(canvas->cairo, canvas->plot->series[i].name) + 17);
    return left;
}

static void draw_bar(const struct canvas *canvas, size_t number, double y)
{
    const struct plot_series *series = &canvas->plot->series[number];
    const double *colour = colour_of(canvas, number);

    draw_font(canvas->cairo, 11, 0, 0.25);
    draw_text(canvas->cairo, canvas->left - 9, y + BAR - 8, 1.0, series->name);
    for (size_t i = 0; i < series->phase_count; i++) {
        const struct plot_phase *phase = &series->phases[i];
        double right = x_of(canvas, fmin(phase->to, canvas->x_high));
        draw_part(canvas, colour, phase->shade, x_of(canvas, phase->from), right, y);
    }
}

/* Bars below the upper panel, and what their shades mean. */
static void draw_bars(const struct canvas *canvas)
{
    static const double grey[3] = {0.3, 0.3, 0.3};
    const struct plot_phase *named[NAMES];
    double y = TOP + UPPER + 8;
    size_t names = name_phases(canvas->plot, named);

    for (size_t i = 0; i < canvas->plot->series_count; i++) {
        if (canvas->plot->series[i].phase_count == 0)
            continue;
        draw_bar(canvas, i, y);
        y += BAR;
    }
    y = fmax(TOP + UPPER + 8, legend_end(canvas));
    double x = WIDTH - RIGHT + 14;
    for (size_t i = 0; i < names; i++) {
        draw_part(canvas, grey, named[i]->shade, x, x + 10, y);
        draw_font(canvas->cairo, 10, 0, 0.25);
        x += 13 + draw_text(canvas->cairo, x + 13, y + BAR - 8, 0.0, named[i]->name) + 7;
    }
}

static void draw_legend(const struct canvas *canvas)
{
    double x = WIDTH - RIGHT + 24;
    double y = TOP + 10;
    double step = legend_step(canvas);

    for (size_t i = 0; i < canvas->plot->series_count; i++, y += step) {
        const struct plot_series *series = &canvas->plot->series[i];

        cairo_save(canvas->cairo);
        use_line_style(canvas, i);
        cairo_move_to(canvas->cairo, x, y - 5);
        cairo_line_to(canvas->cairo, x + 30, y - 5);
        cairo_stroke(canvas->cairo);
        draw_marker(canvas, i, x + 15, y - 5);
        cairo_restore(canvas->cairo);
        draw_font(canvas->cairo, 14, 1, 0.15);
        draw_text(canvas->cairo, x + 40, y, 0.0, series->name);
        draw_font(canvas->cairo, 12, 0, 0.35);
        draw_text(canvas->cairo, x + 40, y + 15, 0.0, series->remark);
    }
}

/* Axes and lines; the canvas has been fitted to the panel. */
static void draw_panel(const struct canvas *canvas, const char *y_label)
{
    draw_y_label(canvas, y_label);
    draw_y_axis(canvas);
    draw_x_axis(canvas);
    for (size_t i = canvas->plot->series_count; i-- > 0;)
        if (!canvas->plot->series[i].featured)
            draw_series(canvas, i);
    for (size_t i = 0; i < canvas->plot->series_count; i++)
        if (canvas->plot->series[i].featured)
            draw_series(canvas, i);
}

/* The axes end at the last point and a little above the highest one. Points that are no numbers are
 * drawn nowhere. */
static void fit(struct canvas *canvas, int is_lower)
{
    canvas->is_lower = is_lower;
    canvas->top = is_lower ? TOP + UPPER + canvas->bars + GAP : TOP;
    canvas->bottom = canvas->top + (is_lower ? LOWER : UPPER);
    canvas->y_high = is_lower ? 0.0 : 50.0;
    for (size_t i = 0; i < canvas->plot->series_count; i++) {
        const struct plot_series *series = &canvas->plot->series[i];
        const struct plot_point *points = points_of(canvas, series);
        for (size_t j = 0; points && j < series->count; j++) {
            canvas->x_high = fmax(canvas->x_high, points[j].x);
            if (isfinite(points[j].y))
                canvas->y_high = fmax(canvas->y_high, points[j].y);
        }
    }
    if (is_lower)
        canvas->y_high = canvas->y_high > 0.0 ? 1.06 * canvas->y_high : 1.0;
    else
        canvas->y_high = 100.0 - fmax(0.7 * (100.0 - canvas->y_high), 0.05);
}

static void paint(cairo_t *cairo, void *user)
{
    struct canvas *canvas = user;

    canvas->cairo = cairo;
    canvas->left = left_of(canvas);
    draw_titles(canvas);
    draw_panel(canvas, canvas->plot->y_label);
    draw_bars(canvas);
    if (canvas->plot->lower_label) {
        fit(canvas, 1);
        draw_panel(canvas, canvas->plot->lower_label);
    }
    draw_legend(canvas);
}

int plot_write_svg(const struct plot *plot, const char *path)
{
    struct canvas canvas = {.plot = plot};

    for (size_t i = 0; i < plot->series_count; i++)
        canvas.bars += plot->series[i].phase_count > 0 ? BAR : 0.0;
    canvas.height = TOP + UPPER + canvas.bars + BOTTOM + (plot->lower_label ? GAP + LOWER : 0.0);
    fit(&canvas, 0);
    if (!(canvas.x_high > 0.0))
        return weft_error_set(WEFT_ERR_INVALID, "the plot is empty");
    return draw_svg(path, WIDTH, canvas.height, paint, &canvas);
}
