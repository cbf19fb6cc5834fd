/* SPDX-License-Identifier: BSD-3-Clause */
/* Networks: how they are written, and the arithmetic of LogGOPS worked out by hand. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "runtime/cost/loggops.h"

static struct weft_net net_of(const char *text)
{
    struct weft_net net;

    weft_net_init(&net);
    cr_assert_eq(weft_net_parse(text, &net), WEFT_OK, "%s", weft_error_text());
    return net;
}

Test(sim_net, a_new_network_is_free_and_eager)
{
    struct weft_net net;

    weft_net_init(&net);
    cr_expect_eq(net.struct_size, sizeof net);
    cr_expect(net.L == 0 && net.o == 0 && net.g == 0 && net.G == 0 && net.O == 0);
    cr_expect_eq(net.S, 0);
    cr_expect_eq(net.flags, 0);
}

Test(sim_net, letters_come_in_any_order_and_the_rest_stays)
{
    struct weft_net net = net_of("G=0.0004,L=1.5,S=65536");

    cr_expect(net.G == 0.0004 && net.L == 1.5 && net.S == 65536 && net.o == 0);
    cr_expect_eq(weft_net_parse("o=2e-1,g=3,O=1e-3", &net), WEFT_OK);
    cr_expect(net.G == 0.0004 && net.L == 1.5 && net.o == 0.2 && net.g == 3 && net.O == 0.001);
}

Test(sim_net, a_wrong_word_is_named_and_nothing_changes)
{
    static const char *const wrong[] = {"",
                                        "L",
                                        "L=",
                                        "L=x",
                                        "L=-1",
                                        "L=1,",
                                        ",L=1",
                                        "L=1,L=2",
                                        "x=1",
                                        "L= 1",
                                        "L=nan",
                                        "L=inf",
                                        "L=1e400",
                                        "S=-1",
                                        "S=1.5",
                                        "S=",
                                        "L=1 o=2",
                                        "LL=1",
                                        "L==1",
                                        "L=0x1",
                                        "G=1e10",
                                        "offload",
                                        "offload=",
                                        "offload=2",
                                        "offload=11",
                                        "offload=1,offload=1",
                                        "L=1,,o=2",
                                        "S=1e6",
                                        "l=1",
                                        "L=1;",
                                        "-",
                                        "L=1e",
                                        "S=99999999999999999999"};

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct weft_net net = net_of("L=7"), before = net;

        cr_expect_eq(weft_net_parse(wrong[i], &net), WEFT_ERR_INVALID, "`%s`", wrong[i]);
        cr_expect_not_null(strstr(weft_error_text(), "expected"), "`%s`: %s", wrong[i],
                           weft_error_text());
        cr_expect_eq(memcmp(&net, &before, sizeof net), 0, "`%s`", wrong[i]);
    }
    cr_expect_eq(weft_net_parse(NULL, NULL), WEFT_ERR_INVALID);
}

Test(sim_net, ticks_are_rounded_and_clamped)
{
    cr_expect_eq(weft__ticks(1.5), 1500000);
    cr_expect_eq(weft__ticks(0.0000014), 1);
    cr_expect_eq(weft__ticks(1e300), WEFT__TICKS_MAX);
    cr_expect_eq(weft__ticks(NAN), 0);
    cr_expect_eq(weft__ticks_bytes(0.25, 10), 3);
    cr_expect_eq(weft__ticks_bytes(1e9, UINT64_MAX), WEFT__TICKS_MAX);
    cr_expect_float_eq(weft__ticks_us(2500000), 2.5, 0);
}

/* o + L + mG + o after the start; the sender's cpu o, its link mG. */
Test(sim_net, one_message)
{
    struct weft_net net = net_of("L=5,o=1,g=2,G=0.1");
    struct weft__loggops model = weft__loggops_of(&net);
    struct weft__port sender = {0}, receiver = {0};
    weft__ticks_t first = weft__port_send(&sender, &model, 10 * WEFT__TICKS_PER_US, 100);

    cr_expect_eq(first, weft__ticks(16));
    cr_expect_eq(sender.cpu, weft__ticks(11));
    cr_expect_eq(sender.send, weft__ticks(22));
    cr_expect_eq(sender.receive, 0);
    cr_expect_eq(weft__port_can_send(&sender), weft__ticks(22));
    cr_expect_eq(weft__port_can_receive(&sender, &model), weft__ticks(11));
    cr_expect_eq(weft__port_receive(&receiver, &model, first, 100), weft__ticks(27));
    cr_expect_eq(receiver.receive, weft__ticks(28));
    cr_expect_eq(receiver.send, 0);
    cr_expect_eq(weft__port_compute(&receiver, weft__port_can_compute(&receiver), weft__ticks(3)),
                 weft__ticks(30));
}

/* The overhead a byte: on both processors, where it hides the gap if it is larger. */
Test(sim_net, overhead_a_byte)
{
    struct weft_net net = net_of("L=5,o=1,G=0.1,O=0.2");
    struct weft__loggops model = weft__loggops_of(&net);
    struct weft__port sender = {0}, receiver = {0};

    cr_expect_eq(weft__port_send(&sender, &model, 0, 100), weft__ticks(6));
    cr_expect_eq(sender.cpu, weft__ticks(21));
    cr_expect_eq(sender.send, weft__ticks(10));
    cr_expect_eq(weft__port_receive(&receiver, &model, 0, 100), weft__ticks(21));
    cr_expect_eq(receiver.receive, weft__ticks(10));
}

/* With an adapter that moves data the processor has the overhead alone, as soon as it is free; the
 * receive ends when it would on a free processor. */
Test(sim_net, an_adapter_takes_messages_in)
{
    struct weft_net net = net_of("L=5,o=1,g=2,G=0.1,O=0.01,offload=1");
    struct weft__loggops model = weft__loggops_of(&net);
    struct weft__port idle = {0}, busy = {.cpu = weft__ticks(100)};

    cr_expect_eq(net.flags, WEFT_NET_OFFLOAD);
    cr_expect_eq(weft__port_receive(&idle, &model, weft__ticks(6), 100), weft__ticks(17));
    cr_expect_eq(idle.cpu, weft__ticks(8));
    cr_expect_eq(idle.receive, weft__ticks(18));
    cr_expect_eq(weft__port_done(&idle), weft__ticks(17));
    cr_expect_eq(weft__port_can_receive(&busy, &model), 0);
    cr_expect_eq(weft__port_receive(&busy, &model, weft__ticks(6), 100), weft__ticks(17));
    cr_expect_eq(busy.cpu, weft__ticks(102));
    cr_expect_eq(weft__port_done(&busy), weft__ticks(102));
    cr_expect_eq(weft_net_parse("offload=0", &net), WEFT_OK);
    cr_expect_eq(net.flags, 0);
}

Test(sim_net, a_rendezvous_moves_the_sender_forward_only)
{
    struct weft_net net = net_of("S=64");
    struct weft__loggops model = weft__loggops_of(&net);
    struct weft__port sender = {.cpu = 5, .send = 20};

    cr_expect(weft__loggops_eager(&model, 64) && !weft__loggops_eager(&model, 65));
    cr_expect_eq(weft__port_rendezvous(&sender, 10), 10);
    cr_expect(sender.cpu == 10 && sender.send == 20);
    cr_expect_eq(weft__port_rendezvous(&sender, 7), 10);
}

Test(sim_net, the_first_byte_can_be_free)
{
    struct weft_net net = net_of("G=1");
    struct weft__loggops model;
    struct weft__port port = {0};

    net.flags = WEFT_NET_LOGGOPSIM;
    model = weft__loggops_of(&net);
    weft__port_send(&port, &model, 0, 10);
    cr_expect_eq(port.send, weft__ticks(9));
    cr_expect_eq(weft__loggops_bytes(&model, 0), 0);
}
