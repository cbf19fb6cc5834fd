/* SPDX-License-Identifier: BSD-3-Clause */
/* Fabrics: how they are written, and what may not be. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/error.h"
#include "runtime/sim/fabric.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

struct both {
    struct weft_fabric fabric;
    struct weft_net net;
};

static struct both none(void)
{
    struct both both;

    weft_fabric_init(&both.fabric);
    weft_net_init(&both.net);
    return both;
}

Test(fabric, words_of_networks_and_of_fabrics_stand_together)
{
    struct both both = none();

    cr_assert_eq(weft_fabric_parse("L=1,torus=4x3x2,G=0.5,hop=0.25,link=2,offload=1,ranks-per-host="
                                   "3,place=random:18446744073709551615",
                                   &both.fabric, &both.net),
                 WEFT_OK, "%s", weft_error_text());
    cr_expect(both.net.L == 1 && both.net.G == 0.5 && both.net.flags == WEFT_NET_OFFLOAD);
    cr_expect_eq(both.fabric.kind, WEFT_FABRIC_TORUS);
    cr_expect_eq(both.fabric.levels, 3);
    cr_expect(both.fabric.extents[0] == 4 && both.fabric.extents[1] == 3 &&
              both.fabric.extents[2] == 2);
    cr_expect(both.fabric.hop_us == 0.25 && both.fabric.link_us_per_byte == 2);
    cr_expect_eq(both.fabric.ranks_per_host, 3);
    cr_expect(both.fabric.flags == WEFT_FABRIC_RANDOM && both.fabric.seed == UINT64_MAX);
    /* What is left out stays. */
    cr_assert_eq(weft_fabric_parse("place=linear,o=3", &both.fabric, &both.net), WEFT_OK);
    cr_expect(both.fabric.flags == 0 && both.fabric.levels == 3 && both.net.o == 3);
    cr_expect(both.net.L == 1 && both.fabric.hop_us == 0.25);
    cr_assert_eq(weft_fabric_parse("fat-tree=8x2,oversubscription=4", &both.fabric, &both.net),
                 WEFT_OK);
    cr_expect(both.fabric.kind == WEFT_FABRIC_FAT_TREE && both.fabric.levels == 2 &&
              both.fabric.oversubscription == 4);
}

Test(fabric, a_text_without_a_fabric_is_a_network)
{
    struct both both = none();

    cr_assert_eq(weft_fabric_parse("L=1,S=16", &both.fabric, &both.net), WEFT_OK);
    cr_expect(both.fabric.kind == WEFT_FABRIC_NONE && both.net.L == 1 && both.net.S == 16);
}

Test(fabric, a_wrong_word_is_named_and_nothing_changes)
{
    static const struct {
        const char *text, *told;
    } wrong[] = {
        {"", "network: ``, expected one of L="},
        {"torus", "network: `torus`, expected one of L="},
        {"torus=", "network: `torus=`, expected extents"},
        {"torus=4,mesh=4", "network: `mesh=4`, expected one of L="},
        {"torus=0", "network: `torus=0`, expected extents"},
        {"torus=4x", "network: `torus=4x`, expected extents"},
        {"torus=x4", "network: `torus=x4`, expected extents"},
        {"torus=4xx4", "network: `torus=4xx4`, expected extents"},
        {"torus=-4", "network: `torus=-4`, expected extents"},
        {"torus=4 x4", "network: `torus=4 x4`, expected extents"},
        {"torus=2147483648", "network: `torus=2147483648`, expected extents"},
        {"torus=1x1x1x1x1x1x1x1x1", "network: `torus=1x1x1x1x1x1x1x1x1`, expected extents"},
        {"torus=32768x65536", "fabric->extents[1] is 65536, expected at least 1, and a product"},
        {"torus=1024x1024x1024", "fabric->extents are those of more than 2147483648 links"},
        {"torus=4,torus=4", "network: `torus=4` gives torus a second time"},
        {"torus=4,fat-tree=4", "network: torus= and fat-tree=, expected one of them"},
        {"torus=4,L=x", "network: `L=x`"},
        {"torus=4,L=1,L=1", "network: `L=1` gives L a second time"},
        {"hop=1", "network: hop= without torus= or fat-tree="},
        {"link=1,L=1", "network: link= without torus= or fat-tree="},
        {"torus=4,hop=-1", "network: `hop=-1`, expected microseconds"},
        {"torus=4,hop=1e10", "network: `hop=1e10`, expected microseconds"},
        {"torus=4,link=0", "network: `link=0`, expected microseconds a byte, more than 0"},
        {"torus=4,link=nan", "network: `link=nan`, expected microseconds a byte"},
        {"torus=4,oversubscription=2", "network: oversubscription= without fat-tree="},
        {"fat-tree=4x4,oversubscription=0", "network: `oversubscription=0`, expected a factor"},
        {"fat-tree=4x4,oversubscription=3", "fabric->oversubscription is 3, expected a divisor of "
                                            "the 4 hosts"},
        {"fat-tree=4x4,oversubscription=1.5", "network: `oversubscription=1.5`, expected a factor"},
        {"torus=4,ranks-per-host=", "network: `ranks-per-host=`, expected a number of ranks"},
        {"torus=4,ranks-per-host=0", "network: `ranks-per-host=0`, expected a number of ranks"},
        {"torus=4,place=", "network: `place=`, expected linear, or random:SEED"},
        {"torus=4,place=random", "network: `place=random`, expected linear"},
        {"torus=4,place=random:", "network: `place=random:`, expected linear"},
        {"torus=4,place=random:-1", "network: `place=random:-1`, expected linear"},
        {"torus=4,place=random:18446744073709551616", "expected linear, or random:SEED"},
        {"torus=4,", "network: ``, expected one of L="},
    };
    struct both before = none();

    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        struct both both = before;

        cr_expect_eq(weft_fabric_parse(wrong[i].text, &both.fabric, &both.net), WEFT_ERR_INVALID,
                     "`%s` was read", wrong[i].text);
        cr_expect(strstr(weft_error_text(), wrong[i].told), "`%s`: %s", wrong[i].text,
                  weft_error_text());
        cr_expect(!memcmp(&both.fabric, &before.fabric, sizeof before.fabric) &&
                      !memcmp(&both.net, &before.net, sizeof before.net),
                  "`%s` has changed something", wrong[i].text);
    }
}

Test(fabric, members_out_of_their_range_are_named)
{
    static const struct {
        struct weft_fabric fabric;
        const char *told;
    } wrong[] = {
        {{.kind = (weft_fabric_kind_t)7}, "fabric->kind is 7"},
        {{.kind = WEFT_FABRIC_TORUS}, "fabric->levels is 0, expected 1..8"},
        {{.kind = WEFT_FABRIC_TORUS, .levels = 9}, "fabric->levels is 9, expected 1..8"},
        {{.kind = WEFT_FABRIC_TORUS, .levels = 2, .extents = {4}}, "fabric->extents[1] is 0"},
        {{.kind = WEFT_FABRIC_TORUS, .levels = 1, .extents = {4}, .hop_us = -1},
         "fabric->hop_us is -1"},
        {{.kind = WEFT_FABRIC_TORUS, .levels = 1, .extents = {4}, .link_us_per_byte = 1e10},
         "fabric->link_us_per_byte is 1e+10"},
        {{.kind = WEFT_FABRIC_TORUS, .levels = 1, .extents = {4}, .ranks_per_host = -1},
         "fabric->ranks_per_host is -1"},
        {{.kind = WEFT_FABRIC_TORUS, .levels = 1, .extents = {4}, .oversubscription = -1},
         "fabric->oversubscription is -1"},
        {{.kind = WEFT_FABRIC_TORUS, .levels = 1, .extents = {4}, .flags = 2},
         "fabric->flags is 0x2"},
    };

    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        struct weft_fabric given = wrong[i].fabric, read;

        given.struct_size = sizeof given;
        cr_expect_eq(weft__fabric_read("test", "fabric", &given, &read), WEFT_ERR_INVALID);
        cr_expect(strstr(weft_error_text(), wrong[i].told), "%s, expected %s", weft_error_text(),
                  wrong[i].told);
    }
}

Test(fabric, kinds_have_names)
{
    cr_expect_str_eq(weft_fabric_kind_name(WEFT_FABRIC_TORUS), "torus");
    cr_expect_str_eq(weft_fabric_kind_name(WEFT_FABRIC_FAT_TREE), "fat-tree");
    cr_expect_null(weft_fabric_kind_name(WEFT_FABRIC_NONE));
    cr_expect_null(weft_fabric_kind_name((weft_fabric_kind_t)77));
}
