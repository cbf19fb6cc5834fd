/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contexts over communicators, of some ranks and in another order; tags that are few; settings that
 * are refused.
 */
#include <stdio.h>
#include <string.h>
#include <weft/mpi.h>

#include "tests/processes/exchange.h"

static struct weft_context *context_over(MPI_Comm comm)
{
    struct weft_context *context = NULL;

    OK(weft_context_create_mpi(&context, comm, NULL, NULL));
    return context;
}

static void communicators(void)
{
    struct weft_context *reversed, *half;
    struct exchange x, y;
    MPI_Comm back, part;

    MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &back);
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, world_rank, &part);
    reversed = context_over(back);
    half = context_over(part);
    MPI_Comm_free(&back); /* it was duplicated */
    CHECK(weft_context_rank(reversed) == world_size - 1 - world_rank);
    CHECK(weft_context_size(half) == (world_size + (world_rank % 2 == 0)) / 2);
    CHECK(strcmp(weft_context_transport(half), "mpi") == 0);
    x = exchange_make(reversed, 30000, 2);
    y = exchange_make(half, 300, 2);
    for (int start = 0; start < 3; start++) {
        exchange_start(&x);
        exchange_start(&y);
        exchange_finish(&y);
        exchange_finish(&x);
    }
    exchange_free(&x);
    exchange_free(&y);
    weft_context_destroy(half);
    weft_context_destroy(reversed);
    MPI_Comm_free(&part);
    world_ok("several contexts, communicators of some ranks in another order");
}

static void few_tags(unsigned bits)
{
    struct weft_mpi_config config;
    struct weft_context *context;
    char name[64];

    weft_mpi_config_init(&config);
    config.tag_bits = bits;
    OK(weft_context_create_mpi(&context, MPI_COMM_WORLD, NULL, &config));
    snprintf(name, sizeof name, " with %u bits of tag", bits);
    exchange_many(context, 9000, 400, name);
    weft_context_destroy(context);
}

static void too_many_tags(void)
{
    struct weft_mpi_config config;
    struct weft_context *context = NULL;

    weft_mpi_config_init(&config);
    config.tag_bits = 40;
    STATUS(WEFT_ERR_INVALID, weft_context_create_mpi(&context, MPI_COMM_WORLD, NULL, &config));
    CHECK(strstr(weft_error_text(), "tag_bits"));
    CHECK(!context);
    world_ok("more bits of tag than MPI has are refused");
    int last = world_size - 1;
    char expected[80];
    config.tag_bits = world_rank == last ? 6 : 5;
    snprintf(expected, sizeof expected, "tag_bits is 5 on rank 0 and 6 on rank %d", last);
    STATUS(last ? WEFT_ERR_INVALID : WEFT_OK,
           weft_context_create_mpi(&context, MPI_COMM_WORLD, NULL, &config));
    CHECK(!last || strstr(weft_error_text(), expected));
    CHECK(!last == !!context);
    weft_context_destroy(context);
    world_ok("bits of tag that are not the same on all ranks are refused, and both are named");
}

/* The policy of weft/sized.h, for the two structs that are read here; all ranks are refused. */
static void struct_sizes(void)
{
    struct weft_context_config config[2];
    struct weft_mpi_config mpi[2];
    struct weft_context *context = NULL;

    memset(config, 0, sizeof config);
    memset(mpi, 0, sizeof mpi);
    STATUS(WEFT_ERR_INVALID, weft_context_create_mpi(&context, MPI_COMM_WORLD, config, NULL));
    CHECK(strstr(weft_error_text(), "weft_context_create_mpi: config->struct_size is 0, expected"));
    STATUS(WEFT_ERR_INVALID, weft_context_create_mpi(&context, MPI_COMM_WORLD, NULL, mpi));
    CHECK(strstr(weft_error_text(), "weft_context_create_mpi: mpi->struct_size is 0, expected"));
    config[0].struct_size = sizeof config;
    mpi[0].struct_size = sizeof mpi;
    OK(weft_context_create_mpi(&context, MPI_COMM_WORLD, config, mpi));
    weft_context_destroy(context);
    mpi[1].tag_bits = 1;
    STATUS(WEFT_ERR_INVALID, weft_context_create_mpi(&context, MPI_COMM_WORLD, config, mpi));
    CHECK(strstr(weft_error_text(), "mpi->struct_size is"));
    config[0].struct_size = offsetof(struct weft_context_config, spin_ns);
    OK(weft_context_create_mpi(&context, MPI_COMM_WORLD, config, NULL));
    weft_context_destroy(context);
    memset(mpi, 0xA5, sizeof mpi);
    weft_mpi_config_init(&mpi[0]);
    CHECK(mpi[0].struct_size == sizeof mpi[0] && !mpi[0].tag_bits);
    CHECK(mpi[1].struct_size == (size_t)UINT64_C(0xA5A5A5A5A5A5A5A5));
    world_ok("structs of no size, of other versions and of later ones");
}

/* One rank asks for what there is not: all hear which, and why. */
static void creation(void)
{
    struct weft_context *made = NULL;
    struct weft_mpi_config config;
    char expected[64];

    weft_mpi_config_init(&config);
    if (world_rank == world_size - 1)
        config.tag_bits = 63;
    STATUS(WEFT_ERR_INVALID, weft_context_create_mpi(&made, MPI_COMM_WORLD, NULL, &config));
    snprintf(expected, sizeof expected, "failed on rank %d: ", world_size - 1);
    CHECK(world_rank == world_size - 1 || strstr(weft_error_text(), expected));
    CHECK(strstr(weft_error_text(), "tag_bits is 63"));
    CHECK(!made);
    world_ok("a creation that fails on one rank names it on all");
}

int main(int argc, char **argv)
{
    world_init(&argc, &argv, WORLD_ONE_THREAD);
    communicators();
    few_tags(4);
    few_tags(1);
    too_many_tags();
    struct_sizes();
    creation();
    return world_end();
}
