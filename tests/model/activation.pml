/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Activation with versions (docs/model.md says what is modelled and what is not).
 *
 * Set by run.sh:
 *   P       ranks, 2 .. 8              V       versions, 1 .. 3
 *   S       group size                 APPS    bit r: the application of rank r takes part
 *   PRUNE   1: an activation that came by edge i is passed on through edges above i only;
 *           0: through all edges but i
 *   RING    1: (wrong) the edges are r -> r + 2^i mod P instead of r <-> r XOR 2^i
 *   FORGET  1: (wrong) a rank starts one version for an activation, instead of all up to it
 *   TWICE   1: activations may be delivered more than once
 *   SYNC    the version that is a global sync, or 255
 *   COUNT   1: count activations, for one activator
 *
 * Everything that a rank does is one step of it; what is in flight is a set, so that activations
 * arrive in any order, and a cumulative channel may swallow one that a later version overtakes.
 */
#if P > 4
#    define EDGES 3
#elif P > 2
#    define EDGES 2
#else
#    define EDGES 1
#endif

#define BIT(r) (1 << (r))

/* The version that a rank starts next, and one more than the last that it has been asked for. */
byte next[P];
byte goal[P];
/* How many versions the application of a rank has reached. */
byte arrived[P];
/* flying[v * P + r]: the edges by which an activation of v is on its way to r. */
byte flying[V * P];
byte flights;
/* Who has started a version; whether somebody has activated it; who is in whose group. */
byte started[V];
bool activated[V];
byte members[V * P];
#if COUNT
byte sent;
#endif

hidden byte e, i, j, k;

/* The group's allreduce of version v ends at r when all members have started it. */
#define ENDED(r, v) ((started[v] & members[(v) * P + (r)]) == members[(v) * P + (r)])
#define CAN_START(r)                                                                               \
    (goal[r] > next[r] && next[r] != SYNC && (next[r] == 0 || ENDED(r, next[r] - 1)))

#if RING
#    define TO(r, i) (((r) + BIT(i)) % P)
#else
#    define TO(r, i) ((r) ^ BIT(i))
#endif

/* An activation of a version that its receiver has started is dropped there, whenever it arrives:
   it is not kept in the first place. */
inline send(v, r, edge)
{
    if
    :: TO(r, edge) < P ->
#if COUNT
        sent++;
#endif
        if
        :: next[TO(r, edge)] <= v && !(flying[(v) * P + TO(r, edge)] & BIT(edge)) ->
            flying[(v) * P + TO(r, edge)] = flying[(v) * P + TO(r, edge)] | BIT(edge);
            flights++
        :: else
        fi
    :: else
    fi
}

inline land(v, r, edge)
{
    flying[(v) * P + (r)] = flying[(v) * P + (r)] & ~BIT(edge);
    flights--
}

inline pass_on(v, r, edge)
{
    for (e : 0 .. EDGES - 1) {
        if
        :: (PRUNE || RING) && e > edge -> send(v, r, e)
        :: !(PRUNE || RING) && e != edge -> send(v, r, e)
        :: else
        fi
    };
    skip
}

inline learn(v, r)
{
    /* Between a rank and a version after a sync there is the sync, which nobody enters for it. */
    assert(!(next[r] <= SYNC && v >= SYNC));
#if FORGET
    if
    :: goal[r] < next[r] + 1 -> goal[r] = next[r] + 1
    :: else
    fi
#else
    if
    :: goal[r] < v + 1 -> goal[r] = v + 1
    :: else
    fi
#endif
}

#define FLIES(v, edge) (flying[(v) * P + me] & BIT(edge))

#if TWICE
#    define DELIVER_AGAIN(v, edge)                                                                 \
        :: d_step { FLIES(v, edge) -> learn(v, me); pass_on(v, me, edge) }
#else
#    define DELIVER_AGAIN(v, edge)
#endif

/* First time: passed on. Asked for already but not started: may be passed on again or not, both are
   right. */
#define DELIVER(v, edge)                                                                           \
    :: d_step { FLIES(v, edge) -> land(v, me, edge); learn(v, me); pass_on(v, me, edge) }          \
    :: d_step { FLIES(v, edge) && v < goal[me] -> land(v, me, edge) }                              \
    DELIVER_AGAIN(v, edge)

#define OVERTAKEN(v, later, edge)                                                                  \
    :: d_step { FLIES(v, edge) && FLIES(later, edge) -> land(v, me, edge) }

#if EDGES == 1
#    define EACH_EDGE(what, v) what(v, 0)
#    define EACH_EDGE2(what, v, w) what(v, w, 0)
#elif EDGES == 2
#    define EACH_EDGE(what, v) what(v, 0) what(v, 1)
#    define EACH_EDGE2(what, v, w) what(v, w, 0) what(v, w, 1)
#else
#    define EACH_EDGE(what, v) what(v, 0) what(v, 1) what(v, 2)
#    define EACH_EDGE2(what, v, w) what(v, w, 0) what(v, w, 1) what(v, w, 2)
#endif

/* The application reaches version arrived[me]: once it has got what the version before gave it. */
#define AT_VERSION                                                                                 \
    ((APPS & BIT(me)) && arrived[me] < V && (arrived[me] == 0 || ENDED(me, arrived[me] - 1)))

inline arrive(r)
{
    assert(arrived[r] <= next[r]);
    if
    :: arrived[r] == next[r] ->
        /* An activation of v means: every version <= v has been started by somebody. */
        for (k : 0 .. V - 1) {
            assert(k >= arrived[r] || started[k])
        }
        activated[arrived[r]] = true;
        for (e : 0 .. EDGES - 1) {
            send(arrived[r], r, e)
        }
        if
        :: goal[r] < arrived[r] + 1 -> goal[r] = arrived[r] + 1
        :: else
        fi
    :: else
        /* It has gone by, or is running, without the application: nothing is sent. */
    fi;
    arrived[r]++
}

inline start(r)
{
    /* One version at a time, in order, once, and none that nobody has activated. */
    assert(next[r] < V && activated[next[r]] && !(started[next[r]] & BIT(r)));
    assert(next[r] == 0 || started[next[r] - 1] & BIT(r));
    assert(next[r] < SYNC || started[SYNC] == BIT(P) - 1);
    started[next[r]] = started[next[r]] | BIT(r);
    for (e : 0 .. EDGES - 1) {
        if
        :: flying[next[r] * P + r] & BIT(e) -> land(next[r], r, e)
        :: else
        fi
    }
    next[r]++
}

inline enter_sync(r)
{
    assert(next[r] == SYNC);
    started[SYNC] = started[SYNC] | BIT(r);
    next[r]++;
    arrived[r]++;
    if
    :: goal[r] < next[r] -> goal[r] = next[r]
    :: else
    fi
}

proctype rank(byte me)
{
    do
    :: d_step { AT_VERSION && arrived[me] != SYNC -> arrive(me) }
#if SYNC < V
    :: d_step { AT_VERSION && arrived[me] == SYNC -> enter_sync(me) }
#endif
    :: d_step { CAN_START(me) -> start(me) }
    EACH_EDGE(DELIVER, 0)
#if V > 1
    EACH_EDGE(DELIVER, 1)
    EACH_EDGE2(OVERTAKEN, 0, 1)
#endif
#if V > 2
    EACH_EDGE(DELIVER, 2)
    EACH_EDGE2(OVERTAKEN, 0, 2)
    EACH_EDGE2(OVERTAKEN, 1, 2)
#endif
    od
}

/* Nothing can happen any more unless an application takes a step. */
#define QUIET (flights == 0 && !CAN_START(0) && !CAN_START(1) QUIET2 QUIET3 QUIET4 QUIET5 QUIET6 QUIET7)
#if P > 2
#    define QUIET2 &&!CAN_START(2)
#else
#    define QUIET2
#endif
#if P > 3
#    define QUIET3 &&!CAN_START(3)
#else
#    define QUIET3
#endif
#if P > 4
#    define QUIET4 &&!CAN_START(4)
#else
#    define QUIET4
#endif
#if P > 5
#    define QUIET5 &&!CAN_START(5)
#else
#    define QUIET5
#endif
#if P > 6
#    define QUIET6 &&!CAN_START(6)
#else
#    define QUIET6
#endif
#if P > 7
#    define QUIET7 &&!CAN_START(7)
#else
#    define QUIET7
#endif

/*
 * Whatever the applications have done and may yet do, if they do nothing more then every version
 * that one of them has activated runs on every rank, and every application that waits gets its
 * version: nobody waits for a rank that has not arrived, at a sync alone.
 */
proctype judge()
{
    do
    :: d_step { QUIET ->
            for (j : 0 .. V - 1) {
                assert(j == SYNC || started[j] == (activated[j] -> BIT(P) - 1 : 0))
            }
            for (k : 0 .. P - 1) {
                assert(arrived[k] == 0 || arrived[k] - 1 == SYNC || ENDED(k, arrived[k] - 1))
            };
#if COUNT
            assert(!activated[0] || sent == P - 1);
#endif
            skip
        }
    od
}

/* The groups of weft/groups.h: G rows, the first P mod G one longer, read column by column. */
#define G ((P + S - 1) / S)
#define SHUFFLED(p) ((p) % G * (P / G) + ((p) % G < P % G -> (p) % G : P % G) + (p) / G)
#define ROW(p)                                                                                     \
    ((p) < P % G * (P / G + 1) -> (p) / (P / G + 1)                                                \
                               : P % G + ((p) - P % G * (P / G + 1)) / (P / G))

hidden byte row[P];

/* At position i of version k is rank e. */
init
{
    d_step {
        for (k : 0 .. V - 1) {
            for (i : 0 .. P - 1) {
                e = i;
                for (j : 1 .. k) {
                    e = SHUFFLED(e)
                }
                row[e] = ROW(i)
            }
            for (i : 0 .. P - 1) {
                for (j : 0 .. P - 1) {
                    if
                    :: k == SYNC || row[i] == row[j] ->
                        members[k * P + i] = members[k * P + i] | BIT(j)
                    :: else
                    fi
                }
            }
        };
        skip
    }
    atomic {
        for (i : 0 .. P - 1) {
            run rank(i)
        }
        run judge()
    }
}
