/* SPDX-License-Identifier: BSD-3-Clause */
/* libweft-mpi reaches inside libweft, so what does not belong to it says so. */
#include <criterion/criterion.h>
#include <string.h>
#include <weft/weft.h>

#include "runtime/context/context.h"

Test(companion, of_this_build_is_taken)
{
    cr_expect_eq(weft__companion_check("libweft-mpi", weft_version(), WEFT__LAYOUT), WEFT_OK);
}

Test(companion, of_another_version_is_refused)
{
    cr_expect_eq(weft__companion_check("libweft-mpi", "0.1.9", WEFT__LAYOUT), WEFT_ERR_STATE);
    cr_expect(strstr(weft_error_text(), "libweft-mpi 0.1.9 does not belong to libweft "));
    cr_expect(strstr(weft_error_text(), weft_version()));
}

Test(companion, with_other_structures_is_refused)
{
    cr_expect_eq(weft__companion_check("libweft-mpi", weft_version(), WEFT__LAYOUT + 1),
                 WEFT_ERR_STATE);
    cr_expect(strstr(weft_error_text(), "another build"));
}
