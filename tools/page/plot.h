/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Line plots of percentages over time, and of another quantity below them, as SVG, drawn by cairo.
 */
#ifndef WEFT_TOOLS_PAGE_PLOT_H
#define WEFT_TOOLS_PAGE_PLOT_H

#include <stddef.h>

struct plot_point {
    /** From 0. */
    double x;
    /** 0 to 100. */
    double y;
};

/** A part of a line's time, which is marked below it. */
struct plot_phase {
    /** x, in ascending order. */
    double from, to;
    const char *name;
    /** How dark it is, above 0 to 1; the same for the same name. */
    double shade;
};

/** A line: its points in ascending x, its name, and a remark that stands beside the name. */
struct plot_series {
    const char *name;
    const char *remark;
    const struct plot_point *points;
    /** As many, at any y from 0: for the lower panel. NULL: it has no line there. */
    const struct plot_point *lower;
    size_t count;
    /** NULL: it has none. */
    const struct plot_phase *phases;
    size_t phase_count;
    /** 1: the one to look at: thicker, in a colour of its own, on top of the others. */
    int featured;
};

struct plot {
    const char *title;
    const char *subtitle;
    /** Axes, with their units. */
    const char *x_label;
    const char *y_label;
    /** NULL: no lower panel. */
    const char *lower_label;
    const struct plot_series *series;
    size_t series_count;
};

/** Draws @p plot to @p path. @return WEFT_OK; WEFT_ERR_INVALID (nothing to draw); WEFT_ERR_IO. */
int plot_write_svg(const struct plot *plot, const char *path);

#endif
