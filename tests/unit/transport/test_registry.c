/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of transports, and that who asks for costs and idle policies is told what it says. */
#include <criterion/criterion.h>
#include <string.h>
#include <weft/weft.h>

Test(registry, describes_every_transport)
{
    cr_assert(weft_transport_count() >= 3);
    cr_expect(!weft_transport_at(weft_transport_count()));
    for (size_t i = 0; i < weft_transport_count(); i++) {
        const struct weft_transport *transport = weft_transport_at(i);
        struct weft_cost_model model;
        cr_expect_eq(transport->struct_size, sizeof *transport);
        cr_expect_eq(weft_transport_find(transport->name), transport);
        cr_expect(transport->summary[0] != '\0' && transport->yield_ns > 0);
        weft_cost_model_init(&model, transport->name);
        if (transport->cost)
            cr_expect_eq(memcmp(&model, transport->cost, sizeof model), 0, "%s", transport->name);
    }
    cr_expect(weft_transport_find("mpi")->processes);
    cr_expect(weft_transport_find("virtual")->virtual_time);
}

Test(registry, names_what_it_knows)
{
    cr_expect(!weft_transport_find("pigeon"));
    cr_expect(strstr(weft_error_text(), "`pigeon`") &&
              strstr(weft_error_text(), "local, shared, mpi"));
    cr_expect(!weft_transport_find(NULL));
    /* Costs of a transport that nobody knows are those of "local". */
    struct weft_cost_model local, other;
    weft_cost_model_init(&local, "local");
    weft_cost_model_init(&other, "pigeon");
    cr_expect_eq(memcmp(&local, &other, sizeof local), 0);
}

Test(registry, a_context_idles_as_its_transport_says)
{
    struct weft_context_config config;
    struct weft_context *context = NULL;
    struct weft_local *local = NULL;
    cr_assert_eq(weft_local_create(&local, 1, NULL), WEFT_OK);
    cr_assert_eq(weft_context_create_local(&context, local, 0, NULL), WEFT_OK);
    weft_context_config_init(&config);
    cr_assert_eq(weft_context_get_config(context, &config), WEFT_OK);
    const struct weft_transport *transport = weft_transport_find(weft_context_transport(context));
    cr_expect_eq(config.yield_ns, transport->yield_ns);
    cr_expect_eq(config.helper_yield_ns, transport->helper_yield_ns);
    weft_context_destroy(context);
    weft_local_destroy(local);
}
