# SPDX-License-Identifier: BSD-3-Clause
"""How the functions of the API are called in the test of its rules: what the headers cannot say.

Bodies are of C functions that return a status; `p` is the struct under test, what begins with api_ is
in fixture.h. make_rules.py fails on a function, struct or member that needs an entry and has none.
"""

# ---- functions that read a struct: {function: {parameter: body}} ----


def made(create, destroy, kind=None):
    kind = kind or destroy.removesuffix("_destroy")
    return (f"struct {kind} *made = NULL;\n    int status = {create};\n\n"
            f"    if (!status)\n        {destroy}(made);\n    return status;")


def average(name):
    return {"config": made(f"{name}_create(&made, api.context, p)", f"{name}_destroy")}


CONFIGS = {
    "weft_check": {"config": made("weft_check(api.schedules, 1, p, &made)", "weft_check_report_destroy")},
    "weft_collectives_configure": {
        "config": "return weft_collectives_configure(api.context, p);"},
    "weft_compress_op": {"config": made("weft_compress_op(p, &made)", "weft_op_destroy")},
    "weft_compressed_average_create": { # the default needs LAPACK
        "config": made("weft_compressed_average_create(&made, api.context, p)",
                       "weft_compressed_average_destroy").replace(
                           "return status", "return status == WEFT_ERR_UNSUPPORTED ? WEFT_OK : status")},
    "weft_context_create_local": {"config": "return api_create_local(p);"},
    "weft_context_create_shared": {
        "config": "return api_create_shared(p, NULL);",
        "shared": "return api_create_shared(NULL, p);"},
    "weft_context_trace_start": {
        "config": "return weft_context_trace_start(api.context, p);"},
    "weft_cost_model_write": {
        "model": 'return weft_cost_model_write(api.path, "local", p, &api.net, 0);',
        "net": 'return weft_cost_model_write(api.path, "local", &api.cost, p, 0);'},
    "weft_device_combine": { # in no function of a device
        "sum": "int status = weft_device_combine(p, NULL);\n\n"
               "    return status == WEFT_ERR_STATE ? WEFT_OK : status;"},
    "weft_gossip_create": average("weft_gossip"),
    "weft_gradients_create": average("weft_gradients"),
    "weft_group_average_create": average("weft_group_average"),
    "weft_local_create": {"config": made("weft_local_create(&made, 1, p)", "weft_local_destroy")},
    "weft_local_run": {"config": "return weft_local_run(1, p, api_rank, NULL);"},
    "weft_object_create": {
        "config": made("weft_object_create(&made, api.context, p)", "weft_object_destroy")},
    "weft_merge_cost_get": {
        "cost": "double us;\n\n    return weft_merge_cost_get(p, 1, &us);"},
    "weft_merge_cost_predict": {
        "params": "struct weft_merge_point points[WEFT_MERGE_POINTS];\n    size_t count;\n\n"
                  "    return weft_merge_cost_predict(p, 1, 1, points, &count);"},
    "weft_merge_method_format": {
        "config": "char text[WEFT_MERGE_METHOD_TEXT];\n\n"
                  "    return weft_merge_method_format(p, text, sizeof text);"},
    "weft_merge_plan_create": {
        "config": made("weft_merge_plan_create(&made, NULL, 0, &api.merge_cost, p)",
                       "weft_merge_plan_destroy"),
        "cost": made("weft_merge_plan_create(&made, NULL, 0, p, NULL)", "weft_merge_plan_destroy")},
    "weft_op_create": {"config": made("weft_op_create(&made, p)", "weft_op_destroy")},
    "weft_pair_average_create": average("weft_pair_average"),
    "weft_pca": {
        "config": "float mean[4], basis[4];\n    size_t components;\n    int status = "
                  "weft_pca(p, api.values, mean, basis, &components, NULL);\n\n"
                  "    return status == WEFT_ERR_UNSUPPORTED ? WEFT_OK : status;"},
    "weft_dequantise": {"quantiser": "return weft_dequantise(p, api.codes, 8, api.residual);"},
    "weft_dequantise_add": {"quantiser": "return weft_dequantise_add(p, api.codes, 8, api.residual);"},
    "weft_quantise": {"quantiser": "return weft_quantise(p, 1, api.values, 8, api.codes, NULL);"},
    "weft_quantised_bytes": {
        "quantiser": "return weft_quantised_bytes(p, 8) > 0 ? WEFT_OK : WEFT_ERR_INVALID;"},
    "weft_project": {
        "projection": "float out[4];\n\n    return weft_project(p, api.values, 8, NULL, 0, out, NULL);"},
    "weft_reconstruct": {
        "projection": "float values[8];\n\n    return weft_reconstruct(p, api.values, 8, NULL, values);"},
    "weft_result_rank": {"result": "return weft_result_rank(p, 0);"},
    "weft_result_slot": {
        "result": "return weft_result_slot(p, 0, 0) ? WEFT_OK : WEFT_ERR_INVALID;"},
    "weft_run_create": {
        "config": made("weft_run_create(&made, api.context, api.plan, p)", "weft_run_destroy")},
    "weft_schedule_add_joint": {"joint": "return api_add_joint(p, -1);"},
    "weft_schedule_add_part": {"config": "return api_add_part(p);"},
    "weft_schedule_nccl_allgather": {"joint": "return api_add_joint(p, 0);"},
    "weft_schedule_nccl_allreduce": {"joint": "return api_add_joint(p, 1);"},
    "weft_schedule_nccl_broadcast": {"joint": "return api_add_joint(p, 2);"},
    "weft_schedule_nccl_reduce": {"joint": "return api_add_joint(p, 3);"},
    "weft_schedule_nccl_reduce_scatter": {"joint": "return api_add_joint(p, 4);"},
    "weft_schedule_add_result": {"result": "return api_add_result(p);"},
    "weft_schedule_read_with": {"options": "return api_read(p, API_TEXT);"},
    "weft_schedule_write_goal": {"options": "return api_write_goal(p);"},
    "weft_series_create": {
        "config": made("weft_series_create(&made, api.context, p)", "weft_series_destroy")},
    "weft_simulate": {"config": made("weft_simulate(p, &made)", "weft_sim_result_destroy")},
    "weft_sparse_above": {
        "options": "return weft_sparse_above(p, api.values, 8, 1, api_pairs(), NULL);"},
    "weft_sparse_accumulate_above": {
        "options": "return weft_sparse_accumulate_above(p, api.residual, api.values, 8, 1, "
                   "api_pairs(), NULL);"},
    "weft_sparse_accumulate_top": {
        "options": "return weft_sparse_accumulate_top(p, api.residual, api.values, 8, 2, "
                   "api_pairs(), NULL);"},
    "weft_server_create": average("weft_server"),
    "weft_sparse_average_create": average("weft_sparse_average"),
    "weft_sparse_keep": {
        "options": "return weft_sparse_keep(p, &api.list, 0, 1, api_pairs(), NULL, NULL);"},
    "weft_sparse_kth": {
        "options": "double magnitude;\n\n    return weft_sparse_kth(p, &api.list, 1, &magnitude);"},
    "weft_sparse_merge": {
        "options": "return weft_sparse_merge(p, &api.list, &api.list, 2, api_pairs(), NULL, NULL);"},
    "weft_sparse_op_create": {"config": made("weft_sparse_op_create(&made, p)", "weft_op_destroy")},
    "weft_sparse_select_workspace": {
        "options": "return weft_sparse_select_workspace(p, WEFT_F32, 8, 2) ? WEFT_OK : "
                   "WEFT_ERR_INVALID;"},
    "weft_sparse_sum": {"options": "return weft_sparse_sum(p, &api.list, 1, api_pairs(), NULL);"},
    "weft_sparse_top": {
        "options": "return weft_sparse_top(p, api.values, 8, 2, api_pairs(), NULL);"},
    "weft_template_build": {
        "params": made('weft_template_build("allreduce", 0, 1, p, &made)', "weft_schedule_destroy")},
    "weft_template_choose": {
        "params": 'const char *algo;\n    double us;\n\n'
                  '    return weft_template_choose("allreduce", 1, p, &algo, &us);'},
    "weft_template_create_plan": {
        "params": made('weft_template_create_plan(&made, api.context, "allreduce", p)',
                       "weft_plan_destroy")},
    "weft_template_create_run": {
        "params": made('weft_template_create_run(&made, api.context, "allreduce", p)',
                       "weft_run_destroy")},
    "weft_trace_add": {"span": "return weft_trace_add(api.trace, p);"},
    "weft_virtual_run": {"config": "return weft_virtual_run(1, p, api_rank, NULL);"},
}

# Functions of weft/mpi.h, which this program does without, and where their rules are tested.
ELSEWHERE = {
    "weft_context_create_mpi": "tests/mpi/test_mpi_contexts.c",
    "weft_context_create_world": "tests/mpi/test_mpi_world.c",
    "weft_mpi_config_init_sized": "tests/mpi/test_mpi_contexts.c",
}

# What a configuration must have, in the order of its members.
NEEDED = {
    "weft_device_sum": {"terms": "api.terms", "term_count": "1"},
    "weft_op_config": {"name": '"api"', "reduce": "api_reduce"},
    "weft_pca_config": {"slice": "4", "samples": "2"},
    "weft_projection": {"slice": "4"},
    "weft_shared_config": {"name": '"api"'},
    "weft_series_config": {"plans": "&api.plan", "plan_count": "1", "arm": "api_arm"},
    "weft_sim_config": {"ranks": "1", "schedules": "api.schedules"},
    "weft_result": {"dst": "weft_region_at(0, 0, 1)", "from": '"data"', "ranks": "1"},
}

# Of that, what some functions need alone.
NEEDED_BY = {
    "weft_result_rank": {"ranks"},
    "weft_result_slot": {"from"},
}

# Errors about parameters of a template may name the template instead of the function.
SPEAKS_AS = {
    "weft_template_build": "allreduce",
    "weft_template_choose": "allreduce",
    "weft_template_create_plan": "allreduce",
    "weft_template_create_run": "allreduce",
}

# ---- values that a member must not have ----

ANY = []  # a plain number, of which every value is as good
FLAG = ["-1", "2", "77"]
COUNT = ["-1", "INT32_MIN"]
FLAGS = ["1u << 30"]
REAL = ["-1", "NAN", "INFINITY"]
FINITE = ["NAN", "INFINITY"]
SHARE = REAL + ["1.5"]
UNLISTED = "a list that is NULL"  # as many entries of it
DUE = ["WEFT_NS_NONE"]  # may be WEFT_NEVER
LENGTH = ["WEFT_NS_NONE", "WEFT_NEVER"]
IDLE = ANY  # may be both

# {struct: {member: values}}: of every number. Enums need no entry.
MEMBERS = {
    "weft_check_config": {"faults": ANY, "executions": ANY, "seed": ANY, "local_only": FLAG,
                          "in_order": FLAG},
    "weft_collectives_config": {"plans": ANY, "bytes": ANY, "deadline_ns": DUE},
    "weft_device_sum": {"term_count": ["0", "9"], "factor": FINITE, "divisor": FINITE, "adds": FLAG},
    "weft_gradiveq_config": {
        "loss": ["-0.5", "1", "1.5", "NAN"], "slice_factor": ANY, "slice": ["1"],
        "memory_bytes": ANY, "reuse": ANY, "warmup_steps": ANY, "sample_steps": ["1"],
        "sample_bits": ["1", "3", "16", "-4"], "compressed_steps": ANY, "loss_bound": REAL, "dense_layers": FLAG},
    "weft_powersgd_config": {
        "rank": ANY, "warmup_steps": ANY, "cold_start": FLAG, "seed": ANY, "least_ratio": REAL},
    "weft_compressed_average_config": {
        "tensor_count": UNLISTED, "sum": FLAG, "deadline_ns": DUE, "meet_ns": DUE, "leave_ns": DUE},
    "weft_compressed_average_state": {
        "next": ANY, "word_count": UNLISTED, "number_count": UNLISTED, "failed": ANY, "vote": FLAG,
        "stats": ANY},
    "weft_context_config": {
        "spin_ns": IDLE, "yield_ns": IDLE, "sleep_min_ns": ["WEFT_NEVER"], "sleep_max_ns": ["WEFT_NEVER"],
        "helper_yield_ns": IDLE, "slice_bytes": ANY, "stall_ns": DUE,
        "segment_bytes": ["((size_t)1 << 30) + 1", "SIZE_MAX"]},
    "weft_cost_model": {
        "alpha_us": REAL, "beta_us_per_byte": REAL, "gamma_us_per_byte": REAL, "copy_us_per_byte": REAL,
        "node_us": REAL, "segment_bytes": ANY, "eager_bytes": ANY, "rendezvous_us": REAL, "eager_us_per_byte": REAL,
        "exchange_us_per_byte": REAL, "cores": ANY, "switch_us": REAL},
    "weft_fabric": { # what is wired how is looked at where it is of some kind: tests/unit/sim/test_fabric.c
        "levels": ANY, "extents": ANY, "oversubscription": COUNT, "ranks_per_host": COUNT, "hop_us": REAL,
        "link_us_per_byte": REAL, "seed": ANY, "flags": FLAGS},
    "weft_goal_options": {
        "activator_count": UNLISTED, "reduce_us_per_byte": REAL, "copy_us_per_byte": REAL,
        "compute_us_per_byte": REAL, "op_cost_count": UNLISTED},
    "weft_gossip_config": {"tensor_count": UNLISTED, "neighbours": COUNT, "weight": REAL, "deadline_ns": DUE, "meet_ns": DUE, "leave_ns": DUE},
    "weft_gradients_config": {
        "tensor_count": UNLISTED, "layer_count": UNLISTED, "measure_steps": ["1001"],
        "check_steps": DUE, "gain": SHARE, "deadline_ns": DUE, "meet_ns": DUE, "leave_ns": DUE},
    "weft_gossip_state": {"next": ["UINT64_MAX", "UINT64_C(1) << 62"], "stats": ANY},
    "weft_gradients_state": {
        "next": ANY, "agreed_count": UNLISTED, "region_count": UNLISTED, "word_count": UNLISTED,
        "number_count": UNLISTED, "failed": ANY, "stats": ANY},
    "weft_group_average_config": {
        "tensor_count": UNLISTED, "group_size": COUNT + ["2"], "sync_period": DUE,
        "patience_ns": ["WEFT_NEVER"], "seed": ANY, "deadline_ns": DUE, "meet_ns": DUE, "leave_ns": DUE},
    "weft_group_average_state": {"next": ["UINT64_MAX", "UINT64_C(1) << 63"], "pending_count": UNLISTED,
                                 "failed_count": UNLISTED, "failed_version": ANY, "sum_count": UNLISTED,
                                 "sum_members": ANY, "past": ANY, "stats": ANY},
    "weft_joint": {"root": ANY, "rank_count": UNLISTED, "tag": ANY},
    "weft_local_config": {
        "eager_bytes": ["SIZE_MAX - 1", "SIZE_MAX - 63", "SIZE_MAX / 2"],
        "eager_messages": ["SIZE_MAX", "SIZE_MAX / 2"]},
    "weft_merge_config": {
        "bucket_bytes": ANY, "first_bucket_bytes": ANY, "cycle_us": REAL, "group_count": UNLISTED},
    "weft_merge_cost": {"a_us": REAL, "b_us_per_byte": REAL, "point_count": UNLISTED},
    "weft_net": {
        "L": REAL + ["1e13"], "o": REAL, "g": REAL, "G": REAL + ["1e10"], "O": REAL, "S": ANY,
        "flags": FLAGS},
    "weft_object_config": {"leave_ns": DUE, "silent": FLAG},
    "weft_op_config": {"flags": FLAGS},
    "weft_part_config": {"slot_count": UNLISTED, "tag": ANY, "tag_count": ANY, "channel": ANY},
    "weft_pair_average_config": {"tensor_count": UNLISTED, "seed": ANY, "deadline_ns": DUE, "meet_ns": DUE, "leave_ns": DUE},
    "weft_pair_average_state": {"next": ["UINT64_MAX", "UINT64_C(1) << 62"], "stats": ANY},
    "weft_compress_op_config": {"slice": ANY},
    "weft_quantiser": {"bits": ["-1", "3", "16"], "bucket": ["4", "SIZE_MAX", "SIZE_MAX - 7"], "seed": ANY},
    "weft_pca_config": {"slice": ["0"], "samples": ["0", "SIZE_MAX"], "loss": ["-0.5", "1.5", "NAN"], "most": ANY},
    "weft_projection": {"slice": ["0"], "components": ["5", "SIZE_MAX"]},
    "weft_read_options": {
        "size": COUNT, "op_count": UNLISTED, "most_repeated": ANY, "most_memory": ANY,
        "parameter_count": UNLISTED},
    "weft_result": {"dst": ANY, "offset": ["SIZE_MAX"], "first": COUNT + ["77"], "ranks": COUNT + ["77"],
                    "lossy": FLAG},
    "weft_run_config": {"local_only": FLAG, "sequence": FLAG, "unordered": FLAG, "deadline_ns": DUE},
    "weft_series_config": {"plan_count": ["0"], "first": ANY},
    "weft_server_config": {
        "tensor_count": UNLISTED, "layer_count": UNLISTED, "servers": COUNT + ["77"], "split_bytes": ANY, "merge_bytes": ANY,
        "staleness": ["UINT64_MAX", "UINT64_C(1) << 62"], "staleness_most": ["UINT64_MAX", "UINT64_C(1) << 62"],
        "weight": REAL, "rate": REAL, "momentum": SHARE + ["1"], "turns": COUNT,
        "segment_bytes": ["1", "7"], "window": COUNT, "osp_most": SHARE, "osp_share": ["-0.5", "NAN", "1.5"],
        "osp_goodput": REAL, "osp_compute_ns": LENGTH, "osp_average": SHARE + ["1"], "deadline_ns": DUE,
        "meet_ns": DUE, "leave_ns": DUE},
    "weft_server_state": {
        "rank": ANY, "next": ["UINT64_MAX", "UINT64_C(1) << 62"], "element_count": ["77"], "clock_count": ["77"],
        "version": ANY, "pulled_version": ANY, "first_loss": ANY, "loss": ANY, "stats": ANY, "agreed": ANY},
    "weft_shared_config": {
        "meet_ns": DUE, "eager_bytes": ["SIZE_MAX - 1", "SIZE_MAX / 2"], "ahead_bytes": ["SIZE_MAX"],
        "arena_bytes": ["SIZE_MAX", "SIZE_MAX / 2"]},
    "weft_sim_config": {
        "ranks": COUNT + ["0"], "reduce_us_per_byte": REAL, "copy_us_per_byte": REAL,
        "compute_us_per_byte": REAL, "activator_count": UNLISTED, "firing_count": UNLISTED, "op_cost_count": UNLISTED, "threads": COUNT, "flags": FLAGS, "links": COUNT},
    "weft_sparse_average_config": {
        "tensor_count": UNLISTED, "density": SHARE, "k": ANY, "warmup_steps": ANY,
        "warmup_count": UNLISTED, "threshold_steps": ANY, "balance_steps": ANY, "momentum": SHARE,
        "clip_norm": REAL, "threads": COUNT, "deadline_ns": DUE, "meet_ns": DUE, "leave_ns": DUE},
    "weft_sparse_average_state": {"next": ANY, "region_count": UNLISTED, "failed": ANY, "stats": ANY},
    "weft_sparse_options": {"threads": COUNT, "hint": ["-1", "NAN"], "workspace_bytes": ANY},
    "weft_template_params": {
        "count": ["SIZE_MAX"], "root": ANY, "in_place": FLAG, "segment": ANY, "group_size": COUNT,
        "counts_agreed": FLAG, "layer_count": ANY, "group_count": ANY,
        "block_count": ANY, "slice": ANY, "components": ANY, "sent": FLAG,
        "version": ANY, "k": ANY, "servers": COUNT, "colocated": FLAG, "window": ANY,
        "aggregate": ANY, "radix": ["1", "17", "-1"]},
    "weft_trace_config": {"records": ["SIZE_MAX", "SIZE_MAX / 2"]},
    "weft_trace_span": {
        "rank": COUNT + ["INT32_MAX"], "kind": ["-2", "77"], "helper": FLAG, "node": ["-2"], "object": ANY,
        "version": ANY, "peer": ["-2"], "tag": ANY, "bytes": ANY, "start_ns": ANY, "end_ns": ANY,
        "arrived_ns": ANY, "status": ANY},
    "weft_virtual_config": {
        "seed": ANY, "shuffle": FLAG, "delay_ns": LENGTH, "heavy_share": SHARE, "heavy_ns": LENGTH,
        "duplicate_share": SHARE, "pauses_per_second": REAL, "pause_ns": LENGTH, "fault_count": UNLISTED,
        "deaths": FLAG, "death_ns": LENGTH,
        "byte_scale": REAL, "reduce_ns_per_byte": REAL, "copy_ns_per_byte": REAL, "node_ns": REAL,
        "no_payload": FLAG, "ranks_per_host": COUNT, "stack_bytes": ["SIZE_MAX"], "limit_ns": DUE},
}

# Members that some functions have no use for: not looked at there.
NOT_LOOKED_AT = {
    "weft_merge_cost_predict": {"count"},
    "weft_result_rank": {"kind", "offset", "first", "ranks", "lossy"},
    "weft_result_slot": {"kind", "offset", "first", "ranks", "lossy"},
    "weft_schedule_nccl_allgather": {"kind", "op", "root"},
    "weft_schedule_nccl_allreduce": {"kind", "op", "root"},
    "weft_schedule_nccl_broadcast": {"kind", "op", "root"},
    "weft_schedule_nccl_reduce": {"kind", "op", "root"},
    "weft_schedule_nccl_reduce_scatter": {"kind", "op", "root"},
}

# ---- functions that fill a struct: {function: {parameter: body}} ----


def of_average(name, call):
    return (f"struct {name} *average = api_{name}();\n    int status = {call};\n\n"
            f"    cr_expect_eq({name}_destroy(average), WEFT_OK);\n    return status;")


FILLED = {
    "weft_check_report_get_fault": {"fault": "return weft_check_report_get_fault(api.report, 0, p);"},
    "weft_check_report_get_summary": {"summary": "return weft_check_report_get_summary(api.report, p);"},
    "weft_collectives_get_stats": {
        "stats": "return weft_collectives_get_stats(api.context, p);"},
    "weft_compressed_average_get_state": {
        "state": of_average("weft_compressed_average",
                            "weft_compressed_average_get_state(average, p)")},
    "weft_compressed_average_get_stats": {
        "stats": of_average("weft_compressed_average",
                            "weft_compressed_average_get_stats(average, p)")},
    "weft_compressed_average_get_tensor": {
        "info": of_average("weft_compressed_average",
                           "weft_compressed_average_get_tensor(average, 0, p)")},
    "weft_compressed_average_step": {
        "result": of_average("weft_compressed_average",
                             "weft_compressed_average_step(average, p)")},
    "weft_compressed_average_wait": {
        "result": of_average("weft_compressed_average",
                             "weft_compressed_average_post(average);\n\n"
                             "    if (!status)\n        status = weft_compressed_average_wait(average, p)")},
    "weft_context_get_cost": {"model": "return weft_context_get_cost(api.context, p);"},
    "weft_context_get_config": {"config": "return weft_context_get_config(api.context, p);"},
    "weft_context_get_stats": {"stats": "return weft_context_get_stats(api.context, p);"},
    "weft_cost_model_read": {
        "model": 'return weft_cost_model_read(api.path, "local", p, NULL);',
        "net": 'struct weft_cost_model model = api.cost;\n\n'
               '    return weft_cost_model_read(api.path, "local", &model, p);'},
    "weft_fabric_parse": {
        "fabric": 'struct weft_net net = api.net;\n\n'
                  '    return weft_fabric_parse("torus=4", p, &net);',
        "net": 'struct weft_fabric fabric = {.struct_size = sizeof fabric};\n\n'
               '    return weft_fabric_parse("L=1", &fabric, p);'},
    "weft_gossip_get_stats": {
        "stats": of_average("weft_gossip", "weft_gossip_get_stats(average, p)")},
    "weft_gradients_get_plan": {"plan": of_average("weft_gradients", "weft_gradients_get_plan(average, p)")},
    "weft_gradients_get_result": {
        "result": of_average("weft_gradients", "weft_gradients_get_result(average, p)")},
    "weft_gradients_get_tensor": {
        "info": of_average("weft_gradients", "weft_gradients_get_tensor(average, 0, p)")},
    "weft_gossip_get_state": {"state": of_average("weft_gossip", "weft_gossip_get_state(average, p)")},
    "weft_pair_average_get_state": {
        "state": of_average("weft_pair_average", "weft_pair_average_get_state(average, p)")},
    "weft_gradients_get_state": {"state": of_average("weft_gradients", "weft_gradients_get_state(average, p)")},
    "weft_gradients_get_stats": {"stats": of_average("weft_gradients", "weft_gradients_get_stats(average, p)")},
    "weft_gradients_wait_all": {
        "result": of_average("weft_gradients",
                             "weft_gradients_ready(average, 0);\n\n"
                             "    if (!status)\n        status = weft_gradients_wait_all(average, p)")},
    "weft_group_average_get_state": {
        "state": of_average("weft_group_average", "weft_group_average_get_state(average, p)")},
    "weft_group_average_get_stats": {
        "stats": of_average("weft_group_average", "weft_group_average_get_stats(average, p)")},
    "weft_group_average_step": {
        "result": of_average("weft_group_average", "weft_group_average_step(average, p)")},
    "weft_group_average_take_state": {
        "state": of_average("weft_group_average", "weft_group_average_take_state(average, p)")},
    "weft_group_average_test": {
        "result": of_average("weft_group_average",
                             "weft_group_average_post(average);\n\n"
                             "    while (!status && (status = weft_group_average_test(average, p)) == WEFT_IN_PROGRESS)\n"
                             "        status = WEFT_OK")},
    "weft_group_average_wait": {
        "result": of_average("weft_group_average",
                             "weft_group_average_post(average);\n\n"
                             "    if (!status)\n        status = weft_group_average_wait(average, p)")},
    "weft_server_get_result": {"result": of_average("weft_server", "weft_server_get_result(average, p)")},
    "weft_server_get_state": {"state": of_average("weft_server", "weft_server_get_state(average, p)")},
    "weft_server_get_stats": {"stats": of_average("weft_server", "weft_server_get_stats(average, p)")},
    "weft_server_get_tuning": {"tuning": of_average("weft_server", "weft_server_get_tuning(average, p)")},
    "weft_server_pull": {"result": of_average("weft_server", "weft_server_pull(average, p)")},
    "weft_server_step": {"result": of_average("weft_server", "weft_server_step(average, p)")},
    "weft_merge_method_parse": {"config": 'return weft_merge_method_parse("bucket", p);'},
    "weft_merge_plan_get_group": {"result": "return weft_merge_plan_get_group(api.merge, 0, p);"},
    "weft_merge_plan_get_summary": {
        "summary": "return weft_merge_plan_get_summary(api.merge, p);"},
    "weft_net_parse": {"net": 'return weft_net_parse("L=1", p);'},
    "weft_pair_average_get_stats": {
        "stats": of_average("weft_pair_average", "weft_pair_average_get_stats(average, p)")},
    "weft_plan_get_slot": {"info": "return weft_plan_get_slot(api.plan, 0, p);"},
    "weft_schedule_get_node": {"info": "return weft_schedule_get_node(api.schedule, 0, p);"},
    "weft_schedule_get_result": {"result": "return weft_schedule_get_result(api.schedule, 0, p);"},
    "weft_schedule_get_slot": {"info": "return weft_schedule_get_slot(api.schedule, 0, p);"},
    "weft_schedule_get_value": {"info": "return weft_schedule_get_value(api.schedule, 1, p);"},
    "weft_sparse_above": {
        "report": "return weft_sparse_above(NULL, api.values, 8, 1, api_pairs(), p);"},
    "weft_sparse_accumulate_above": {
        "report": "return weft_sparse_accumulate_above(NULL, api.residual, api.values, 8, 1, "
                  "api_pairs(), p);"},
    "weft_sparse_accumulate_top": {
        "report": "return weft_sparse_accumulate_top(NULL, api.residual, api.values, 8, 2, "
                  "api_pairs(), p);"},
    "weft_sparse_average_get_state": {
        "state": of_average("weft_sparse_average", "weft_sparse_average_get_state(average, p)")},
    "weft_sparse_average_get_stats": {
        "stats": of_average("weft_sparse_average", "weft_sparse_average_get_stats(average, p)")},
    "weft_sparse_average_step": {
        "result": of_average("weft_sparse_average", "weft_sparse_average_step(average, p)")},
    "weft_sparse_average_wait": {
        "result": of_average("weft_sparse_average",
                             "weft_sparse_average_post(average);\n\n"
                             "    if (!status)\n        status = weft_sparse_average_wait(average, p)")},
    "weft_sparse_average_wait_tensor": {
        "result": of_average("weft_sparse_average",
                             "weft_sparse_average_post_tensor(average, 0);\n\n    if (!status)\n"
                             "        status = weft_sparse_average_wait_tensor(average, 0, p)")},
    "weft_sparse_keep": {
        "report": "return weft_sparse_keep(NULL, &api.list, 0, 1, api_pairs(), NULL, p);"},
    "weft_sparse_merge": {
        "report": "return weft_sparse_merge(NULL, &api.list, &api.list, 2, api_pairs(), NULL, p);"},
    "weft_sparse_sum": {"report": "return weft_sparse_sum(NULL, &api.list, 1, api_pairs(), p);"},
    "weft_sparse_top": {"report": "return weft_sparse_top(NULL, api.values, 8, 2, api_pairs(), p);"},
    "weft_topology_get": {"topology": "return weft_topology_get(p);"},
    "weft_trace_get_span": {"span": "return weft_trace_get_span(api.trace, 0, p);"},
    "weft_trace_get_rank": {"rank": "return weft_trace_get_rank(api.trace, 0, p);"},
    # Members of configurations that point to what is filled.
    "weft_schedule_read_with/refusal": {
        "options": "struct weft_read_options options = {.struct_size = sizeof options, .refusal = p};\n"
                   "    int status = api_read(&options, API_REFUSED_TEXT);\n\n"
                   "    return status == WEFT_ERR_FORMAT ? WEFT_OK : status;"},
    "weft_virtual_run/result": {
        "config": "struct weft_virtual_config config = {.struct_size = sizeof config, .result = p};\n\n"
                  "    return weft_virtual_run(1, &config, api_rank, NULL);"},
}

# Of these, what stands in the struct before the call is read as well.
READ_TOO = {"weft_fabric_parse", "weft_net_parse", "weft_cost_model_read"}

# ---- functions that take a time: {function: body with `ns`}. None takes WEFT_NS_NONE. ----


def of_run(call):
    return ("struct weft_run *run = NULL;\n    int status = weft_run_create(&run, api.context, api.plan, NULL);\n\n"
            f"    if (!status)\n        status = {call};\n    weft_run_destroy(run);\n    return status;")


TIMES = {
    "weft_context_sleep": "return weft_context_sleep(api.context, ns);",
    "weft_context_wait": "return weft_context_wait(api.context, api_done, NULL, ns);",
    "weft_group_average_report": of_average(
        "weft_group_average", "api_report(average, ns)"),
    "weft_request_wait": (
        "struct weft_request *request = NULL;\n    int status = weft_ibarrier(api.context, &request);\n\n"
        "    if (!status)\n        status = weft_request_wait(request, ns);\n"
        "    weft_request_destroy(request);\n    return status;"),
    "weft_run_set_deadline": of_run("weft_run_set_deadline(run, ns)"),
    "weft_run_wait_node": of_run("weft_run_wait_node(run, 0, ns)"),
    "weft_run_wait": of_run("weft_run_wait(run, ns)"),
    "weft_server_serve": of_average("weft_server", "weft_server_serve(average, ns)"),
    "weft_series_wait": (
        "struct weft_series *series = NULL;\n    int status = api_make_series(&series);\n\n"
        "    if (!status)\n        status = weft_series_wait(series, 0, ns);\n"
        "    weft_series_destroy(series);\n    return status;"),
}

# Further arguments of an _init_sized.
MORE = {"weft_cost_model": ', "local"'}

# ---- ends of lives: {function: (how one is made, what else it ends)} ----
#
# `made` receives the object. What else: functions of ends.h that bring one into a state between
# its creation and its end, half-built or half-used, and end it.

ENDS = {
    "weft_check_report_destroy": ("weft_check(api.schedules, 1, NULL, made)", []),
    "weft_context_destroy": ("api_make_context(made)",
                             ["end_context_before_its_peers", "end_context_with_a_run_under_way"]),
    # NULL where there is no device; tests/gpu/test_context_memory.c has one.
    "weft_context_device_free": ("api_allocate_on_device(made)", [], "api.context"),
    "weft_context_memory_free": ("api_allocate_in_context(made)", [], "api.context"),
    "weft_gossip_destroy": ("weft_gossip_create(made, api.context, api_default_weft_gossip_config())",
                            ["end_gossip_that_is_posted"]),
    "weft_gradients_destroy": (
        "weft_gradients_create(made, api.context, api_default_weft_gradients_config())",
        ["end_gradients_that_are_announced"]),
    "weft_group_average_destroy": (
        "weft_group_average_create(made, api.context, api_default_weft_group_average_config())",
        ["end_group_average_that_is_posted"]),
    "weft_groups_destroy": ("weft_groups_create(made, 7, 2)", []),
    "weft_launch_destroy": ("weft_launch_create(made, 2)", ["end_launch_of_which_one_has_ended"]),
    "weft_local_destroy": ("weft_local_create(made, 3, NULL)", ["end_local_of_which_one_rank_was"]),
    "weft_memory_free": ("api_allocate(made)", ["end_texts"]),
    "weft_merge_plan_destroy": ("weft_merge_plan_create(made, NULL, 0, &api.merge_cost, NULL)", []),
    "weft_object_destroy": ("weft_object_create(made, api.context, NULL)",
                            ["end_object_that_has_failed"]),
    "weft_op_destroy": ("api_make_op(made)", ["end_op_that_a_schedule_holds"]),
    "weft_pair_average_destroy": (
        "weft_pair_average_create(made, api.context, api_default_weft_pair_average_config())",
        ["end_pair_average_that_is_posted"]),
    "weft_plan_destroy": ("weft_schedule_commit(api.schedule, made)", ["end_plan_that_a_run_holds"]),
    "weft_request_destroy": ("weft_ibarrier(api.context, made)",
                             ["end_request_that_is_under_way", "end_request_whose_context_has_gone"]),
    "weft_run_destroy": ("weft_run_create(made, api.context, api.plan, NULL)",
                         ["end_run_that_is_half_bound", "end_run_that_is_under_way"]),
    "weft_schedule_destroy": ("weft_schedule_create(made, 0, 1)",
                              ["end_schedule_that_has_an_error"]),
    "weft_series_destroy": ("api_make_series(made)", ["end_series_that_is_started"]),
    "weft_sim_result_destroy": ("api_simulate(made)", ["end_sim_result_that_is_incomplete"]),
    "weft_compressed_average_destroy": (
        "weft_compressed_average_create(made, api.context, api_default_weft_compressed_average_config())",
        ["end_compressed_average_that_is_posted"]),
    "weft_sparse_average_destroy": (
        "weft_sparse_average_create(made, api.context, api_default_weft_sparse_average_config())",
        ["end_sparse_average_that_is_posted"]),
    "weft_server_destroy": (
        "weft_server_create(made, api.context, api_default_weft_server_config())",
        ["end_server_in_a_step"]),
    "weft_trace_destroy": ("weft_trace_create(made)", ["end_trace_of_half_a_file"]),
    "weft_tracker_destroy": ("weft_tracker_create(made, api.open)",
                             ["end_tracker_whose_schedule_has_an_error"]),
}

# Collective over the ranks: they return a status.
COLLECTIVE = {
    "weft_compressed_average_destroy", "weft_context_destroy", "weft_gossip_destroy", "weft_gradients_destroy",
    "weft_group_average_destroy", "weft_pair_average_destroy", "weft_server_destroy", "weft_sparse_average_destroy",
}
