/* One stripe and one session, N workers, and the supervisor that repairs the stripe.
 *
 * A worker may be killed before every access to shared memory (KILLS times in all), or thrown out of the critical
 * section by an exception there (THROWS times). A store may linger in a buffer: an intent becomes visible at any time up
 * to the semaphore, which is a locked instruction, and the flag at any time up to the end of the settling time.
 *
 * Checked: at most one worker inside; never two tokens; never two live owners of the session; no state in which somebody
 * waits for ever; at the end one token, no flag, no intent. Mutants take one guard out each, and must fail:
 *   NOQUIESCE NOFLAG NOSETTLE HOLDERONLY READYONLY CLEARFIRST NOABANDON POSTALWAYS BLOCKING
 */
#ifndef N
#define N 2
#endif
#ifndef KILLS
#define KILLS 2
#endif
#ifndef THROWS
#define THROWS 1
#endif
#ifndef OPS
#define OPS 2
#endif
#ifndef DRAINS
#define DRAINS 1
#endif

#define DEAD 0
#define READY 1
#define DRAINING 2

#define MARK 1       /* intent of the stripe */
#define ABANDONED 2  /* its worker lives, but was thrown out */

byte sem = 1;
bool flag, flag_buffered;
byte intent[N];
bool buffered[N];    /* the intent's store is on its way */
byte state[N];       /* the ring, as everybody reads it */
byte slot;           /* owner + 1; 0: empty */
bool slot_dead;      /* the owner's incarnation is dead, whoever has its row now */

byte kills, throws, drains, left[N];
bool killed[N];      /* dead, and not reaped yet */
bool finished[N];
bool inside[N];      /* what is true, for the assertions: inside the critical section, and alive */
bool owns[N];
bool asleep[N], woken[N];  /* BLOCKING alone */

#ifdef READYONLY
#define LIVE(j) (state[j] == READY)
#else
#define LIVE(j) (state[j] != DEAD)
#endif
#if N > 2
#define OTHERS(what, i) (((i) != 0 && what[0]) || ((i) != 1 && what[1]) || ((i) != 2 && what[2]))
#define ANY(condition) (condition(0) || condition(1) || condition(2))
#define ALL(condition) (condition(0) && condition(1) && condition(2))
#else
#define OTHERS(what, i) (((i) != 0 && what[0]) || ((i) != 1 && what[1]))
#define ANY(condition) (condition(0) || condition(1))
#define ALL(condition) (condition(0) && condition(1))
#endif
#define LIVE_INSIDE(j) (LIVE(j) && intent[j] == MARK)
#define DUE(j) ((state[j] == DEAD && intent[j] != 0) || intent[j] == ABANDONED)
#define KILLED(j) (killed[j])
#define DONE(j) (finished[j] && intent[j] == 0)

#define K if :: kills < KILLS -> kills++; goto dies :: skip fi
#define T if :: throws < THROWS -> throws++; goto thrown :: skip fi

inline land(j) { if :: buffered[j] -> intent[j] = MARK; buffered[j] = false :: else fi }
inline take() { sem--; assert(!OTHERS(inside, i)); inside[i] = true }
inline post() {
    sem++; assert(sem <= 1);
#ifdef BLOCKING
    if  /* wakes one sleeper, and that one only */
    :: asleep[0] && !woken[0] -> woken[0] = true
    :: asleep[1] && !woken[1] -> woken[1] = true
#if N > 2
    :: asleep[2] && !woken[2] -> woken[2] = true
#endif
    :: else
    fi
#endif
}

proctype worker(byte i) {
    bool published;
again:
    published = false;
    if :: left[i] == 0 -> goto ends :: else -> left[i]-- fi;
retry:
    K;
    intent[i] == 0;  /* thrown out before: not until the supervisor has looked */
#ifndef HOLDERONLY
    atomic { buffered[i] = true };
    K; T;
#ifndef NOFLAG
    if :: flag -> atomic { land(i) }; K; T; intent[i] = 0; !flag; goto retry :: else fi;
    K; T;
#endif
#endif
#ifdef BLOCKING
    atomic { land(i) };
    do
    :: atomic { sem > 0 -> take() }; break
    :: atomic { sem == 0 -> asleep[i] = true; woken[i] = false };
        woken[i]; K; asleep[i] = false  /* woken, and killed before it takes the token */
    od;
#else
    atomic {  /* the one try; a locked instruction, so the intent lands before it */
        land(i);
        if :: sem > 0 -> take() :: else -> goto busy fi
    };
#endif
    K; T;
#ifdef HOLDERONLY
    intent[i] = MARK;
    K; T;
#endif
    if
    :: owns[i] -> atomic { assert(slot == i + 1 && !slot_dead); owns[i] = false; slot = 0 }
    :: !owns[i] && (slot == 0 || slot_dead || !LIVE(slot - 1)) ->
        K; T;
        atomic { slot = 0; slot_dead = false };
        K; T;
        atomic { slot = i + 1; assert(!OTHERS(owns, i)); owns[i] = true; published = true }
    :: else
    fi;
    K; T;
#if defined(CLEARFIRST) || defined(HOLDERONLY)
    intent[i] = 0;
    K; T;
    atomic { inside[i] = false; post() };
#else
    atomic { inside[i] = false; post() };
    K; T;
    intent[i] = 0;
#endif
    goto again;
busy:
    K; T;
    intent[i] = 0;
    (sem > 0 || flag);
    goto retry;
thrown:
    atomic { inside[i] = false; land(i) };
    if :: published -> atomic { owns[i] = false; slot = 0 } :: else fi;  /* the caller never got the handle */
    K;
#ifndef NOABANDON
    if :: intent[i] != 0 -> intent[i] = ABANDONED :: else fi;
#endif
    goto again;
dies:
    atomic { land(i); inside[i] = false; owns[i] = false; asleep[i] = false; killed[i] = true };
    goto over;
ends:
    finished[i] = true;
over:
    skip
}

inline mark_dead(j) { killed[j] = false; state[j] = DEAD; if :: slot == j + 1 -> slot_dead = true :: else fi }
inline start(j) { state[j] = READY; run worker(j) }

/* Stores reach memory when they like. */
active proctype memory() {
end:
    do
    :: atomic { buffered[0] -> intent[0] = MARK; buffered[0] = false }
    :: atomic { buffered[1] -> intent[1] = MARK; buffered[1] = false }
#if N > 2
    :: atomic { buffered[2] -> intent[2] = MARK; buffered[2] = false }
#endif
    :: atomic { flag_buffered -> flag = true; flag_buffered = false }
    od
}

active proctype supervisor() {
    byte j, value;
    atomic {
        for (j : 0 .. N - 1) { left[j] = OPS; start(j) }
    };
watch:
    do
    :: atomic { killed[0] -> mark_dead(0) }
    :: atomic { killed[1] -> mark_dead(1) }
#if N > 2
    :: atomic { killed[2] -> mark_dead(2) }
#endif
    :: atomic { state[0] == DEAD && intent[0] == 0 -> start(0) }
    :: atomic { state[1] == DEAD && intent[1] == 0 -> start(1) }
#if N > 2
    :: atomic { state[2] == DEAD && intent[2] == 0 -> start(2) }
#endif
    :: atomic { drains < DRAINS && state[0] == READY -> drains++; state[0] = DRAINING }
    :: ANY(DUE) -> goto repair
    :: atomic { slot_dead && sem > 0 -> sem-- };  /* the sweep: tried once, looks again, empties, posts */
        if :: slot_dead -> atomic { slot = 0; slot_dead = false } :: else fi;
        atomic { post() }
    :: ALL(DONE) -> goto all_done
    od;
repair:
    flag_buffered = true;
quiesce:
    do
    :: atomic { killed[0] -> mark_dead(0) }
    :: atomic { killed[1] -> mark_dead(1) }
#if N > 2
    :: atomic { killed[2] -> mark_dead(2) }
#endif
#ifdef NOQUIESCE
    :: else -> break
#else
    :: !ANY(LIVE_INSIDE) -> break
#endif
    od;
#ifndef NOSETTLE
    atomic { if :: flag_buffered -> flag = true; flag_buffered = false :: else fi };
    for (j : 0 .. N - 1) { !buffered[j] }
#ifndef NOQUIESCE
    for (j : 0 .. N - 1) {  /* the second look, one row after the other */
        if :: LIVE_INSIDE(j) -> goto quiesce :: else fi
    }
#endif
#endif
    value = sem;
    assert(value <= 1);
#ifdef POSTALWAYS
    atomic { post() };
#else
    if :: value == 0 -> atomic { post() } :: else fi;
#endif
    for (j : 0 .. N - 1) {
        if :: DUE(j) -> intent[j] = 0 :: else fi
    }
    atomic { flag_buffered = false; flag = false };
    goto watch;
all_done:
    assert(sem == 1 && !flag && !flag_buffered)
}
