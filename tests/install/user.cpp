/* SPDX-License-Identifier: BSD-3-Clause */
/* A user's program in C++: a template on local ranks, and an operation of its own. */
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
#include <weft/weft.h>

namespace
{

void check(int status)
{
    if (status != WEFT_OK)
        throw std::runtime_error(std::string(weft_status_text(status)) + ": " + weft_error_text());
}

struct Destroy {
    void operator()(weft_run *run) const
    {
        weft_run_destroy(run);
    }
    void operator()(const weft_op *op) const
    {
        weft_op_destroy(op);
    }
};

int largest(void *, void *dst, const void *a, const void *b, std::size_t count, weft_dtype_t)
{
    const std::int64_t *left = static_cast<const std::int64_t *>(a);
    const std::int64_t *right = static_cast<const std::int64_t *>(b);
    for (std::size_t i = 0; i < count; i++)
        static_cast<std::int64_t *>(dst)[i] = left[i] > right[i] ? left[i] : right[i];
    return WEFT_OK;
}

void reduce(weft_context *context)
{
    weft_op_config config;
    weft_op_config_init(&config);
    config.name = "largest";
    config.flags = WEFT_OP_COMMUTES;
    config.reduce = largest;
    weft_op *made = nullptr;
    check(weft_op_create(&made, &config));
    std::unique_ptr<const weft_op, Destroy> op(made);

    weft_template_params params;
    weft_template_params_init(&params);
    params.count = 5;
    params.dtype = WEFT_I64;
    params.op = op.get();
    weft_run *created = nullptr;
    check(weft_template_create_run(&created, context, "allreduce", &params));
    std::unique_ptr<weft_run, Destroy> run(created);

    std::vector<std::int64_t> mine(5, weft_context_rank(context));
    std::vector<std::int64_t> most(5, -1);
    check(weft_run_bind_input_name(run.get(), "send", mine.data(), mine.size(), WEFT_I64));
    check(weft_run_bind_name(run.get(), "recv", most.data(), most.size(), WEFT_I64));
    check(weft_run_execute(run.get()));
    for (std::int64_t found : most)
        if (found != weft_context_size(context) - 1)
            throw std::runtime_error("the largest is " + std::to_string(found));
}

int rank(weft_context *context, void *)
{
    try {
        reduce(context);
        return WEFT_OK;
    } catch (const std::exception &error) {
        return weft_error_set_text(WEFT_ERR_STATE, error.what());
    }
}

} // namespace

int main()
{
    int status = weft_local_run(3, nullptr, rank, nullptr);

    if (status != WEFT_OK) {
        std::fprintf(stderr, "%s: %s\n", weft_status_text(status), weft_error_text());
        return 1;
    }
    std::printf("weft %s\n", weft_version());
    return 0;
}
