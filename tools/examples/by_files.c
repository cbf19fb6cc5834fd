/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes that were started by whomever meet by files in a folder that all of them know:
 *
 *     for r in 0 1 2; do by_files $folder $r 3 & done; wait
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weft/weft.h>

/* [gather] */
struct folder {
    const char *path;
    int rank, size;
    int calls;
};

/* What a rank gives in a call stands in a file, which has its name when it is complete. */
static void name_file(const struct folder *folder, int rank, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/%d.%d", folder->path, folder->calls, rank);
}

static int give(const struct folder *folder, const void *mine, size_t bytes)
{
    char path[4096], unfinished[4200];

    name_file(folder, folder->rank, path, sizeof path);
    snprintf(unfinished, sizeof unfinished, "%s.new", path);
    FILE *file = fopen(unfinished, "wb");
    if (!file)
        return WEFT_ERR_IO;
    size_t written = fwrite(mine, 1, bytes, file);
    if (fclose(file) != 0 || written != bytes || rename(unfinished, path) != 0)
        return WEFT_ERR_IO;
    return WEFT_OK;
}

static int take(const struct folder *folder, int rank, void *into, size_t bytes)
{
    char path[4096];
    FILE *file;

    name_file(folder, rank, path, sizeof path);
    while (!(file = fopen(path, "rb")))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    size_t got = fread(into, 1, bytes, file);
    fclose(file);
    return got == bytes ? WEFT_OK : WEFT_ERR_IO;
}

static int gather(void *user, const void *mine, size_t bytes, void *all)
{
    struct folder *folder = user;
    int status = give(folder, mine, bytes);

    for (int r = 0; r < folder->size && status == WEFT_OK; r++)
        status = take(folder, r, (char *)all + (size_t)r * bytes, bytes);
    folder->calls++;
    return status;
}

static int meet(struct weft_context **context, struct folder *folder)
{
    struct weft_shared_config shared;

    weft_shared_config_init(&shared);
    shared.gather = gather;
    shared.user = folder;
    return weft_context_create_shared(context, folder->rank, folder->size, NULL, &shared);
}
/* [gather] */

static int add(struct weft_context *context)
{
    double mine = weft_context_rank(context) + 1;
    double sum = 0;
    int status = weft_allreduce(context, &mine, &sum, 1, WEFT_F64, weft_op_builtin(WEFT_SUM));

    if (status == WEFT_OK)
        printf("rank %d of %d: the sum is %g\n", weft_context_rank(context),
               weft_context_size(context), sum);
    return status;
}

int main(int argc, char **argv)
{
    struct weft_context *context = NULL;
    char *end[2] = {"", ""};

    if (argc != 4) {
        fprintf(stderr, "usage: by_files FOLDER RANK SIZE\n");
        return 2;
    }
    struct folder folder = {.path = argv[1],
                            .rank = (int)strtol(argv[2], &end[0], 10),
                            .size = (int)strtol(argv[3], &end[1], 10)};
    if (*end[0] || *end[1] || !*argv[2] || !*argv[3]) {
        fprintf(stderr, "by_files: RANK and SIZE are numbers\n");
        return 2;
    }
    int status = meet(&context, &folder);
    if (status == WEFT_OK)
        status = add(context);
    if (status != WEFT_OK)
        fprintf(stderr, "by_files: %s\n", weft_error_text());
    weft_context_destroy(context);
    return status != WEFT_OK;
}
