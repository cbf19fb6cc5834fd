/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The operations of schedules on compressed vectors: how they are made, and their names, which say
 * all that other programs need to make them again.
 */
#include "runtime/base/alloc.h"
#include "runtime/base/error.h"
#include "runtime/compress/operations.h"
#include "runtime/compress/quantise.h"
#include "runtime/graph/op.h"

#include <stdio.h>
#include <string.h>

static const char *const names[] = {
#define NAME(kind, text) [kind] = (text),
    WEFT_COMPRESS_OP_MAP(NAME)
#undef NAME
};

/* What checking knows of them. */
static const enum weft__op_sense senses[] = {
    [WEFT_COMPRESS_QUANTISE] = WEFT__OP_ENCODES,
    [WEFT_COMPRESS_DEQUANTISE] = WEFT__OP_DECODES,
    [WEFT_COMPRESS_DEQUANTISE_ADD] = WEFT__OP_ADDS_DECODED,
    [WEFT_COMPRESS_PROJECT] = WEFT__OP_PROJECTS,
    [WEFT_COMPRESS_RECONSTRUCT] = WEFT__OP_RECONSTRUCTS,
    [WEFT_COMPRESS_CORRELATE] = WEFT__OP_CORRELATES,
    [WEFT_COMPRESS_ORTHONORMALISE] = WEFT__OP_ORTHONORMALISES,
};

/* As names have them: signs are no number there. */
static int is_bits(size_t bits)
{
    return bits == 2 || bits == 4 || bits == 8;
}

static int is_bucket(size_t bucket)
{
    return bucket % WEFT__BUCKET_STEP == 0 && bucket <= WEFT__BUCKET_MOST;
}

static int quantises(weft_compress_op_kind_t kind)
{
    return kind == WEFT_COMPRESS_QUANTISE || kind == WEFT_COMPRESS_DEQUANTISE ||
           kind == WEFT_COMPRESS_DEQUANTISE_ADD;
}

/* ---- making ---- */

static void write_name(struct weft__compress_settings *settings)
{
    const struct weft_quantiser *quantiser = &settings->quantiser;
    const char *name = names[settings->kind];

    if (!quantises(settings->kind))
        snprintf(settings->name, sizeof settings->name, "%s-%zu", name, settings->slice);
    else if (quantiser->bits == WEFT_QUANTISE_SIGN)
        snprintf(settings->name, sizeof settings->name, "%s-sign-%zu", name, quantiser->bucket);
    else
        snprintf(settings->name, sizeof settings->name, "%s-%d-%zu-%s", name, quantiser->bits,
                 quantiser->bucket, quantiser->norm == WEFT_QUANTISE_L2 ? "l2" : "max");
}

static int make(const struct weft__compress_settings *settings, struct weft_op **op)
{
    struct weft__compress_settings *kept = weft__malloc(1, sizeof *kept);
    struct weft_op_config config;
    struct weft_op *made;
    int status;

    if (!kept)
        return weft__error_memory("an operation");
    *kept = *settings;
    kept->form = (struct weft__form){.family = WEFT__FORM_COMPRESS,
                                     .kind = (int)settings->kind,
                                     .check = weft__compress_fits,
                                     .end = weft__compress_end};
    write_name(kept);
    weft_op_config_init(&config);
    config.name = kept->name;
    config.flags = WEFT_OP_MAY_PEND;
    config.compute = weft__compress_begin;
    config.poll = weft__compress_go_on;
    config.user = kept;
    status = weft_op_create(&made, &config);
    if (status) {
        weft__free(kept);
        return status;
    }
    made->sense = senses[settings->kind];
    made->fits = weft__compress_fits;
    made->writes = settings->kind == WEFT_COMPRESS_ORTHONORMALISE ? 3 : 1;
    made->writes_f64 = settings->kind == WEFT_COMPRESS_PROJECT ? 1 << 3 | 1 << 4 : 0; /* squares */
    made->spares = settings->kind == WEFT_COMPRESS_ORTHONORMALISE ? 1 << 1 : 0;
    made->form = &kept->form;
    made->in_parts = 1;
    made->owned = kept;
    *op = made;
    return WEFT_OK;
}

void weft_compress_op_config_init_sized(struct weft_compress_op_config *config, size_t size)
{
    weft_sized_init(config, size);
}

static int read_config(const char *who, const struct weft_compress_op_config *given,
                       struct weft__compress_settings *settings)
{
    struct weft_compress_op_config config;
    int status = weft_sized_read(who, "config", given, &config, sizeof config);

    if (status)
        return status;
    if ((unsigned)config.kind >= WEFT_COMPRESS_OP_COUNT)
        return WEFT__INVALID("%s: `kind` is %d, expected a weft_compress_op_kind_t", who,
                             (int)config.kind);
    settings->kind = config.kind;
    settings->slice = config.slice;
    if (quantises(config.kind))
        return weft__quantiser_read(who, "config->quantiser", config.quantiser,
                                    &settings->quantiser);
    if (config.slice == 0)
        return WEFT__INVALID("%s: `slice` is 0, expected at least 1 for %s", who,
                             names[config.kind]);
    if (config.kind == WEFT_COMPRESS_ORTHONORMALISE && config.slice > WEFT_ORTHONORMALISE_COLUMNS)
        return WEFT__INVALID("%s: `slice` is %zu for %s, expected at most %d", who, config.slice,
                             names[config.kind], WEFT_ORTHONORMALISE_COLUMNS);
    return WEFT_OK;
}

int weft_compress_op(const struct weft_compress_op_config *config, struct weft_op **op)
{
    struct weft__compress_settings settings = {0};
    int status;

    if (!config)
        return WEFT__INVALID("%s: `config` is NULL, expected a configuration", __func__);
    if (!op)
        return WEFT__INVALID("%s: `op` is NULL, expected where to store the operation", __func__);
    status = read_config(__func__, config, &settings);
    return status ? status : make(&settings, op);
}

/* ---- names ---- */

/* Takes a word and the '-' behind it. */
static int take_word(const char **text, const char *word)
{
    const size_t length = strlen(word);

    if (strncmp(*text, word, length) != 0 || (*text)[length] != '-')
        return 0;
    *text += length + 1;
    return 1;
}

/* A number has one spelling. */
static int take_number(const char **text, size_t *number)
{
    const char *at = *text;
    size_t sum = 0;

    if (*at < '1' || *at > '9')
        return 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        const size_t digit = (size_t)(*at - '0');

        if (sum > (SIZE_MAX - digit) / 10)
            return 0;
        sum = 10 * sum + digit;
    }
    *text = at;
    *number = sum;
    return 1;
}

/* Which kind a name begins as, and what is behind that; -1: none. */
static int kind_of(const char *name, const char **rest)
{
    int found = -1;

    for (int kind = 0; kind < WEFT_COMPRESS_OP_COUNT; kind++) {
        const char *at = name;

        if (take_word(&at, names[kind]) && (found < 0 || at > *rest)) {
            found = kind;
            *rest = at;
        }
    }
    return found;
}

static int read_quantiser(const char *text, struct weft_quantiser *quantiser)
{
    size_t bits;

    if (take_word(&text, "sign")) {
        quantiser->bits = WEFT_QUANTISE_SIGN;
        return take_number(&text, &quantiser->bucket) && *text == '\0';
    }
    if (!take_number(&text, &bits) || !is_bits(bits) || *text++ != '-' ||
        !take_number(&text, &quantiser->bucket) || *text++ != '-')
        return 0;
    quantiser->bits = (int)bits;
    quantiser->norm = strcmp(text, "l2") == 0 ? WEFT_QUANTISE_L2 : WEFT_QUANTISE_MAX;
    return quantiser->norm == WEFT_QUANTISE_L2 || strcmp(text, "max") == 0;
}

/* What a name says, behind that of its kind; 0: what none says. */
static int read_rest(const char *rest, weft_compress_op_kind_t kind,
                     struct weft_compress_op_config *config, struct weft_quantiser *quantiser)
{
    const size_t most =
        kind == WEFT_COMPRESS_ORTHONORMALISE ? WEFT_ORTHONORMALISE_COLUMNS : SIZE_MAX;

    weft_compress_op_config_init(config);
    weft_quantiser_init(quantiser);
    config->kind = kind;
    if (!quantises(kind))
        return take_number(&rest, &config->slice) && *rest == '\0' && config->slice <= most;
    config->quantiser = quantiser;
    return read_quantiser(rest, quantiser) && is_bucket(quantiser->bucket);
}

/* A part of a name: what is between two '-', its first letters. */
struct part {
    char text[24];
    size_t number;
    int is_number;
};

static struct part next_part(const char **name)
{
    const size_t length = strcspn(*name, "-");
    struct part part = {0};
    const char *end = *name;

    snprintf(part.text, sizeof part.text, "%.*s", (int)(length < 64 ? length : 64), *name);
    part.is_number = take_number(&end, &part.number) && end == *name + length;
    *name += length + ((*name)[length] == '-');
    return part;
}

static void explain_quantiser(const char *name, char *text, size_t bytes)
{
    struct part bits = next_part(&name), bucket = next_part(&name);
    const int signs = strcmp(bits.text, "sign") == 0;

    if (!signs && !(bits.is_number && is_bits(bits.number)))
        snprintf(text, bytes, "bits are `%s`, expected 2, 4, 8 or sign", bits.text);
    else if (!bucket.is_number || !is_bucket(bucket.number))
        snprintf(text, bytes, "the bucket is `%s`, expected a multiple of %d up to %d", bucket.text,
                 WEFT__BUCKET_STEP, WEFT__BUCKET_MOST);
    else if (signs)
        snprintf(text, bytes, "`-%.20s` is behind the bucket, expected nothing: signs have no norm",
                 name);
    else
        snprintf(text, bytes, "the norm is `%.20s`, expected max or l2", name);
}

int weft__compress_name_is(const char *name, char *reason, size_t bytes)
{
    struct weft_compress_op_config config;
    struct weft_quantiser quantiser;
    const char *rest = name;
    const int kind = kind_of(name, &rest);

    reason[0] = '\0';
    if (kind >= 0 && read_rest(rest, (weft_compress_op_kind_t)kind, &config, &quantiser))
        return 1;
    if (kind >= 0 && quantises((weft_compress_op_kind_t)kind))
        explain_quantiser(rest, reason, bytes);
    else if (kind >= 0)
        snprintf(reason, bytes, "K is `%.24s`, expected a number of 1 to %zu", rest,
                 kind == WEFT_COMPRESS_ORTHONORMALISE ? WEFT_ORTHONORMALISE_COLUMNS : SIZE_MAX);
    return 0;
}

int weft_compress_op_parse(const char *name, struct weft_op **op)
{
    struct weft__compress_settings settings = {0};
    struct weft_compress_op_config config;
    struct weft_quantiser quantiser;
    const char *rest = name;
    char reason[128];
    int kind, status;

    if (!name)
        return WEFT__INVALID("%s: `name` is NULL, expected the name of an operation", __func__);
    if (!op)
        return WEFT__INVALID("%s: `op` is NULL, expected where to store the operation", __func__);
    kind = kind_of(name, &rest);
    if (kind >= 0 && read_rest(rest, (weft_compress_op_kind_t)kind, &config, &quantiser)) {
        status = read_config(__func__, &config, &settings);
        return status ? status : make(&settings, op);
    }
    if (weft__compress_name_is(name, reason, sizeof reason) == 0 && reason[0])
        return weft__error(WEFT_ERR_NOT_FOUND, "no operation is called `%.60s`: %s", name, reason);
    return weft__error(
        WEFT_ERR_NOT_FOUND,
        "no operation is called `%.60s`, expected quantise-, dequantise- or "
        "dequantise-add-, then BITS-BUCKET-NORM (4-512-max, 2-64-l2) or sign-BUCKET; "
        "or project-, reconstruct-, correlate- or orthonormalise-, then K (768)",
        name);
}
