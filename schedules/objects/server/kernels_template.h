/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All loops of one datatype and one SIMD level, which the compiler turns into vectors. Included
 * once for each, with T (the type), LEVEL (an attribute, or nothing), and NAME(word). No level has
 * fused multiply-add.
 *
 * In each loop an element is loaded from all arrays before it is stored: arrays may be the same.
 */
#if defined(__clang__)
#    define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#    define INDEPENDENT _Pragma("GCC ivdep")
#else
#    define INDEPENDENT
#endif

LEVEL static void NAME(scale)(void *to_, const void *from_, double weight, size_t count)
{
    T *to = to_;
    const T *from = from_, w = (T)weight;
    INDEPENDENT
    for (size_t i = 0; i < count; i++)
        to[i] = w * from[i];
}

LEVEL static void NAME(divide)(void *to_, const void *from_, size_t divisor, size_t count)
{
    T *to = to_;
    const T *from = from_, by = (T)divisor;
    INDEPENDENT
    for (size_t i = 0; i < count; i++)
        to[i] = from[i] / by;
}

/* Adds up some rooms in one pass, in their order. */
#define SUM(name, ...)                                                                             \
    LEVEL static void NAME(name)(void *to_, const void *sum_, const void *const *rooms,            \
                                 const double *weights, size_t count)                              \
    {                                                                                              \
        T *to = to_;                                                                               \
        const T *sum = sum_, *a = rooms[0], *b = rooms[1], *c = rooms[2], *d = rooms[3];           \
        const T p = (T)weights[0], q = (T)weights[1], r = (T)weights[2], s = (T)weights[3];        \
        (void)sum, (void)b, (void)c, (void)d, (void)q, (void)r, (void)s;                           \
        INDEPENDENT                                                                                \
        for (size_t i = 0; i < count; i++)                                                         \
            to[i] = __VA_ARGS__;                                                                   \
    }

SUM(sum_1, a[i] * p)
SUM(sum_2, a[i] * p + b[i] * q)
SUM(sum_3, a[i] * p + b[i] * q + c[i] * r)
SUM(sum_4, a[i] * p + b[i] * q + c[i] * r + d[i] * s)
SUM(add_1, sum[i] + a[i] * p)
SUM(add_2, sum[i] + a[i] * p + b[i] * q)
SUM(add_3, sum[i] + a[i] * p + b[i] * q + c[i] * r)
SUM(add_4, sum[i] + a[i] * p + b[i] * q + c[i] * r + d[i] * s)
#undef SUM

LEVEL static void NAME(descend)(void *x_, const void *gradient_, double rate, size_t count)
{
    T *x = x_;
    const T *gradient = gradient_, r = (T)rate;
    INDEPENDENT
    for (size_t i = 0; i < count; i++)
        x[i] -= r * gradient[i];
}

LEVEL static void NAME(descend_velocity)(void *x_, void *v_, const void *gradient_, double rate,
                                         double momentum, size_t count)
{
    T *x = x_, *v = v_;
    const T *gradient = gradient_, r = (T)rate, m = (T)momentum;
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const T now = m * v[i] + gradient[i];
        v[i] = now;
        x[i] -= r * now;
    }
}

/* ---- single pushes: what it is now, to be stored or answered as well ---- */

#define PUSH(name, ...)                                                                            \
    LEVEL static void NAME(name)(const struct weft__server_update *update, void *x_, void *v_,     \
                                 void *room_, size_t count, int answers)                           \
    {                                                                                              \
        T *x = x_, *v = v_, *room = room_;                                                         \
        const T share = (T)update->share, rate = (T)update->rate, m = (T)update->momentum;         \
        (void)v, (void)rate, (void)m;                                                              \
        if (answers)                                                                               \
            INDEPENDENT                                                                            \
        for (size_t i = 0; i < count; i++) {                                                       \
            __VA_ARGS__                                                                            \
            room[i] = x[i] = now;                                                                  \
        }                                                                                          \
        else INDEPENDENT for (size_t i = 0; i < count; i++)                                        \
        {                                                                                          \
            __VA_ARGS__                                                                            \
            x[i] = now;                                                                            \
        }                                                                                          \
    }

PUSH(push, const T now = x[i] - rate * (share * room[i]);)
PUSH(push_velocity, const T speed = m * v[i] + share * room[i]; v[i] = speed;
     const T now = x[i] - rate * speed;)
PUSH(mix, const T now = x[i] + share * (room[i] - x[i]);)
#undef PUSH

/* ---- importance ---- */

LEVEL static double NAME(weigh)(const void *gradient_, const void *x_, size_t count)
{
    const T *gradient = gradient_, *x = x_;
    double sums[LANES] = {0};
    size_t whole = count - count % LANES;
    for (size_t i = 0; i < whole; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            sums[j] += fabs((double)gradient[i + j] * (double)x[i + j]);
    for (size_t i = whole; i < count; i++)
        sums[i - whole] += fabs((double)gradient[i] * (double)x[i]);
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
           ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/* ---- workers ---- */

LEVEL static void NAME(change)(void *base_, const void *fresh_, void *last_, void *average_,
                               double beta, size_t count)
{
    T *base = base_, *last = last_, *average = average_;
    const T *fresh = fresh_, b = (T)beta, rest = (T)(1 - beta);
    if (!average) {
        INDEPENDENT
        for (size_t i = 0; i < count; i++) {
            last[i] = fresh[i] - base[i];
            base[i] = fresh[i];
        }
        return;
    }
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const T change = fresh[i] - base[i];
        last[i] = change;
        average[i] = b * average[i] + rest * change;
        base[i] = fresh[i];
    }
}

LEVEL static void NAME(own_update)(double rate, double momentum, void *v_, const void *gradient_,
                                   void *update_, size_t count)
{
    T *v = v_, *update = update_;
    const T *gradient = gradient_, r = (T)rate, m = (T)momentum;
    if (!v) {
        INDEPENDENT
        for (size_t i = 0; i < count; i++)
            update[i] = -(r * gradient[i]);
        return;
    }
    INDEPENDENT
    for (size_t i = 0; i < count; i++) {
        const T now = m * v[i] + gradient[i];
        v[i] = now;
        update[i] = -(r * now);
    }
}

#define PREDICT(name, expression)                                                                  \
    LEVEL static void NAME(name)(const struct prediction *p, size_t count)                         \
    {                                                                                              \
        T *to = p->to;                                                                             \
        const T *base = p->base, *gradient = p->gradient, *last = p->last, *average = p->average;  \
        const T rate = (T)p->rate, m = (T)p->momentum, beta = (T)p->beta, rest = (T)(1 - p->beta); \
        (void)last, (void)average, (void)m, (void)beta, (void)rest;                                \
        INDEPENDENT                                                                                \
        for (size_t i = 0; i < count; i++)                                                         \
            to[i] = base[i] + (expression);                                                        \
    }

PREDICT(predict, -(rate *gradient[i]))
PREDICT(predict_last, m *last[i] - rate * gradient[i])
PREDICT(predict_average, beta *average[i] + rest * -(rate * gradient[i]))
PREDICT(predict_both, beta *average[i] + rest * (m * last[i] - rate * gradient[i]))
#undef PREDICT

static const struct loops NAME(table) = {
    .size = sizeof(T),
    .scale = NAME(scale),
    .divide = NAME(divide),
    .sum = {NAME(sum_1), NAME(sum_2), NAME(sum_3), NAME(sum_4)},
    .add = {NAME(add_1), NAME(add_2), NAME(add_3), NAME(add_4)},
    .descend = NAME(descend),
    .descend_velocity = NAME(descend_velocity),
    .push = NAME(push),
    .push_velocity = NAME(push_velocity),
    .mix = NAME(mix),
    .weigh = NAME(weigh),
    .own_update = NAME(own_update),
    .change = NAME(change),
    .predict = {NAME(predict), NAME(predict_last), NAME(predict_average), NAME(predict_both)},
};
#undef INDEPENDENT
