/* SPDX-License-Identifier: BSD-3-Clause */
/* weft bench allreduce: two ranks, both transports, beside the three forms that MPI has. */
#include "tools/bench/bench.h"

int bench_contest_sizes(struct bench *bench, const size_t *sizes, size_t count, unsigned peers)
{
    int ranks = bench->ranks ? bench->ranks : 2;

    if (bench->world == 1 && !bench->mpi) {
        int status = ranks > 1 ? bench_respawn(bench, ranks) : CLI_NO_MPI;
        bench->respawned = status != CLI_NO_MPI;
        if (bench->respawned)
            return status;
        bench_note(bench, "no mpiexec here: local ranks alone, without a peer");
    }
    if (bench->rank == 0)
        bench_machine(bench);
    if (bench->world > 1) {
        ranks = bench->world;
        bench_mpi_agree(0, 1);
    }
    bench_note(bench,
               "allreduce of f32 sums; hand-over between cores %.0f ns, yield on one %.0f ns",
               bench->handover_ns, bench->yield_ns);
    return bench_contest(bench, ranks, bench->size_count ? bench->sizes : sizes,
                         bench->size_count ? bench->size_count : count, peers);
}

int bench_allreduce(struct bench *bench)
{
    static const size_t sizes[] = {4,        64,       1u << 10, 1u << 12, 1u << 14,
                                   1u << 16, 1u << 18, 1u << 20, 1u << 22, 1u << 26};
    return bench_contest_sizes(bench, sizes, sizeof sizes / sizeof sizes[0],
                               1u << BENCH_ALLREDUCE | 1u << BENCH_IALLREDUCE |
                                   1u << BENCH_ALLREDUCE_INIT);
}
