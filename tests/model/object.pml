/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The life of an object: creation, steps, failures, leaving (docs/model.md says what is modelled
 * and what is not).
 *
 * Set by run.sh:
 *   P        ranks, 2 .. 4             V       versions, 1 .. 3
 *   S        group size                OBJECTS 1, or 2 that are left in any order
 *   FIRST    the versions are these, for the groups: FIRST .. FIRST + V - 1
 *   MODE     ANYONE, DRAWN: who activates; WAITING: no activation
 *   SYNC     the version that is a global sync, or 255
 *   SPARSE   1: news go to ranks r - 1 and r + 1 only, as on many ranks not all are neighbours
 *   FAULTS   how many faults there are, of the kinds
 *   FAULT    set of the kinds below
 *   DIFFER   1: the settings of the ranks differ
 * Wrong protocols, 0 or 1:
 *   OLD_ACTIVATION  a failed activation counts as one and nobody is told
 *   OLD_LEAVING     destroy blocks in two meetings of all ranks: 1, and to mend it in part,
 *                   2: nothing happens between looking for a failure and the meeting
 *                   4: a version that fails here ends the meeting here
 *                   8: who has left the first meeting says so, too, when a version fails
 *   OLD_CREATION    what fails before or after the meeting is not told
 *   ADVANCE         a version that failed counts as executed
 *   UNKNOWN         news of a failure are dropped where the object is not yet created
 *   ONE_HOP         news of a failure are not passed on
 *   NO_LEAVES       nobody is told that somebody has left, but over the tree
 *   SYNCS_ONLY      one who has left stands in at syncs, not where it is drawn
 *   GONE_RUNS       a rank that has left and waits no longer fails the runs that it is a member of,
 *                   not the object
 *   NO_DONE         a rank frees the object when it has run its versions
 *
 * Everything that a rank does is one step of it: its application, its engine, a message that
 * arrives. What is in flight is a set, so that messages arrive in any order.
 */
#define ANYONE  0
#define DRAWN   1
#define WAITING 2

#define FAIL_       1   /* of the object on a rank: whatever the cause, at any time */
#define ABORT_      2   /* a rank gives up, all its objects end */
#define STOP_       4   /* a rank stops and says nothing */
#define GONE_       8   /* GONE_RUNS: a rank that has left waits no longer */
#define ACTIVATION_ 16  /* where the old rules differ: an activation, */
#define CREATION_   32  /* the creation before or in its meeting, */
#define CREATED_    64  /* or after it, */
#define VERSION_    128 /* a version */

#define N         (OBJECTS * P)
#define BIT(r)    (1 << (r))
#define ALL       (BIT(P) - 1)
#define X(o, r)   ((o) * P + (r))
#define RANK(x)   ((x) % P)
#define OBJECT(x) ((x) / P)
#define ON(x, r)  ((x) / P * P + (r)) /* the same object there */

/* Of an object on a rank. From DONE on the rank has it no more. */
#define NONE    0
#define MEETING 1
#define LIVE    2
#define LEAVING 3
#define DONE    4
#define FAILED  5
#define GONE    6
#define STOPPED 7
#define HAS(x)  (life[x] <= LEAVING)
#define RUNS(x) (life[x] == LIVE || life[x] == LEAVING)

/* Of its application: in a step, or in one that it will not wait for. */
#define IDLE   0
#define WAITS  1
#define POSTED 2

/* News on their way to a rank, and what it knows. */
#define NEWS_FAIL   1
#define NEWS_LEAVES 2
#define KNOWS_LEFT  4
#define OVER        8  /* OLD_ACTIVATION: its series of activations has ended */
#define BROKEN      16 /* OLD_LEAVING: its version has failed, or another rank's */

/* The tree's waves. Up: odd: on its way to the parent, even: heard there. Down: odd: on its way to
   the rank, even: heard. */
#define UP_LEFT      1
#define UP_MOST      3
#define UP_DONE      5
#define DOWN_LEFT    1
#define DOWN_GOAL    3
#define DOWN_DONE    5
#define PARENT(r)    ((r) & ((r)-1))
#define STANDS_IN(x) (life[x] == LEAVING && down[x] < DOWN_LEFT + 1)

byte life[N];
byte app[N];
/* How many steps the application has begun; how many versions have been activated, started, ended;
   how many steps this rank knows somebody to have begun. */
byte arrived[N];
byte activated[N];
byte next[N];
byte ended[N];
byte reached[N];
byte news[N];
byte activations[N]; /* versions, on their way */
byte reaches[N];     /* versions, on their way */
byte up[N];
byte down[N];
#if GONE_RUNS
byte gone[N];  /* ranks known to be gone */
byte going[N]; /* ranks, the news on their way */
bool went;
#endif
byte most[N]; /* no version from this one on is started before the goal is known */
#if OLD_LEAVING
byte stage[N]; /* of destroy: 0, 3: looks for a failure; 1, 4: has; 2, 5: meets; 6: has met */
#endif

/* Of an object. */
byte met[OBJECTS];
byte goal[OBJECTS];
bool cause[OBJECTS];
byte started[OBJECTS * V]; /* ranks */
byte did[OBJECTS * V];     /* ranks that have executed it */
bool fired[OBJECTS * V];   /* somebody has activated it */
#if OLD_LEAVING
byte left[OBJECTS]; /* ranks in the first meeting of those who leave, and in the second */
byte agree[OBJECTS];
bool cut[OBJECTS]; /* one of them has been cancelled */
bool cut2[OBJECTS];
byte bad[OBJECTS * V]; /* ranks on which a version has failed */
#endif

byte faults = FAULTS;
bool stopped; /* a rank has, and has said nothing */
hidden byte members[V * P];

hidden byte i, j, k, e;

#define FAULTY(kind) (FAULTS && (FAULT & (kind)) && faults > 0)

/* ---- versions ---- */

#define NEEDS_ALL(v) (MODE == WAITING || (v) == SYNC)
#define GROUP(x, v)  members[(v) * P + RANK(x)]
#define STARTED(x, v) started[OBJECT(x) * V + (v)]
#define ENDED(x, v)  ((STARTED(x, v) & GROUP(x, v)) == GROUP(x, v))
#define RUNNING(x)   (next[x] > ended[x])
#define DRAWS(v)     (((v) + 1) % P)
#define TELLING      (MODE != ANYONE || SYNC < V)
#define TELLS(v)     (NEEDS_ALL(v) || (MODE == DRAWN && !SYNCS_ONLY))

#define COMES(x, v) (arrived[x] > (v) || (STANDS_IN(x) && reached[x] > (v)))
#if OLD_LEAVING
#    define STOPS(x) (stage[x] >= 3)
#    define KNOWS_GOAL(x) (stage[x] >= 6)
#    define BREAKS(x) (news[x] & BROKEN)
#else
#    define STOPS(x) (down[x] > DOWN_LEFT)
#    define KNOWS_GOAL(x) (down[x] > DOWN_GOAL)
#    define BREAKS(x) false
#endif
#define BELOW_GOAL(x) (KNOWS_GOAL(x) && next[x] < goal[OBJECT(x)])
#define MAY_START(x)                                                                               \
    (BELOW_GOAL(x) || ((!STOPS(x) || next[x] < most[x]) &&                                         \
                       ((NEEDS_ALL(next[x]) && COMES(x, next[x])) ||                               \
                        (!NEEDS_ALL(next[x]) && activated[x] > next[x]))))
#define CAN_START(x) (RUNS(x) && !RUNNING(x) && next[x] < V && !BREAKS(x) && MAY_START(x))
#define CAN_END(x)   (RUNS(x) && RUNNING(x) && !BREAKS(x) && ENDED(x, ended[x]))

/* ---- news ---- */

#define FAR(r, k) (SPARSE && (k) != ((r) + 1) % P && (k) != ((r) + P - 1) % P)

inline tell(x, what)
{
    for (k : 0 .. P - 1) {
        if
        :: k != RANK(x) && !FAR(RANK(x), k) && HAS(ON(x, k)) &&
           !(what == NEWS_LEAVES && (news[ON(x, k)] & KNOWS_LEFT)) &&
           !(UNKNOWN && life[ON(x, k)] == NONE) ->
            news[ON(x, k)] = news[ON(x, k)] | what
        :: else
        fi
    };
    skip
}

/* What a rank has no more is of no interest. */
inline drop(x, how)
{
    life[x] = how;
    app[x] = IDLE;
    arrived[x] = 0;
    activated[x] = 0;
    next[x] = 0;
    ended[x] = 0;
    reached[x] = 0;
    news[x] = 0;
    activations[x] = 0;
    reaches[x] = 0;
#if GONE_RUNS
    gone[x] = 0;
    going[x] = 0;
#endif
    down[x] = 0;
    /* What is on its way up stays so, if there is somebody to hear it. */
    for (k : 0 .. P - 1) {
        if
        :: !HAS(ON(x, PARENT(k))) && !HAS(ON(x, k)) ->
            up[ON(x, k)] = 0;
            most[ON(x, k)] = 0
        :: else
        fi
    };
#if OLD_LEAVING
    stage[x] = 0;
#endif
    skip
}

/* The one transition. */
inline fail(x)
{
    assert(HAS(x) && cause[OBJECT(x)]);
    tell(x, NEWS_FAIL);
    drop(x, FAILED)
}

inline hear_failure(x)
{
    assert(cause[OBJECT(x)]);
#if !ONE_HOP
    tell(x, NEWS_FAIL);
#endif
    drop(x, FAILED)
}

/* What is in flight is cumulative: of the versions up to v nothing has to be heard any more. */
#define FORGET(what, x, v) what[x] = what[x] & ~(BIT((v) + 1) - 1)

/* Over the activation's edges. */
inline pass_activation(x, v)
{
    for (e : 0 .. 1) {
        k = RANK(x) ^ BIT(e);
        if
        :: k < P && HAS(ON(x, k)) && activated[ON(x, k)] <= v ->
            activations[ON(x, k)] = activations[ON(x, k)] | BIT(v)
        :: else
        fi
    };
    skip
}

inline activate(x, v)
{
    activated[x] = (v) + 1;
    FORGET(activations, x, v);
    fired[OBJECT(x) * V + (v)] = true;
    pass_activation(x, v)
}

inline hear_activation(x, v)
{
    assert(activated[x] <= v && !(next[x] <= SYNC && v >= SYNC));
    activated[x] = v + 1;
    FORGET(activations, x, v);
    pass_activation(x, v)
}

inline reach(x, v)
{
    if
    :: reached[x] <= v ->
        reached[x] = (v) + 1;
        FORGET(reaches, x, v);
        for (e : 0 .. 1) {
            k = RANK(x) ^ BIT(e);
            if
            :: k < P && HAS(ON(x, k)) && reached[ON(x, k)] <= v ->
                reaches[ON(x, k)] = reaches[ON(x, k)] | BIT(v)
            :: else
            fi
        };
        skip
    :: else
    fi
}

/* Somebody leaves: whoever is waiting for one that has left says where. */
inline learn_leaving(x)
{
    if
    :: TELLING && !(news[x] & KNOWS_LEFT) ->
        news[x] = news[x] & ~NEWS_LEAVES | KNOWS_LEFT;
#if !NO_LEAVES
        tell(x, NEWS_LEAVES);
#endif
        if
        :: arrived[x] > 0 && TELLS(arrived[x] - 1) -> reach(x, arrived[x] - 1)
        :: else
        fi
    :: else
    fi
}

/* ---- steps ---- */

inline arrive(x, how)
{
    arrived[x]++;
    app[x] = (how == WAITS && ended[x] >= arrived[x] -> IDLE : how);
    if
    :: activated[x] < arrived[x] && !(news[x] & OVER) && !NEEDS_ALL(arrived[x] - 1) &&
       (MODE == ANYONE || DRAWS(arrived[x] - 1) == RANK(x)) ->
        activate(x, arrived[x] - 1)
    :: else
    fi;
    if
    :: (news[x] & KNOWS_LEFT) && TELLS(arrived[x] - 1) -> reach(x, arrived[x] - 1)
    :: else
    fi
}

inline start(x)
{
    /* None that nobody has asked for, and in order. */
    assert(BELOW_GOAL(x) || NEEDS_ALL(next[x]) || fired[OBJECT(x) * V + next[x]]);
    assert(next[x] == 0 || (did[OBJECT(x) * V + next[x] - 1] & BIT(RANK(x))));
    assert(!(STARTED(x, next[x]) & BIT(RANK(x))));
    STARTED(x, next[x]) = STARTED(x, next[x]) | BIT(RANK(x));
    next[x]++;
    /* Nobody activates a sync: it is gone by once it is started. */
    if
    :: next[x] == SYNC + 1 && activated[x] == SYNC -> activated[x] = SYNC + 1
    :: else
    fi
}

inline end(x)
{
    assert(ENDED(x, ended[x]));
    did[OBJECT(x) * V + ended[x]] = did[OBJECT(x) * V + ended[x]] | BIT(RANK(x));
    ended[x]++;
    if
    :: app[x] == WAITS && ended[x] >= arrived[x] -> app[x] = IDLE
    :: else
    fi
}

/* ---- leaving ---- */

/* Child c has sent its wave, and it is here. */
#define CHILD_OF(x, c) ((c) > 0 && (c) < P && PARENT(c) == RANK(x))
#define HEARD(x, c, what) (!CHILD_OF(x, c) || up[ON(x, c)] > what)
#if P == 2
#    define CHILDREN(x, what) HEARD(x, 1, what)
#elif P == 3
#    define CHILDREN(x, what) (HEARD(x, 1, what) && HEARD(x, 2, what))
#else
#    define CHILDREN(x, what) (HEARD(x, 1, what) && HEARD(x, 2, what) && HEARD(x, 3, what))
#endif

inline send_down(x, what)
{
    for (k : 1 .. P - 1) {
        if
        :: PARENT(k) == RANK(x) && HAS(ON(x, k)) -> down[ON(x, k)] = what
        :: else
        fi
    };
    down[x] = what + 1
}

inline free_clean(x)
{
    /* Every rank has executed the same versions. */
    for (k : 0 .. V - 1) {
        assert(did[OBJECT(x) * V + k] & BIT(RANK(x)) || k >= goal[OBJECT(x)]);
        assert(NO_DONE || OLD_LEAVING || did[OBJECT(x) * V + k] == (k < goal[OBJECT(x)] -> ALL : 0))
    };
#if !OLD_LEAVING && !NO_DONE
    send_down(x, DOWN_DONE);
#endif
    drop(x, DONE)
}

inline stop_starting(x)
{
    most[x] = (next[x] > activated[x] -> next[x] : activated[x]);
    send_down(x, DOWN_LEFT)
}

inline settle(x)
{
    for (k : 1 .. P - 1) {
        if
        :: CHILD_OF(x, k) && most[ON(x, k)] > most[x] -> most[x] = most[ON(x, k)]
        :: else
        fi
    };
    up[x] = UP_MOST;
    if
    :: RANK(x) == 0 ->
        up[x] = UP_MOST + 1;
        goal[OBJECT(x)] = most[x];
        send_down(x, DOWN_GOAL)
    :: else
    fi
}

#if OLD_LEAVING
#    define waves(x) skip
#else
/* Sends the waves on as far as they go. */
inline waves(x)
{
    if
    :: life[x] == LEAVING && up[x] < UP_LEFT && CHILDREN(x, UP_LEFT) ->
        up[x] = UP_LEFT;
        if
        :: RANK(x) == 0 -> up[x] = UP_LEFT + 1; stop_starting(x)
        :: else
        fi
    :: else
    fi;
    if
    :: life[x] == LEAVING && down[x] > DOWN_LEFT && up[x] < UP_MOST && CHILDREN(x, UP_MOST) ->
        settle(x)
    :: else
    fi;
    if
    :: life[x] == LEAVING && down[x] > DOWN_GOAL && up[x] < UP_DONE &&
       ended[x] == goal[OBJECT(x)] && (NO_DONE || CHILDREN(x, UP_DONE)) ->
        up[x] = UP_DONE;
        if
        :: RANK(x) == 0 || NO_DONE -> free_clean(x)
        :: else
        fi
    :: else
    fi
}
#endif

/* ---- faults ---- */

/* The rank gives up, or destroys its context: all its objects end, and say so. */
inline abort(x)
{
    for (i : 0 .. OBJECTS - 1) {
        if
        :: HAS(X(i, RANK(x))) ->
            cause[i] = true;
            tell(X(i, RANK(x)), NEWS_FAIL);
            drop(X(i, RANK(x)), FAILED)
        :: else
        fi
    };
    skip
}

inline stop(x)
{
    stopped = true;
    for (i : 0 .. OBJECTS - 1) {
        if
        :: HAS(X(i, RANK(x))) -> cause[i] = true; drop(X(i, RANK(x)), STOPPED)
        :: else
        fi
    };
    skip
}

#if GONE_RUNS
/* A member of the group of the version under way is gone, and will not take part. */
#define LACKS(x) (RUNNING(x) && (gone[x] & GROUP(x, ended[x]) & ~STARTED(x, ended[x])))

/* Nothing has happened for as long as a rank that has left waits: it says that it is gone. */
inline go(x)
{
    went = true;
    cause[OBJECT(x)] = true;
    for (k : 0 .. P - 1) {
        if
        :: k != RANK(x) && !FAR(RANK(x), k) && HAS(ON(x, k)) ->
            going[ON(x, k)] = going[ON(x, k)] | BIT(RANK(x))
        :: else
        fi
    };
    drop(x, GONE)
}

inline hear_gone(x)
{
    i = going[x] & ~gone[x];
    going[x] = 0;
    if
    :: i ->
        gone[x] = gone[x] | i;
        for (k : 0 .. P - 1) {
            if
            :: k != RANK(x) && !FAR(RANK(x), k) && HAS(ON(x, k)) ->
                going[ON(x, k)] = going[ON(x, k)] | i
            :: else
            fi
        };
        skip
    :: else
    fi
}
#endif

/* ---- the old rules ---- */

#if OLD_LEAVING
/* Destroy returns an error, and frees. */
inline give_up(x)
{
    if
    :: stage[x] == 2 -> cut[OBJECT(x)] = true
    :: stage[x] == 5 -> cut2[OBJECT(x)] = true
    :: else
    fi;
    drop(x, FAILED)
}

/* Version ended[x] fails here; who has begun to stop does not say so. */
inline break_version(x)
{
    assert(cause[OBJECT(x)]);
    bad[OBJECT(x) * V + ended[x]] = bad[OBJECT(x) * V + ended[x]] | BIT(RANK(x));
    news[x] = news[x] | BROKEN;
    if
    :: stage[x] < 3 || (OLD_LEAVING & 8) -> tell(x, NEWS_FAIL)
    :: else
    fi;
    if
    :: (OLD_LEAVING & 4) && life[x] == LEAVING -> give_up(x)
    :: else
    fi
}

inline hear_old(x)
{
    news[x] = news[x] & ~NEWS_FAIL;
    if
    :: !BREAKS(x) ->
        news[x] = news[x] | BROKEN;
        /* Cancels the meeting if there is one. */
        if
        :: stage[x] == 2 || stage[x] == 5 -> give_up(x)
        :: else
        fi
    :: else
    fi
}

#    define LEAVE_OLD(x)                                                                           \
        :: d_step { life[x] == LEAVING && (stage[x] == 0 || stage[x] == 3) && BREAKS(x) ->         \
                give_up(x)                                                                         \
            }                                                                                      \
        :: d_step { life[x] == LEAVING && (stage[x] == 0 || stage[x] == 3) && !BREAKS(x) &&        \
                !(OLD_LEAVING & 2) ->                                                              \
                stage[x]++                                                                         \
            }                                                                                      \
        :: d_step { life[x] == LEAVING &&                                                          \
                (stage[x] == 1 || ((OLD_LEAVING & 2) && stage[x] == 0 && !BREAKS(x))) ->           \
                left[o] = left[o] | BIT(me);                                                       \
                stage[x] = 2                                                                       \
            }                                                                                      \
        :: d_step { life[x] == LEAVING && stage[x] == 2 && left[o] == ALL ->                       \
                most[x] = (next[x] > activated[x] -> next[x] : activated[x]);                      \
                stage[x] = 3                                                                       \
            }                                                                                      \
        :: d_step { life[x] == LEAVING &&                                                          \
                (stage[x] == 4 || ((OLD_LEAVING & 2) && stage[x] == 3 && !BREAKS(x))) ->           \
                agree[o] = agree[o] | BIT(me);                                                     \
                goal[o] = (goal[o] > most[x] -> goal[o] : most[x]);                                \
                stage[x] = 5                                                                       \
            }                                                                                      \
        :: d_step { life[x] == LEAVING && stage[x] == 5 && agree[o] == ALL -> stage[x] = 6 }       \
        :: d_step { life[x] == LEAVING && stage[x] == 6 && ended[x] == goal[o] -> free_clean(x) }  \
        :: d_step { life[x] == LEAVING && stage[x] == 6 && BREAKS(x) -> give_up(x) }               \
        :: d_step { life[x] == LEAVING &&                                                          \
                ((stage[x] == 2 && cut[o]) || (stage[x] == 5 && cut2[o])) ->                       \
                give_up(x)                                                                         \
            }                                                                                      \
        :: d_step { life[x] == LIVE && BREAKS(x) -> give_up(x) }                                   \
        :: d_step { RUNS(x) && RUNNING(x) && !BREAKS(x) &&                                         \
                (bad[o * V + ended[x]] & GROUP(x, ended[x])) ->                                    \
                break_version(x)                                                                   \
            }
#    define HEAR(x) hear_old(x)
#    define BREAK_VERSION(x) break_version(x)
#else
#    define LEAVE_OLD(x)
#    define HEAR(x) hear_failure(x)
#    define BREAK_VERSION(x) fail(x)
#endif

/* A version fails that is under way. */
inline fail_version(x)
{
#if ADVANCE
    end(x)
#else
    BREAK_VERSION(x)
#endif
}

/* An activation that is awaited fails. */
inline fail_activation(x)
{
#if OLD_ACTIVATION
    news[x] = news[x] | OVER;
    activations[x] = 0;
    activated[x]++
#else
    fail(x)
#endif
}

inline fail_creation(x)
{
#if OLD_CREATION
    drop(x, FAILED)
#else
    fail(x)
#endif
}

/* ---- ranks ---- */

/* The application is between two calls, for every object. */
#if OLD_LEAVING
#    define BLOCKS(x) (life[x] == MEETING || app[x] == WAITS || life[x] == LEAVING)
#else
#    define BLOCKS(x) (life[x] == MEETING || app[x] == WAITS)
#endif
#if OBJECTS == 1
#    define FREE(r) (!BLOCKS(r))
#    define CREATES(x) true
#else
#    define FREE(r) (!BLOCKS(X(0, r)) && !BLOCKS(X(1, r)))
#    define CREATES(x) ((x) < P || life[(x)-P] >= LIVE)
#endif

#define CAN_ARRIVE(x) (life[x] == LIVE && FREE(RANK(x)) && app[x] == IDLE && arrived[x] < V)

#define DELIVER(v)                                                                                 \
    :: d_step { RUNS(x) && (activations[x] & BIT(v)) && !(news[x] & OVER) ->                       \
            hear_activation(x, v)                                                                  \
        }                                                                                          \
    :: d_step { RUNS(x) && (reaches[x] & BIT(v)) -> reach(x, v) }
#define CHILD(c)                                                                                   \
    :: d_step { RUNS(x) && c < P && PARENT(c) == me && up[ON(x, c)] % 2 ->                         \
            up[ON(x, c)]++;                                                                        \
            waves(x)                                                                               \
        }

proctype object(byte x; byte me; byte o)
{
    do
    :: life[x] >= DONE -> break

    /* Creation. */
    :: d_step { life[x] == NONE && FREE(me) && CREATES(x) ->
            life[x] = MEETING;
            met[o] = met[o] | BIT(me)
        }
    :: d_step { life[x] == MEETING && met[o] == ALL ->
#if DIFFER
            cause[o] = true;
            drop(x, FAILED)
#else
            life[x] = LIVE
#endif
        }

    /* Steps. */
    :: d_step { CAN_ARRIVE(x) -> arrive(x, WAITS) }
    :: d_step { CAN_ARRIVE(x) -> arrive(x, POSTED) }
    :: d_step { STANDS_IN(x) && MODE == DRAWN && activated[x] < V && reached[x] > activated[x] &&
            DRAWS(activated[x]) == me && !NEEDS_ALL(activated[x]) ->
            i = activated[x];
            activate(x, i)
        }
    :: d_step { CAN_START(x) -> start(x) }
    :: d_step { CAN_END(x) -> end(x); waves(x) }
    DELIVER(0)
#if V > 1
    DELIVER(1)
#endif
#if V > 2
    DELIVER(2)
#endif

    /* Leaving. */
    :: d_step { life[x] == LIVE && FREE(me) ->
            app[x] = IDLE;
            life[x] = LEAVING;
            learn_leaving(x);
            waves(x)
        }
    :: d_step { RUNS(x) && (news[x] & NEWS_LEAVES) -> learn_leaving(x) }
    CHILD(1)
#if P > 2
    CHILD(2)
#endif
#if P > 3
    CHILD(3)
#endif
    :: d_step { life[x] == LEAVING && down[x] == DOWN_LEFT ->
            stop_starting(x);
            waves(x)
        }
    :: d_step { life[x] == LEAVING && down[x] == DOWN_GOAL -> send_down(x, DOWN_GOAL); waves(x) }
    :: d_step { life[x] == LEAVING && down[x] == DOWN_DONE -> free_clean(x) }

    /* Failing. */
    :: d_step { HAS(x) && (news[x] & NEWS_FAIL) -> HEAR(x) }
    LEAVE_OLD(x)
    :: d_step { FAULTY(FAIL_) && HAS(x) -> faults--; cause[o] = true; fail(x) }
    :: d_step { FAULTY(ABORT_) && HAS(x) -> faults--; abort(x) }
    :: d_step { FAULTY(STOP_) && HAS(x) -> faults--; stop(x) }
    :: d_step { FAULTY(VERSION_) && RUNS(x) && RUNNING(x) && !BREAKS(x) ->
            faults--;
            cause[o] = true;
            fail_version(x)
        }
    :: d_step { FAULTY(ACTIVATION_) && RUNS(x) && MODE != WAITING && activated[x] < V &&
            !NEEDS_ALL(activated[x]) ->
            faults--;
            cause[o] = true;
            fail_activation(x)
        }
    :: d_step { (FAULTY(CREATION_) && (life[x] == NONE || life[x] == MEETING && met[o] != ALL)) ||
            (FAULTY(CREATED_) && life[x] == MEETING && met[o] == ALL) ->
            faults--;
            cause[o] = true;
            fail_creation(x)
        }
    /* Deadlines, where nothing else can end a wait: of a step, of a creation, of leaving. */
    :: atomic { (timeout && stopped && (life[x] == MEETING || app[x] == WAITS)) -> fail(x) }
#if GONE_RUNS
    :: d_step { FAULTY(GONE_) && life[x] == LEAVING -> faults--; go(x) }
    :: d_step { RUNS(x) && going[x] -> hear_gone(x) }
    :: d_step { RUNS(x) && LACKS(x) -> fail(x) }
    :: atomic { (timeout && went && life[x] == LEAVING) -> go(x) }
#else
    :: atomic { (timeout && stopped && life[x] == LEAVING) -> fail(x) }
#endif
    od
}

/* The groups of weft/groups.h: G rows, the first P mod G one longer, read column by column. */

#define G ((P + S - 1) / S)
#define SHUFFLED(p) ((p) % G * (P / G) + ((p) % G < P % G -> (p) % G : P % G) + (p) / G)
#define ROW(p)                                                                                     \
    ((p) < P % G * (P / G + 1) -> (p) / (P / G + 1)                                                \
                               : P % G + ((p)-P % G * (P / G + 1)) / (P / G))

hidden byte row[P];

/* At position i of version FIRST + k is rank e. */
init
{
    d_step {
        for (k : 0 .. V - 1) {
            for (i : 0 .. P - 1) {
                e = i;
                for (j : 1 .. FIRST + k) {
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
        /* A fault that might yet come would let a wait for ever end. */
        do
        :: faults > 0 -> faults--
        :: break
        od;
        for (i : 0 .. OBJECTS - 1) {
            for (j : 0 .. P - 1) {
                run object(i * P + j, j, i)
            }
        }
    }
}
