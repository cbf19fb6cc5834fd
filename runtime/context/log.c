/* SPDX-License-Identifier: BSD-3-Clause */
/* Log lines. */
#include "runtime/context/context.h"
#include <stdarg.h>
#include <stdio.h>

void weft__log(const struct weft_context *context, weft_log_level_t level, const char *format, ...)
{
    if (level > context->config.log_level)
        return;
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    int rank = context->engine.transport->rank;
    if (context->config.log)
        context->config.log(context->config.log_user, level, rank, line);
    else
        fprintf(stderr, "weft[%d]: %s\n", rank, line);
}
