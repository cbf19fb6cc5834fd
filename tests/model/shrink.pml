/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft_context_shrink(): the ranks that are left agree on who they are (docs/model.md says what is
 * modelled and what is not).
 *
 * Set by run.sh:
 *   P        ranks, 2 .. 4             DEATHS  how many may die, at any moment, up to 3
 *   FAILS    1: one rank may find no memory
 *   LEAVES   1: a rank that has returned may destroy the context
 * Wrong protocols, 0 or 1:
 *   ANEW     whoever takes over proposes anew, whatever it has acknowledged
 *   ALONE    only who coordinates says COMMIT
 *   HASTY    a rank acknowledges a proposal without the invitations of its ranks
 *   LATE     who coordinates still acknowledges what a rank before it has proposed
 * And one that is not wrong:
 *   EARLY    a death may be told before what the rank has sent
 *
 * A d_step that ended with an `if` or a loop would not be one: `skip`.
 * Everything that a rank does is one step of it. What is in flight is a set, so that messages
 * arrive in any order; of a rank that has died each may be lost.
 */
#define BIT(r) (1 << (r))
#define ALL    (BIT(P) - 1)
#define FAIL   BIT(P) /* of a proposal: all fail */

/* Proposals are numbered: by their coordinator, and its ballots from 0; 0: none. */
#define BALLOTS      (DEATHS + 1)
#define NUMBER(c, b) (1 + (c) * BALLOTS + (b))
#define OF(n)        (((n)-1) / BALLOTS)

byte alive = ALL;
byte entered;
byte over;  /* has returned, with a context or an error */
byte left; /* and has destroyed the one that is shrunk */
byte leads;
byte inherits;

/* Of a rank: in flight, to whom. */
byte invites[P];
byte fails[P];
byte commits[P];
/* Of a rank: whom it knows to be there; to have failed; to be gone. */
byte invited[P];
byte out[P];
byte gone[P];
byte agreed[P]; /* numbers of proposals */
byte coming[P];
byte ballot[P];
byte acked[P];
byte knew[P]; /* who was gone when it proposed */
/* Of a proposal. */
byte set[P * BALLOTS + 1];
byte proposes[P * BALLOTS + 1]; /* in flight, to whom */
byte acks[P * BALLOTS + 1];     /* in flight, from whom */

bool decided;
byte decision;
byte deaths = DEATHS;
byte failures = FAILS;
hidden byte i;

#define ABSENT(r)   (gone[r] | out[r])
#define LIVES(r)    ((alive & BIT(r)) != 0)
#define IN_IT(r)    ((entered & alive & ~over & BIT(r)) != 0)
#define LEADS(r)    ((leads & BIT(r)) != 0)
#define LOWER(r)    (BIT(r) - 1)
#define MEMBERS(n)  (set[n] & ALL)
#define OTHERS(r)   (alive & ~BIT(r))
#define IS_LOWEST(r) ((LOWER(r) & ~ABSENT(r)) == 0)
#define KNOWS_ALL(r) ((ALL & ~(invited[r] | ABSENT(r) | BIT(r))) == 0)
#define HAS_ACKS(r)  ((MEMBERS(agreed[r]) & ~(acked[r] | ABSENT(r) | BIT(r))) == 0)
#define HAS_INVITATIONS(r, n) (HASTY || (MEMBERS(n) & ~(invited[r] | BIT(r) | ABSENT(r))) == 0)
#define KNOWS_THE_REST(r, n)  ((ALL & ~MEMBERS(n) & ~ABSENT(r)) == 0)

/* Something of q is in flight to r. */
#define IN_FLIGHT_0(q, r) ((proposes[NUMBER(q, 0)] & BIT(r)) || (acks[NUMBER(r, 0)] & BIT(q)))
#if DEATHS > 0
#define IN_FLIGHT_1(q, r) ((proposes[NUMBER(q, 1)] & BIT(r)) || (acks[NUMBER(r, 1)] & BIT(q)))
#else
#define IN_FLIGHT_1(q, r) false
#endif
#if DEATHS > 1
#define IN_FLIGHT_2(q, r) ((proposes[NUMBER(q, 2)] & BIT(r)) || (acks[NUMBER(r, 2)] & BIT(q)))
#else
#define IN_FLIGHT_2(q, r) false
#endif
#if DEATHS > 2
#define IN_FLIGHT_3(q, r) ((proposes[NUMBER(q, 3)] & BIT(r)) || (acks[NUMBER(r, 3)] & BIT(q)))
#else
#define IN_FLIGHT_3(q, r) false
#endif
#define IN_FLIGHT(q, r)                                                                            \
    (((invites[q] | fails[q] | commits[q]) & BIT(r)) || IN_FLIGHT_0(q, r) || IN_FLIGHT_1(q, r) ||  \
     IN_FLIGHT_2(q, r) || IN_FLIGHT_3(q, r))

/* What a rank that has died knew is nobody's; what is on its way to it is lost. */
inline forget(r)
{
    invited[r] = 0;
    out[r] = 0;
    gone[r] = 0;
    agreed[r] = 0;
    coming[r] = 0;
    acked[r] = 0;
    knew[r] = 0;
    ballot[r] = 0;
    for (i : 0 .. P - 1) {
        invites[i] = invites[i] & ~BIT(r);
        fails[i] = fails[i] & ~BIT(r);
        commits[i] = commits[i] & ~BIT(r);
    }
    for (i : 1 .. P * BALLOTS) {
        proposes[i] = proposes[i] & ~BIT(r);
    }
    for (i : 0 .. BALLOTS - 1) {
        acks[NUMBER(r, i)] = 0;
    }
}

/* Rank r returns with what it has acknowledged: so have all others that have returned. All members
   but the dead have told it their places, and it knows of all others that they are gone. */
inline decide(r)
{
    assert(!decided || decision == set[agreed[r]]);
    assert(MEMBERS(agreed[r]) & BIT(r));
    assert((MEMBERS(agreed[r]) & ~(invited[r] | BIT(r) | gone[r])) == 0);
    assert((ALL & ~MEMBERS(agreed[r]) & ~ABSENT(r)) == 0);
    decided = true;
    decision = set[agreed[r]];
    over = over | BIT(r);
    coming[r] = 0;
    if
    :: ALONE && !LEADS(r) -> skip
    :: else -> commits[r] = MEMBERS(agreed[r]) & OTHERS(r) & ~gone[r]
    fi
}

inline propose(r)
{
    proposes[agreed[r]] = MEMBERS(agreed[r]) & OTHERS(r) & ~gone[r];
    acked[r] = 0;
    knew[r] = gone[r];
}

/* Proposes who is there, or, if one has failed, that all do. */
inline choose(r)
{
    agreed[r] = NUMBER(r, ballot[r]);
    set[agreed[r]] = BIT(r) | (invited[r] & ~ABSENT(r));
    if
    :: out[r] -> set[agreed[r]] = set[agreed[r]] | FAIL
    :: else
    fi;
    propose(r)
}

/* What rank r takes of rank q, and hears of it. Of who has died each message may be lost. */
#define OF_RANK(q)                                                                                 \
    :: d_step { (invites[q] & BIT(r)) -> invites[q] = invites[q] & ~BIT(r);                        \
                invited[r] = invited[r] | BIT(q) }                                                 \
    :: d_step { (fails[q] & BIT(r)) -> fails[q] = fails[q] & ~BIT(r); out[r] = out[r] | BIT(q) }   \
    :: d_step { (commits[q] & BIT(r)) -> commits[q] = commits[q] & ~BIT(r);                        \
                if                                                                                 \
                :: IN_IT(r) && agreed[r] -> decide(r)                                              \
                :: else                                                                            \
                fi; skip }                                                                         \
    :: d_step { !LIVES(q) && (invites[q] & BIT(r)) -> invites[q] = invites[q] & ~BIT(r) }          \
    :: d_step { !LIVES(q) && (fails[q] & BIT(r)) -> fails[q] = fails[q] & ~BIT(r) }                \
    :: d_step { !LIVES(q) && (commits[q] & BIT(r)) -> commits[q] = commits[q] & ~BIT(r) }          \
    :: d_step { LIVES(r) && q != r && !(gone[r] & BIT(q)) && (!LIVES(q) || (left & BIT(q))) &&     \
                (EARLY || !IN_FLIGHT(q, r)) -> gone[r] = gone[r] | BIT(q) }

/* Of its proposal of a ballot, and what rank q says to one of rank r. */
#define OF_BALLOT(q, b)                                                                            \
    :: d_step { (proposes[NUMBER(q, b)] & BIT(r)) ->                                               \
                proposes[NUMBER(q, b)] = proposes[NUMBER(q, b)] & ~BIT(r);                         \
                if                                                                                 \
                :: IN_IT(r) && (LATE || !LEADS(r)) && NUMBER(q, b) > agreed[r] &&                  \
                   NUMBER(q, b) > coming[r] -> coming[r] = NUMBER(q, b)                            \
                :: else                                                                            \
                fi; skip }                                                                         \
    :: d_step { !LIVES(q) && (proposes[NUMBER(q, b)] & BIT(r)) ->                                  \
                proposes[NUMBER(q, b)] = proposes[NUMBER(q, b)] & ~BIT(r) }                        \
    :: d_step { (acks[NUMBER(r, b)] & BIT(q)) ->                                                   \
                acks[NUMBER(r, b)] = acks[NUMBER(r, b)] & ~BIT(q);                                 \
                if                                                                                 \
                :: LEADS(r) && agreed[r] == NUMBER(r, b) -> acked[r] = acked[r] | BIT(q)           \
                :: else                                                                            \
                fi; skip }                                                                         \
    :: d_step { !LIVES(q) && (acks[NUMBER(r, b)] & BIT(q)) ->                                      \
                acks[NUMBER(r, b)] = acks[NUMBER(r, b)] & ~BIT(q) }

#if DEATHS == 0
#define OF_BALLOTS(q) OF_BALLOT(q, 0)
#elif DEATHS == 1
#define OF_BALLOTS(q) OF_BALLOT(q, 0) OF_BALLOT(q, 1)
#elif DEATHS == 2
#define OF_BALLOTS(q) OF_BALLOT(q, 0) OF_BALLOT(q, 1) OF_BALLOT(q, 2)
#else
#define OF_BALLOTS(q) OF_BALLOT(q, 0) OF_BALLOT(q, 1) OF_BALLOT(q, 2) OF_BALLOT(q, 3)
#endif

#define r _pid
active [P] proctype rank()
{
    do
    :: d_step { LIVES(r) && !(entered & BIT(r)) -> entered = entered | BIT(r);
                invites[r] = OTHERS(r) }
    :: d_step { LIVES(r) && !(entered & BIT(r)) && failures > 0 -> failures--;
                entered = entered | BIT(r); over = over | BIT(r); fails[r] = OTHERS(r) }
    :: d_step { LIVES(r) && deaths > 0 -> deaths--; alive = alive & ~BIT(r); forget(r); skip }
    :: d_step { LEAVES && LIVES(r) && (over & BIT(r)) && !(left & BIT(r)) ->
                left = left | BIT(r) }
    /* It takes over. */
    :: d_step { IN_IT(r) && !LEADS(r) && IS_LOWEST(r) && (agreed[r] == 0 || ANEW) &&
                KNOWS_ALL(r) -> leads = leads | BIT(r); choose(r); skip }
    :: d_step { IN_IT(r) && !LEADS(r) && IS_LOWEST(r) && agreed[r] && !ANEW ->
                leads = leads | BIT(r); inherits = inherits | BIT(r);
                set[NUMBER(r, 0)] = set[agreed[r]]; agreed[r] = NUMBER(r, 0); propose(r); skip }
    /* Somebody has died since it has proposed. */
    :: d_step { IN_IT(r) && LEADS(r) && !(inherits & BIT(r)) && knew[r] != gone[r] &&
                ballot[r] < BALLOTS - 1 -> ballot[r]++; choose(r); skip }
    :: d_step { IN_IT(r) && LEADS(r) && agreed[r] && OF(agreed[r]) == r && HAS_ACKS(r) ->
                decide(r); skip }
    :: d_step { IN_IT(r) && coming[r] && (LATE || !LEADS(r)) && HAS_INVITATIONS(r, coming[r]) &&
                KNOWS_THE_REST(r, coming[r]) ->
                agreed[r] = coming[r]; coming[r] = 0;
                if
                :: alive & BIT(OF(agreed[r])) -> acks[agreed[r]] = acks[agreed[r]] | BIT(r)
                :: else
                fi; skip }
    OF_RANK(0)
    OF_RANK(1)
    OF_BALLOTS(0)
    OF_BALLOTS(1)
#if P > 2
    OF_RANK(2)
    OF_BALLOTS(2)
#endif
#if P > 3
    OF_RANK(3)
    OF_BALLOTS(3)
#endif
    :: (alive & ~over) == 0 -> break
    od
}
