/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/page/draw.h"

#include <cairo-svg.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <weft/status.h>

void draw_font(cairo_t *cairo, double size, int bold, double grey)
{
    cairo_select_font_face(cairo, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(cairo, size);
    cairo_set_source_rgb(cairo, grey, grey, grey);
}

double draw_text_width(cairo_t *cairo, const char *text)
{
    cairo_text_extents_t extents;

    cairo_text_extents(cairo, text, &extents);
    return extents.x_advance;
}

double draw_text(cairo_t *cairo, double x, double y, double share, const char *text)
{
    double width = draw_text_width(cairo, text);

    cairo_move_to(cairo, x - share * width, y);
    cairo_show_text(cairo, text);
    return width;
}

void draw_line(cairo_t *cairo, double x1, double y1, double x2, double y2, double width,
               double grey)
{
    cairo_set_source_rgb(cairo, grey, grey, grey);
    cairo_set_line_width(cairo, width);
    cairo_move_to(cairo, x1, y1);
    cairo_line_to(cairo, x2, y2);
    cairo_stroke(cairo);
}

double draw_tick_step(double range, double wanted)
{
    double rough = range / wanted;
    double power = pow(10.0, floor(log10(rough)));
    double lead = rough / power;

    return power * (lead <= 1.0 ? 1.0 : lead <= 2.0 ? 2.0 : lead <= 5.0 ? 5.0 : 10.0);
}

int draw_tick_digits(double step)
{
    int digits = (int)ceil(-log10(step) - 1e-9);

    return digits > 0 ? digits : 0;
}

static cairo_status_t write_bytes(void *file, const unsigned char *bytes, unsigned int count)
{
    return fwrite(bytes, 1, count, file) == count ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_WRITE_ERROR;
}

static cairo_status_t draw(FILE *file, double width, double height,
                           void (*paint)(cairo_t *, void *user), void *user)
{
    cairo_surface_t *surface =
        cairo_svg_surface_create_for_stream(write_bytes, file, width, height);
    cairo_status_t status = cairo_surface_status(surface);

    if (status == CAIRO_STATUS_SUCCESS) {
        cairo_t *cairo = cairo_create(surface);
        cairo_set_source_rgb(cairo, 1.0, 1.0, 1.0);
        cairo_paint(cairo);
        paint(cairo, user);
        status = cairo_status(cairo);
        cairo_destroy(cairo);
        cairo_surface_finish(surface);
    }
    /* What was drawn is written when the surface is finished. */
    status = status == CAIRO_STATUS_SUCCESS ? cairo_surface_status(surface) : status;
    cairo_surface_destroy(surface);
    return status;
}

int draw_svg(const char *path, double width, double height, void (*paint)(cairo_t *, void *user),
             void *user)
{
    struct stat about;
    FILE *file = fopen(path, "w");
    if (!file)
        return weft_error_set(WEFT_ERR_IO, "cannot draw '%s': %s", path, strerror(errno));
    cairo_status_t status = draw(file, width, height, paint, user);
    const char *why = status == CAIRO_STATUS_SUCCESS ? NULL : cairo_status_to_string(status);
    int whole = fclose(file) == 0;
    if (!why && !whole)
        why = strerror(errno);
    if (!why)
        return WEFT_OK;
    if (stat(path, &about) == 0 && S_ISREG(about.st_mode))
        remove(path); /* half a picture */
    return weft_error_set(WEFT_ERR_IO, "cannot draw '%s': %s", path, why);
}
