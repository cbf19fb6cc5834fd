/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of measured costs: written, read back, merged, and refused when they are something else. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <weft/weft.h>

static char path[] = "/tmp/weft-cost-XXXXXX";

static void make_path(void)
{
    int file = mkstemp(path);

    cr_assert(file >= 0);
    close(file);
    unlink(path);
}

static void remove_path(void)
{
    unlink(path);
}

TestSuite(cost_file, .init = make_path, .fini = remove_path);

static void put(const char *text)
{
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file);
    cr_assert(fputs(text, file) >= 0);
    cr_assert_eq(fclose(file), 0);
}

static struct weft_cost_model model_of(double alpha)
{
    struct weft_cost_model model;

    weft_cost_model_init(&model, "local");
    model.alpha_us = alpha;
    model.beta_us_per_byte = 1.0 / 3e4;
    model.segment_bytes = 12345;
    return model;
}

Test(cost_file, what_is_written_reads_back_and_others_are_kept)
{
    struct weft_cost_model local = model_of(0.1), mpi = model_of(0.7), read = model_of(9);
    struct weft_net net, got;

    weft_net_init(&net);
    weft_net_init(&got);
    net.L = 0.05;
    net.o = 0.025;
    net.G = local.beta_us_per_byte;
    net.S = 8192;
    cr_assert_eq(weft_cost_model_write(path, "local", &local, &net, 0.03), WEFT_OK, "%s",
                 weft_error_text());
    cr_assert_eq(weft_cost_model_write(path, "mpi", &mpi, &net, 0.5), WEFT_OK, "%s",
                 weft_error_text());
    cr_assert_eq(weft_cost_model_read(path, "local", &read, &got), WEFT_OK, "%s",
                 weft_error_text());
    cr_expect_eq(memcmp(&read, &local, sizeof read), 0);
    cr_expect_eq(memcmp(&net, &got, sizeof net), 0);
    local.alpha_us = 0.2;
    cr_assert_eq(weft_cost_model_write(path, "local", &local, &net, 0.03), WEFT_OK);
    cr_assert_eq(weft_cost_model_read(path, "local", &read, NULL), WEFT_OK);
    cr_expect_eq(read.alpha_us, 0.2);
    cr_assert_eq(weft_cost_model_read(path, "mpi", &read, NULL), WEFT_OK);
    cr_expect_eq(read.alpha_us, 0.7);
}

#define ENTRY(alpha, more)                                                                         \
    "{\"weft_cost\":1,\"transports\":{\"local\":{\"alpha_us\":" alpha                              \
    ",\"beta_us_per_byte\":1,\"gamma_us_per_byte\":1,\"copy_us_per_byte\":1,\"node_us\":1" more    \
    "}}}"
#define NET ",\"net\":{\"L\":1,\"o\":0,\"g\":0,\"G\":1}"

Test(cost_file, malformed_files_are_refused_and_named)
{
    static const struct {
        const char *text, *words;
    } wrong[] = {
        {"", "expected a cost file in JSON"},
        {"{", "expected a cost file in JSON"},
        {"[]", "weft_cost is nothing"},
        {"{}", "weft_cost is nothing"},
        {"{\"weft_cost\":2}", "another version"},
        {"{\"weft_cost\":1}", "transports is nothing, expected an object"},
        {"{\"weft_cost\":1,\"transports\":[]}", "transports is an array"},
        {"{\"weft_cost\":1,\"transports\":{},\"more\":1}", "document.more is not a key"},
        {"{\"weft_cost\":1,\"transports\":{\"local\":7}}", "local is a number, expected an object"},
        {"{\"weft_cost\":1,\"transports\":{\"local\":{}}}", "local.alpha_us is nothing"},
        {ENTRY("\"1\"", NET), "alpha_us is a string, expected a number"},
        {ENTRY("-1", NET), "alpha_us is -1, expected 0 to 1e9"},
        {ENTRY("1e10", NET), "alpha_us is 1e+10"},
        {ENTRY("1", ""), "local.net is nothing"},
        {ENTRY("1", NET ",\"gama\":1"), "gama is not a key"},
        {ENTRY("1", NET ",\"segment_bytes\":1.5"), "segment_bytes is a number, expected a number "
                                                   "of bytes"},
        {ENTRY("1", ",\"net\":{\"L\":1,\"o\":0,\"g\":0}"), "net.G is nothing"},
        {ENTRY("1", ",\"net\":{\"L\":1,\"o\":0,\"g\":0,\"G\":0,\"S\":-1}"), "S is a number"},
        {ENTRY("1", ",\"net\":{\"L\":1,\"o\":0,\"g\":0,\"G\":0,\"l\":1}"), "net.l is not a key"},
        {ENTRY("1,\"alpha_us\":1", NET), "duplicate"},
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct weft_cost_model model = model_of(3), before = model;

        put(wrong[i].text);
        cr_expect_eq(weft_cost_model_read(path, "local", &model, NULL), WEFT_ERR_FORMAT, "`%s`: %s",
                     wrong[i].text, weft_error_text());
        cr_expect_not_null(strstr(weft_error_text(), wrong[i].words), "`%s`: %s", wrong[i].text,
                           weft_error_text());
        cr_expect_eq(memcmp(&model, &before, sizeof model), 0);
    }
    put("not ours");
    struct weft_cost_model model = model_of(3);
    struct weft_net net;

    weft_net_init(&net);
    cr_expect_eq(weft_cost_model_write(path, "local", &model, &net, 0), WEFT_ERR_FORMAT);
}

Test(cost_file, what_is_not_there_is_told)
{
    struct weft_cost_model model = model_of(3);

    cr_expect_eq(weft_cost_model_read(path, "local", &model, NULL), WEFT_ERR_IO);
    put(ENTRY("1", NET));
    cr_expect_eq(weft_cost_model_read(path, "local", &model, NULL), WEFT_OK, "%s",
                 weft_error_text());
    cr_expect_eq(model.segment_bytes, 12345, "a file without it leaves it");
    cr_expect_eq(weft_cost_model_read(path, "mpi", &model, NULL), WEFT_ERR_NOT_FOUND);
    cr_expect_not_null(strstr(weft_error_text(), "`mpi`"));
    cr_expect_eq(weft_cost_model_read(NULL, "mpi", &model, NULL), WEFT_ERR_INVALID);
    cr_expect_eq(weft_cost_model_write("/nowhere/at/all", "mpi", &model,
                                       &(struct weft_net){.struct_size = sizeof(struct weft_net)},
                                       0),
                 WEFT_ERR_IO);
}

Test(cost_file, a_context_reads_what_weft_cost_names)
{
    struct weft_cost_model model = model_of(3);
    struct weft_local *local = NULL;
    struct weft_context *context = NULL;

    put(ENTRY("7", NET));
    cr_assert_eq(setenv("WEFT_COST", path, 1), 0);
    cr_assert_eq(weft_local_create(&local, 1, NULL), WEFT_OK, "%s", weft_error_text());
    cr_assert_eq(weft_context_create_local(&context, local, 0, NULL), WEFT_OK);
    cr_expect_eq(weft_context_get_cost(context, &model), WEFT_OK, "%s", weft_error_text());
    cr_expect_eq(model.alpha_us, 7);
    cr_expect_eq(weft_context_get_cost(NULL, &model), WEFT_ERR_INVALID);
    weft_context_destroy(context);
    weft_local_destroy(local);
    local = NULL;
    context = NULL;

    cr_assert_eq(unsetenv("WEFT_COST"), 0);
    cr_assert_eq(weft_local_create(&local, 1, NULL), WEFT_OK);
    cr_assert_eq(weft_context_create_local(&context, local, 0, NULL), WEFT_OK);
    cr_expect_eq(weft_context_get_cost(context, &model), WEFT_OK, "%s", weft_error_text());
    struct weft_cost_model standard;
    weft_cost_model_init(&standard, "local");
    cr_expect_eq(model.alpha_us, standard.alpha_us);
    weft_context_destroy(context);
    weft_local_destroy(local);
}
