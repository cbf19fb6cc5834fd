/* SPDX-License-Identifier: BSD-3-Clause */
/* Methods as words: what is read is written the same, and nothing else is read. */
#include <locale.h>

#include "tests/unit/merge/layers.h"

static const struct {
    const char *text;
    const char *written;
    weft_merge_method_t method;
    size_t bucket, first;
    double cycle;
} words[] = {
    {"exact", NULL, WEFT_MERGE_EXACT, 0, 0, 0},
    {"greedy", NULL, WEFT_MERGE_GREEDY, 0, 0, 0},
    {"wfbp", NULL, WEFT_MERGE_WFBP, 0, 0, 0},
    {"single", NULL, WEFT_MERGE_SINGLE, 0, 0, 0},
    {"bucket", "bucket:26214400", WEFT_MERGE_BUCKETS, 0, 0, 0},
    {"bucket:1", "bucket:1", WEFT_MERGE_BUCKETS, 1, 0, 0},
    {"bucket:25M", "bucket:26214400", WEFT_MERGE_BUCKETS, 25 << 20, 0, 0},
    {"bucket:25M:1M", "bucket:26214400:1048576", WEFT_MERGE_BUCKETS, 25 << 20, 1 << 20, 0},
    {"bucket:3k:7K", "bucket:3072:7168", WEFT_MERGE_BUCKETS, 3072, 7168, 0},
    {"bucket:5:5", "bucket:5", WEFT_MERGE_BUCKETS, 5, 5, 0},
    {"bucket:18446744073709551615", NULL, WEFT_MERGE_BUCKETS, SIZE_MAX, 0, 0},
    {"cycle", "cycle:67108864:5", WEFT_MERGE_CYCLES, 0, 0, 0},
    {"cycle:1G", "cycle:1073741824:5", WEFT_MERGE_CYCLES, 1 << 30, 0, 0},
    {"cycle:128M:1", "cycle:134217728:1", WEFT_MERGE_CYCLES, 128 << 20, 0, 1000},
    {"cycle:64M:50", "cycle:67108864:50", WEFT_MERGE_CYCLES, 64 << 20, 0, 50000},
    {"cycle:1:0.1", "cycle:1:0.1", WEFT_MERGE_CYCLES, 1, 0, 100},
    {"cycle:1:3.3e-7", "cycle:1:3.3e-07", WEFT_MERGE_CYCLES, 1, 0, 1000 * 3.3e-7},
};

Test(words, are_read_and_written)
{
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        struct weft_merge_config config = {.struct_size = sizeof config, .group_count = 77};
        char text[WEFT_MERGE_METHOD_TEXT];
        cr_assert_eq(weft_merge_method_parse(words[i].text, &config), WEFT_OK, "%s",
                     weft_error_text());
        cr_expect_eq(config.method, words[i].method, "%s", words[i].text);
        cr_expect_eq(config.bucket_bytes, words[i].bucket, "%s", words[i].text);
        cr_expect_eq(config.first_bucket_bytes, words[i].first, "%s", words[i].text);
        cr_expect_eq(config.cycle_us, words[i].cycle, "%s", words[i].text);
        cr_expect(!config.group_count && !config.group_layers);
        cr_assert_eq(weft_merge_method_format(&config, text, sizeof text), WEFT_OK);
        cr_expect_str_eq(text, words[i].written ? words[i].written : words[i].text);
    }
}

Test(words, that_are_none_are_refused)
{
    static const char *const texts[] = {
        "",
        "exac",
        "exact:",
        "exact:1",
        "Exact",
        "exact ",
        " exact",
        "given",
        "given:1",
        ":",
        "bucket:",
        "bucket:0",
        "bucket:-1",
        "bucket:+1",
        "bucket: 1",
        "bucket:1T",
        "bucket:K",
        "bucket:1KK",
        "bucket:1:",
        "bucket:1:0",
        "bucket::1",
        "bucket:1:2:",
        "bucket:1:2:3",
        "bucket:1e6",
        "bucket:0x10",
        "bucket:18446744073709551616",
        "bucket:17179869184G",
        "cycle:",
        "cycle::5",
        "cycle:1:0",
        "cycle:1:-1",
        "cycle:1:nan",
        "cycle:1:inf",
        "cycle:1:1e999",
        "cycle:1:1,5",
        "cycle:1:0x1",
        "cycle:1:5:",
        "cycle:1:5:6",
        "cycle:1:.",
        "cycle:1:1e-400",
        "cycle:1:1234567890123456789012345678901234567890",
        "bucket:\n",
        "wfbp,greedy",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct weft_merge_config config = {
            .struct_size = sizeof config, .method = WEFT_MERGE_WFBP, .bucket_bytes = 3};
        cr_expect_eq(weft_merge_method_parse(texts[i], &config), WEFT_ERR_INVALID, "`%s`",
                     texts[i]);
        cr_expect(strstr(weft_error_text(), "weft_merge_method_parse: ") &&
                      strstr(weft_error_text(), "expected exact, greedy"),
                  "%s", weft_error_text());
        cr_expect(config.method == WEFT_MERGE_WFBP && config.bucket_bytes == 3, "`%s`", texts[i]);
    }
}

/* Random words of the right letters: what is read says the same when it is written and read again.
 */
Test(words, are_the_same_when_read_again)
{
    static const char *const parts[] = {"exact", "bucket", "cycle", ":", ":",  "1", "25", "0",
                                        "M",     "k",      ".",     "5", "e3", "-", "9",  "G"};
    int read = 0;
    for (uint64_t seed = 0; seed < 300000; seed++) {
        struct draw draw = {seed};
        struct weft_merge_config config = {.struct_size = sizeof config}, again = config;
        char text[128] = "", written[WEFT_MERGE_METHOD_TEXT], twice[WEFT_MERGE_METHOD_TEXT];
        if (draw_below(&draw, 4))
            strcat(text, parts[1 + draw_below(&draw, 2)]);
        for (unsigned n = draw_below(&draw, 7); n > 0; n--)
            strcat(text, parts[draw_below(&draw, sizeof parts / sizeof parts[0])]);
        if (weft_merge_method_parse(text, &config))
            continue;
        read++;
        cr_assert_eq(weft_merge_method_format(&config, written, sizeof written), WEFT_OK);
        cr_assert_eq(weft_merge_method_parse(written, &again), WEFT_OK, "`%s` from `%s`", written,
                     text);
        cr_assert_eq(weft_merge_method_format(&again, twice, sizeof twice), WEFT_OK);
        cr_assert_str_eq(twice, written, "from `%s`", text);
        if (config.cycle_us > 0)
            cr_assert_eq(again.cycle_us, config.cycle_us, "from `%s`", text);
    }
    cr_assert_gt(read, 1000);
}

Test(words, do_not_depend_on_the_locale)
{
    struct weft_merge_config config = {.struct_size = sizeof config};
    char text[WEFT_MERGE_METHOD_TEXT];
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8"))
        cr_log_info("there is no locale with a comma here: that of C it is");
    cr_assert_eq(weft_merge_method_parse("cycle:1:0.25", &config), WEFT_OK);
    cr_expect_eq(config.cycle_us, 250);
    cr_assert_eq(weft_merge_method_format(&config, text, sizeof text), WEFT_OK);
    cr_expect_str_eq(text, "cycle:1:0.25");
}

Test(words, need_room)
{
    struct weft_merge_config config = {.struct_size = sizeof config, .method = WEFT_MERGE_BUCKETS};
    char text[WEFT_MERGE_METHOD_TEXT] = "before";
    cr_expect_eq(weft_merge_method_format(&config, text, 15), WEFT_ERR_INVALID);
    cr_expect(strstr(weft_error_text(), "argument `size` is 15, expected 16"), "%s",
              weft_error_text());
    cr_expect_str_eq(text, "before");
    cr_expect_eq(weft_merge_method_format(&config, text, 16), WEFT_OK);
    cr_expect_str_eq(text, "bucket:26214400");
    cr_expect_eq(weft_merge_method_format(NULL, text, sizeof text), WEFT_OK);
    cr_expect_str_eq(text, "exact");
    config.method = WEFT_MERGE_GIVEN;
    cr_expect_eq(weft_merge_method_format(&config, text, sizeof text), WEFT_OK);
    cr_expect_str_eq(text, "given");
    /* The longest. */
    config = (struct weft_merge_config){.struct_size = sizeof config,
                                        .method = WEFT_MERGE_CYCLES,
                                        .bucket_bytes = SIZE_MAX,
                                        .cycle_us = 1.2345678901234567e-300};
    cr_expect_eq(weft_merge_method_format(&config, text, sizeof text), WEFT_OK, "%s",
                 weft_error_text());
    config.bucket_bytes = config.first_bucket_bytes = SIZE_MAX - 1;
    config.first_bucket_bytes--;
    config.method = WEFT_MERGE_BUCKETS;
    cr_expect_eq(weft_merge_method_format(&config, text, sizeof text), WEFT_OK);
    cr_expect_str_eq(text, "bucket:18446744073709551614:18446744073709551613");
}
