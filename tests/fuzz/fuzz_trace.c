/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzzes weft_trace_read_text(), which reads what other processes wrote. Any bytes are read or
 * refused; what is read is aligned, written, read again, and written to the same bytes.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/memory.h>
#include <weft/trace.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_trace: %s: %s\n", what, weft_error_text());
    abort();
}

static char *write_trace(struct weft_trace *trace, size_t *length)
{
    char *text = NULL;

    require(weft_trace_write_text(trace, &text, length) == WEFT_OK,
            "what was read cannot be written");
    return text;
}

static void round_trip(struct weft_trace *trace)
{
    size_t length, again_length;
    char *text = write_trace(trace, &length), *again;
    struct weft_trace *copy;

    require(weft_trace_create(&copy) == WEFT_OK, "no trace");
    require(weft_trace_read_text(copy, text, length) == WEFT_OK, "what was written cannot be read");
    require(weft_trace_span_count(copy) == weft_trace_span_count(trace), "spans are lost");
    again = write_trace(copy, &again_length);
    require(length == again_length && !memcmp(text, again, length),
            "what was written changes when it is read and written");
    weft_trace_destroy(copy);
    weft_memory_free(text);
    weft_memory_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* A copy of the exact size, so that the address sanitizer sees a read past its end. */
    char *text = malloc(size ? size : 1);
    struct weft_trace *trace;
    int status;

    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    require(weft_trace_create(&trace) == WEFT_OK, "no trace");
    status = weft_trace_read_text(trace, text, size);
    free(text);
    require(status == WEFT_OK || status == WEFT_ERR_FORMAT, "an unexpected status");
    require(status == WEFT_OK || weft_error_text()[0], "an error without a text");
    if (status == WEFT_OK) {
        round_trip(trace);
        require(weft_trace_align(trace) == WEFT_OK, "what was read cannot be aligned");
    }
    weft_trace_destroy(trace);
    return 0;
}
