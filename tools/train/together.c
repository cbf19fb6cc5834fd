/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/train/together.h"

int train_together(struct weft_run **run, struct weft_context *context, struct weft_object *object,
                   const char *name, const struct weft_template_params *params)
{
    struct weft_run_config config;
    struct weft_plan *plan;

    weft_run_config_init(&config);
    config.object = object;
    int status = weft_template_create_plan(&plan, context, name, params);
    if (status != WEFT_OK)
        return status;
    status = weft_run_create(run, context, plan, &config);
    weft_plan_destroy(plan);
    return status;
}
