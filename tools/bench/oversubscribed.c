/* SPDX-License-Identifier: BSD-3-Clause */
/* weft bench oversubscribed: more ranks than cores. */
#include "tools/bench/bench.h"

static int contest(struct bench *bench, int ranks)
{
    static const size_t sizes[] = {4, 1u << 14};

    if (bench->rank == 0)
        bench_machine(bench);
    if (bench->world > 1)
        bench_mpi_agree(0, 1);
    bench_note(bench, "%d ranks on %d cores; hand-over between cores %.0f ns, yield on one %.0f ns",
               ranks, bench->cores, bench->handover_ns, bench->yield_ns);
    bench->lines = 0;
    return bench_contest(bench, ranks, bench->size_count ? bench->sizes : sizes,
                         bench->size_count ? bench->size_count : 2, 1u << BENCH_ALLREDUCE);
}

int bench_oversubscribed(struct bench *bench)
{
    static const int all[] = {4, 8, 16};
    int one[] = {bench->ranks};
    const int *ranks = bench->ranks ? one : all;
    size_t count = bench->ranks ? 1 : 3;

    if (bench->world > 1)
        return contest(bench, bench->world);
    for (size_t i = 0; i < count; i++) {
        int status = bench->mpi || ranks[i] < 2 ? CLI_NO_MPI : bench_respawn(bench, ranks[i]);
        if (status == CLI_NO_MPI) {
            bench_note(bench, "no mpiexec here: local ranks alone, without a peer");
            status = contest(bench, ranks[i]);
        }
        if (status)
            return status;
    }
    return 0;
}
