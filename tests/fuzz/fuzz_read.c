/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fuzzes weft_schedule_read() with libFuzzer. Any bytes are read or refused; what is read is
 * written in both formats, read again, and written to the same bytes; DOT and GOAL are written.
 * What can be read has parameters that can be listed; given as values, their defaults change
 * nothing, and other values are taken or refused.
 *
 *   clang -g -O1 -fsanitize=fuzzer,address,undefined ... fuzz_read.c && ./fuzz_read corpus/
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/format.h>
#include <weft/memory.h>
#include <weft/schedule.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct document {
    struct weft_schedule **schedules;
    size_t count;
};

static int do_nothing(struct weft_call *call)
{
    (void)call;
    return WEFT_OK;
}

/* An operation that documents may name, made once. */
static const struct weft_op *user_op(void)
{
    static struct weft_op *op;
    struct weft_op_config config;

    if (op)
        return op;
    weft_op_config_init(&config);
    config.name = "quantise";
    config.compute = do_nothing;
    if (weft_op_create(&op, &config))
        abort();
    return op;
}

static void require(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "fuzz_read: %s: %s\n", what, weft_error_text());
    abort();
}

static int read_given(struct document *document, const char *text, size_t length,
                      const struct weft_parameter *parameters, size_t count)
{
    const struct weft_op *ops[] = {user_op()};
    struct weft_read_options options;

    weft_read_options_init(&options);
    options.ops = ops;
    options.op_count = 1;
    options.size = 5;
    options.most_repeated = 1 << 14;
    options.parameters = parameters;
    options.parameter_count = count;
    return weft_schedule_read_with(text, length, &options, &document->schedules, &document->count);
}

static int read_document(struct document *document, const char *text, size_t length)
{
    return read_given(document, text, length, NULL, 0);
}

static char *write_document(const struct document *document, weft_format_t format, size_t *length)
{
    char *text;
    int status = weft_schedule_write((const struct weft_schedule *const *)document->schedules,
                                     document->count, format, &text, length);

    require(status == WEFT_OK, "what was read cannot be written");
    return text;
}

static void free_document(struct document *document)
{
    for (size_t i = 0; i < document->count; i++)
        weft_schedule_destroy(document->schedules[i]);
    weft_memory_free(document->schedules);
}

static void round_trip(const struct document *document, weft_format_t format)
{
    size_t length, again_length;
    char *text = write_document(document, format, &length), *again;
    struct document copy;

    require(read_document(&copy, text, length) == WEFT_OK, "what was written cannot be read");
    again = write_document(&copy, format, &again_length);
    require(length == again_length && !memcmp(text, again, length),
            "what was written changes when it is read and written");
    free_document(&copy);
    weft_memory_free(text);
    weft_memory_free(again);
}

static void give_parameters(const struct document *document, const char *text, size_t length)
{
    static const char *const others[] = {"3", "i16", "min", "2 * size - 1", "0", "(", ""};
    struct weft_parameter *parameters;
    struct document again;
    size_t count, bytes, again_bytes;

    require(weft_schedule_read_parameters(text, length, &parameters, &count) == WEFT_OK,
            "what was read has no list of parameters");
    require(read_given(&again, text, length, parameters, count) == WEFT_OK,
            "defaults cannot be given");
    char *written = write_document(document, WEFT_FORMAT_TEXT, &bytes);
    char *repeated = write_document(&again, WEFT_FORMAT_TEXT, &again_bytes);
    require(bytes == again_bytes && !memcmp(written, repeated, bytes), "given defaults matter");
    weft_memory_free(written);
    weft_memory_free(repeated);
    free_document(&again);
    for (size_t i = 0; i < count; i++)
        parameters[i].value = others[(i + length) % (sizeof others / sizeof others[0])];
    if (count) {
        int status = read_given(&again, text, length, parameters, count);

        require(status == WEFT_OK || status == WEFT_ERR_FORMAT, "an unexpected status");
        if (!status)
            free_document(&again);
    }
    weft_memory_free(parameters);
}

/* GOAL cannot say everything, but says what it cannot. */
static void write_goal(const struct document *document)
{
    char *text = NULL;
    int status = weft_schedule_write((const struct weft_schedule *const *)document->schedules,
                                     document->count, WEFT_FORMAT_GOAL, &text, NULL);

    require(status == WEFT_OK || status == WEFT_ERR_UNSUPPORTED, "GOAL is not written");
    weft_memory_free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* A copy of the exact size, so that the address sanitizer sees a read past its end. */
    char *text = malloc(size ? size : 1);
    struct document document;
    size_t length;
    int status;

    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    status = read_document(&document, text, size);
    if (!status)
        give_parameters(&document, text, size);
    free(text);
    require(status == WEFT_OK || status == WEFT_ERR_FORMAT, "an unexpected status");
    if (status) {
        require(!strncmp(weft_error_text(), "line ", 5), "an error without a line");
        return 0;
    }
    round_trip(&document, WEFT_FORMAT_TEXT);
    round_trip(&document, WEFT_FORMAT_JSON);
    weft_memory_free(write_document(&document, WEFT_FORMAT_DOT, &length));
    write_goal(&document);
    free_document(&document);
    return 0;
}
