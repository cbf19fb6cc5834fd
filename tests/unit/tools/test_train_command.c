/* SPDX-License-Identifier: BSD-3-Clause */
/* The demonstration trainer's command: wrong use. */
#include "tools/cli/cli.h"
#include "tools/train/algorithm.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern const struct cli_spec weft_command_train;

/* Runs the command with one option; what it says on standard error is kept in `said`. */
static int run_command(const char *option, const char *value, char *said, size_t size)
{
    char *argv[] = {(char *)"train", (char *)option, (char *)value, NULL};
    FILE *file = tmpfile();
    int saved = dup(STDERR_FILENO);

    cr_assert_not_null(file);
    cr_assert_geq(saved, 0);
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    int status = cli_run(&weft_command_train, 3, argv);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    said[fread(said, 1, size - 1, file)] = '\0';
    fclose(file);
    return status;
}

Test(train_command, wrong_use_is_exit_status_2_and_one_line)
{
    static const char *const cases[][2] = {
        {"--algorithm", "alreduce"},
        {"--algorithm", "allreduce,"},
        {"--algorithm", ""},
        {"--transport", "smoke"},
        {"--steps", "0"},
        {"--batch", "-1"},
        {"--hidden", "0"},
        {"--density", "0.1"},
        {"--k", "3"},
        {"--warmup-steps", "3"},
        {"--momentum-correction", "0.9"},
        {"--residual", "paper"},
        {"--residual", "lost"},
        {"--gtopk-algo", "ring"},
        {"--bits", "4"},
        {"--bits", "3"},
        {"--bucket", "512"},
        {"--bucket", "0"},
        {"--norm", "l1"},
        {"--norm", "l2"},
        {"--qsgd-way", "tree"},
        {"--qsgd-way", "ring"},
        {"--power-rank", "0"},
        {"--power-rank", "2"},
        {"--pca-loss", "1"},
        {"--pca-loss", "0.1"},
        {"--slice-order", "of-places"},
        {"--slice-factor", "0"},
        {"--slice", "768"},
        {"--reuse", "-1"},
        {"--pca-memory", "lots"},
        {"--sample-steps", "1"},
        {"--sample-bits", "3"},
        {"--compressed-steps", "0"},
        {"--compressed-steps", "ever"},
        {"--loss-bound", "-1"},
        {"--uncompressed", "zip"},
        {"--projected-algo", "tree"},
        {"--compress-residual", "lost"},
        {"--compress-residual", "kept"},
        {"--hidden", "16,"},
        {"--hidden", "16;8"},
        {"--lr", "nan"},
        {"--momentum", "1"},
        {"--shards", "by-class:0"},
        {"--shards", "dirichlet"},
        {"--imbalance", "fixed:8,1"},
        {"--imbalance", "sometimes"},
        {"--imbalance", "permanent:9,1"},
        {"--imbalance", "pareto:1"},
        {"--imbalance", "rl:1+fixed:8,1"},
        {"--compute", "x"},
        {"--group-size", "9"},
        {"--sync-period", "-1"},
        {"--neighbours", "0"},
        {"--order", "before"},
        {"--mode", "hasty"},
        {"--activation", "nobody"},
        {"--contribution", "2"},
        {"--stale-mix", "both"},
        {"--servers", "0"},
        {"--servers", "two"},
        {"--co-located", ""},
        {"--staleness", "2"},
        {"--staleness-most", "2"},
        {"--pushes", "turns"},
        {"--pushes", "slowly"},
        {"--osp-share", "0.5"},
        {"--osp-share", "1.5"},
        {"--osp-most", "0.5"},
        {"--osp-average", "1"},
        {"--osp-correct", "layer"},
        {"--patience", "-1"},
        {"--patience", "some"},
        {"--transport", "virtual"},
        {"--net", "L=fast"},
        {"--seeds", "0"},
        {"--imbalance", "rl:"},
        {"--seed", "-1"},
        {"--plot", "/dev/null/p.svg"},
        {"--data", "/nonexistent"},
        {"-n", "0"},
        {"--nosuch", "1"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char said[1024];
        int status = run_command(cases[i][0], cases[i][1], said, sizeof said);
        cr_assert_eq(status, CLI_WRONG, "%s %s: %d", cases[i][0], cases[i][1], status);
        cr_assert(strncmp(said, "weft train: ", 12) == 0, "'%s'", said);
        cr_assert_eq(strchr(said, '\n'), said + strlen(said) - 1, "'%s'", said);
    }
}

Test(train_command, an_unknown_algorithm_is_named_beside_the_known)
{
    char said[1024];

    cr_assert_eq(run_command("--algorithm", "allreduce,nosuch", said, sizeof said), CLI_WRONG);
    cr_assert(strstr(said, "'nosuch'"), "%s", said);
    for (const struct train_algorithm *const *at = train_algorithms(); *at; at++)
        cr_assert(strstr(said, (*at)->name), "%s", said);
}
