// SPDX-License-Identifier: BSD-3-Clause
// The kernels beside ops/, as the program runs them that this is linked into: test_kernels [SEED].
#include "tests/gpu/kernel_tests.h"

#include <time.h>

int main(int count, char **arguments)
{
    const uint64_t seed = count > 1 ? strtoull(arguments[1], nullptr, 10) : (uint64_t)time(nullptr);

    printf("seed %llu\n", (unsigned long long)seed);
    draw_from(seed);
    if (!run_begin(seed)) {
        printf("0 passed, 1 failed, 0 skipped\n");
        return 1;
    }
    test_reduce();
    test_copy();
    test_nans();
    test_convert();
    test_combine();
    test_scatter();
    test_merge();
    test_lists();
    test_topk();
    test_compress();
    run_end();
    printf("%d passed, %d failed, 0 skipped\n", tests_passed, tests_failed);
    return tests_failed > 0;
}
