/* SPDX-License-Identifier: BSD-3-Clause */
/* The operations of schedules on compressed vectors: what they are called, and documents that name
 * them. */
#include <criterion/criterion.h>

#include "operations_job.h"
#include "runtime/base/alloc.h"

/* ---- names ---- */

Test(operation_names, names_say_what_operations_are)
{
    static const char *const names[] = {
        "quantise-4-512-max",
        "quantise-2-8-l2",
        "quantise-8-1073741824-max",
        "quantise-sign-512",
        "dequantise-sign-8",
        "dequantise-4-512-l2",
        "dequantise-add-8-64-l2",
        "dequantise-add-sign-64",
        "project-1",
        "project-768",
        "project-18446744073709551615",
        "reconstruct-9",
        "correlate-25088",
        "orthonormalise-1024",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct weft_op *op = NULL;

        OK(weft_compress_op_parse(names[i], &op));
        cr_assert_str_eq(weft_op_name(op), names[i]);
        weft_op_destroy(op);
    }
}

Test(operation_names, what_is_no_name_is_not_found)
{
    static const char *const names[] = {
        "",
        "quantise",
        "quantise-",
        "quantise-4",
        "quantise-4-512",
        "quantise-4-512-",
        "quantise-4-512-mean",
        "quantise-3-512-max",
        "quantise-04-512-max",
        "quantise-4-0-max",
        "quantise-4-12-max",
        "quantise-4-1073741832-max",
        "quantise-sign-512-max",
        "quantise-1-512-max",
        "quantise-4-512-maximum",
        "project",
        "project-0",
        "project-00",
        "project-7x",
        "project--7",
        "project-18446744073709551616",
        "project-99999999999999999999999999",
        "projects-7",
        "orthonormalise-1025",
        "dequantise-add",
        "dequantise-add-",
        "sum",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct weft_op *op = NULL;

        cr_assert_eq(weft_compress_op_parse(names[i], &op), WEFT_ERR_NOT_FOUND, "%s", names[i]);
        CHECK_TEXT(weft_error_text(), "no operation is called `");
        CHECK_TEXT(weft_error_text(), names[i]);
        cr_assert_null(op);
    }
}

Test(operation_names, configurations_are_checked)
{
    struct weft_compress_op_config config;
    struct weft_quantiser quantiser;
    struct weft_op *op = NULL;

    weft_quantiser_init(&quantiser);
    weft_compress_op_config_init(&config);
    OK(weft_compress_op(&config, &op));
    cr_assert_str_eq(weft_op_name(op), "quantise-4-512-max");
    weft_op_destroy(op);
    config.quantiser = &quantiser;
    quantiser.bits = 5;
    CHECK_STATUS(weft_compress_op(&config, &op), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "weft_compress_op: ");
    config.kind = WEFT_COMPRESS_PROJECT;
    CHECK_STATUS(weft_compress_op(&config, &op), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "weft_compress_op: `slice` is 0, expected at least 1");
    config.kind = WEFT_COMPRESS_ORTHONORMALISE;
    config.slice = 1025;
    CHECK_STATUS(weft_compress_op(&config, &op), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "`slice` is 1025 for orthonormalise, expected at most 1024");
    config.kind = WEFT_COMPRESS_OP_COUNT;
    CHECK_STATUS(weft_compress_op(&config, &op), WEFT_ERR_INVALID);
    CHECK_TEXT(weft_error_text(), "`kind` is 7");
}

/* ---- documents ---- */

static void reads_back(const char *text, size_t length, weft_format_t format)
{
    struct weft_schedule **read = NULL;
    size_t count = 0, again_length;
    char *again = NULL;

    OK(weft_schedule_read(text, length, NULL, 0, &read, &count));
    OK(weft_schedule_write((const struct weft_schedule *const *)read, count, format, &again,
                           &again_length));
    cr_assert_str_eq(text, again);
    weft_memory_free(again);
    for (size_t i = 0; i < count; i++)
        weft_schedule_destroy(read[i]);
    weft_memory_free(read);
}

Test(operation_names, schedules_that_name_them_are_read_by_anybody)
{
    static const char *const names[] = {"project-5",  "project-5",   "quantise-8-64-l2",
                                        "project-5",  "sparse-join", "dequantise-add-sign-8",
                                        "project-50", "topk-merge",  "orthonormalise-3"};
    struct weft_schedule *s = new_schedule(0, 1);
    weft_slot_t slot = weft_schedule_add_slot(s, "x", WEFT_F32, 8, WEFT_SLOT_INOUT);
    const struct weft_compute_argument argument = {.region = weft_region_at(slot, 0, 8),
                                                   .access = WEFT_UPDATE};
    struct weft_op *op = NULL;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        OK(strcmp(names[i], "sparse-join") == 0  ? weft_sparse_op(WEFT_SPARSE_JOIN, &op)
           : strcmp(names[i], "topk-merge") == 0 ? weft_sparse_merge_op(&op)
                                                 : weft_compress_op_parse(names[i], &op));
        CHECK(weft_schedule_add_compute(s, op, &argument, 1, 0) >= 0);
        weft_op_destroy(op);
    }
    for (int format = WEFT_FORMAT_TEXT; format <= WEFT_FORMAT_JSON; format++) {
        const struct weft_schedule *const one = s;
        char *text = NULL;
        size_t length;

        OK(weft_schedule_write(&one, 1, (weft_format_t)format, &text, &length));
        reads_back(text, length, (weft_format_t)format);
        for (long n = 1;; n++) { /* every allocation fails */
            struct weft_schedule **read = NULL;
            size_t count;

            atomic_store(&weft__alloc_countdown, n);
            int status = weft_schedule_read(text, length, NULL, 0, &read, &count);
            int lucky = atomic_load(&weft__alloc_countdown) > 0;
            atomic_store(&weft__alloc_countdown, -1);
            if (lucky) {
                OK(status);
                weft_schedule_destroy(read[0]);
                weft_memory_free(read);
                break;
            }
            cr_assert_eq(status, WEFT_ERR_MEMORY, "allocation %ld: %s: %s", n,
                         weft_status_name(status), weft_error_text());
        }
        weft_memory_free(text);
    }
    weft_schedule_destroy(s);
}

Test(operation_names, those_that_are_given_come_before_the_librarys)
{
    static const char text[] = "weft 1\nschedule \"s\" size 1\nrank 0 {\n"
                               "  inout x f32 8\n  compute project-4 update x[0:8]\n}\n";
    struct weft_schedule **read = NULL;
    struct weft_op *op = make_op(WEFT_COMPRESS_PROJECT, NULL, 4);
    const struct weft_op *const given = op;
    struct weft_node_info info = {.struct_size = sizeof info};
    size_t count;
    int status = weft_schedule_read(text, sizeof text - 1, &given, 1, &read, &count);

    OK(status);
    OK(weft_schedule_get_node(read[0], 0, &info));
    cr_assert_eq(info.op, op);
    weft_schedule_destroy(read[0]);
    weft_memory_free(read);
    weft_op_destroy(op);
}

/* ---- memory ---- */

Test(operation_names, every_allocation_failing_is_told)
{
    for (long n = 1;; n++) {
        struct weft_op *op = NULL;

        atomic_store(&weft__alloc_countdown, n);
        int status = weft_compress_op_parse("project-768", &op);
        int lucky = atomic_load(&weft__alloc_countdown) > 0;
        atomic_store(&weft__alloc_countdown, -1);
        if (lucky) {
            OK(status);
            weft_op_destroy(op);
            cr_assert_gt(n, 3);
            break;
        }
        cr_assert_eq(status, WEFT_ERR_MEMORY);
        cr_assert_null(op);
    }
}
