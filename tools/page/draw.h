/* SPDX-License-Identifier: BSD-3-Clause */
/* What pictures share: texts, lines, and where the ticks of an axis are. */
#ifndef WEFT_TOOLS_PAGE_DRAW_H
#define WEFT_TOOLS_PAGE_DRAW_H

#include <cairo.h>

/** The font, its size and its grey, from 0 (black) to 1, of the texts that follow. */
void draw_font(cairo_t *cairo, double size, int bold, double grey);

/** How wide a text is in the font. */
double draw_text_width(cairo_t *cairo, const char *text);

/** Writes a text at (x, y), shifted left by @p share of its width; returns the width. */
double draw_text(cairo_t *cairo, double x, double y, double share, const char *text);

/** A straight line. */
void draw_line(cairo_t *cairo, double x1, double y1, double x2, double y2, double width,
               double grey);

/** A step of 1, 2 or 5 times a power of ten that gives about @p wanted ticks. */
double draw_tick_step(double range, double wanted);

/** Digits after the point that a tick of this step needs. */
int draw_tick_digits(double step);

/**
 * Writes an SVG of @p width by @p height points on white to @p path; @p paint draws it.
 * @return WEFT_OK; WEFT_ERR_IO.
 */
int draw_svg(const char *path, double width, double height, void (*paint)(cairo_t *, void *user),
             void *user);

#endif
