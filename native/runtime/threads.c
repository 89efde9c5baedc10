/* threads.c: the one pool. parallel_for cuts a range into pieces that idle threads take in turn.
 *
 * The calling thread is worker 0 and works too. Workers spin for a while after a job (the next one of
 * a step usually follows within microseconds), then sleep on a condition. A second caller finds the
 * pool busy and runs its range on its own thread. A forked child starts afresh: its pool is empty.
 *
 * `state` holds everything that must change together: bit 0 says that the job is open, bits 1 to 15
 * count the workers inside it, the bits above number the jobs. A worker enters by adding 2 while the
 * job is open; the caller closes it when no piece is left and waits only for those inside, never for
 * one that still sleeps.
 */
#include "runtime.h"
#include "../port/port.h"
#include <pthread.h>
#if !defined(_WIN32)
#include <sched.h>
#endif

enum { MAX_THREADS = 256, SPINS = 4000, SLOTS = 4, PIECES = 4 };

typedef struct job {
    cdl_range_fn fn;
    void *ctx;
    int64_t range, piece;
    int64_t next; /* first element that nobody took yet; atomic */
} job;

static struct pool {
    pthread_mutex_t gate;  /* held by the caller whose job runs */
    pthread_mutex_t mutex; /* guards sleeping */
    pthread_cond_t wake;
    job now;
    uint64_t state;   /* see above; atomic */
    int32_t workers;  /* threads started, the caller not counted */
    int32_t wanted;   /* size of the pool, the caller counted; 0: not yet known */
    int32_t sleepers; /* atomic */
    bool stop;        /* atomic */
    pthread_t thread[MAX_THREADS];
} pool = {.gate = PTHREAD_MUTEX_INITIALIZER, .mutex = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static _Thread_local bool inside; /* a worker, or a caller whose job runs: nested loops run inline */
static _Thread_local struct {
    void *memory;
    uint64_t size;
} scratch[SLOTS];

static void scratch_drop(void) {
    for (int32_t i = 0; i < SLOTS; i++) {
        cdl_port_free(scratch[i].memory);
        scratch[i].memory = NULL;
        scratch[i].size = 0;
    }
}

/* A thread's scratch goes with the thread, whoever started it. */
static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;

static void scratch_leave(void *unused) {
    (void)unused;
    scratch_drop();
}

static void scratch_make_key(void) { pthread_key_create(&scratch_key, scratch_leave); }

void *cdl_scratch(int32_t slot, uint64_t bytes) {
    if (scratch[slot].size < bytes) {
        cdl_port_free(scratch[slot].memory);
        uint64_t size = (bytes + 65535) / 65536 * 65536;
        scratch[slot].memory = cdl_port_alloc(size);
        scratch[slot].size = scratch[slot].memory ? size : 0;
        pthread_once(&scratch_once, scratch_make_key);
        pthread_setspecific(scratch_key, scratch);
    }
    return scratch[slot].memory;
}

CDL_INLINE void pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void take_pieces(job *j) {
    for (;;) {
        int64_t begin = __atomic_fetch_add(&j->next, j->piece, __ATOMIC_RELAXED);
        if (begin >= j->range) return;
        j->fn(j->ctx, begin, CDL_MIN(begin + j->piece, j->range));
    }
}

enum { OPEN = 1, ONE_INSIDE = 2, INSIDE = 0xfffe, NUMBER_SHIFT = 16 };

/* Enters the open job if its number is not `seen`; answers its number, or `seen` if there is none. */
static uint64_t try_enter(uint64_t seen) {
    uint64_t s = __atomic_load_n(&pool.state, __ATOMIC_ACQUIRE);
    while ((s & OPEN) && s >> NUMBER_SHIFT != seen)
        if (__atomic_compare_exchange_n(&pool.state, &s, s + ONE_INSIDE, true, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return s >> NUMBER_SHIFT;
    return seen;
}

static bool stopping(void) { return __atomic_load_n(&pool.stop, __ATOMIC_RELAXED); }

/* Spins, then sleeps, until there is a job to enter (its number) or the pool stops (`seen`). */
static uint64_t wait_to_enter(uint64_t seen) {
    uint64_t got = seen;
    for (int32_t i = 0; i < SPINS && got == seen && !stopping(); i++) {
        got = try_enter(seen);
        pause_cpu();
    }
    if (got != seen || stopping()) return got;
    pthread_mutex_lock(&pool.mutex);
    __atomic_fetch_add(&pool.sleepers, 1, __ATOMIC_SEQ_CST);
    while ((got = try_enter(seen)) == seen && !stopping()) pthread_cond_wait(&pool.wake, &pool.mutex);
    __atomic_fetch_sub(&pool.sleepers, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&pool.mutex);
    return got;
}

static void *worker(void *start) {
    uint64_t seen = (uint64_t)(uintptr_t)start, got;
    inside = true;
    while ((got = wait_to_enter(seen)) != seen) {
        seen = got;
        take_pieces(&pool.now);
        __atomic_fetch_sub(&pool.state, ONE_INSIDE, __ATOMIC_RELEASE);
    }
    scratch_drop();
    return NULL;
}

static void wake_all(void) {
    if (!__atomic_load_n(&pool.sleepers, __ATOMIC_SEQ_CST)) return;
    pthread_mutex_lock(&pool.mutex);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.mutex);
}

/* A child of fork has no workers: forget them, and make the locks anew. */
static void after_fork(void) {
    pool = (struct pool){.gate = PTHREAD_MUTEX_INITIALIZER, .mutex = PTHREAD_MUTEX_INITIALIZER,
                         .wake = PTHREAD_COND_INITIALIZER, .wanted = pool.wanted};
    inside = false;
}

static int32_t parse_count(const char *text) {
    int64_t n = 0;
    for (; text && *text >= '0' && *text <= '9' && n <= MAX_THREADS; text++) n = n * 10 + (*text - '0');
    return text && *text == 0 && n >= 1 && n <= MAX_THREADS ? (int32_t)n : 0;
}

/* Both with the gate held. */
static void stop_workers(void) {
    __atomic_store_n(&pool.stop, true, __ATOMIC_RELAXED);
    pthread_mutex_lock(&pool.mutex);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.mutex);
    for (int32_t i = 0; i < pool.workers; i++) pthread_join(pool.thread[i], NULL);
    pool.workers = 0;
    __atomic_store_n(&pool.stop, false, __ATOMIC_RELAXED);
}

static void start_workers(void) {
    static bool registered;
    if (!registered) {
#if !defined(_WIN32)
        pthread_atfork(NULL, NULL, after_fork);
#endif
        registered = true;
    }
    void *seen = (void *)(uintptr_t)(pool.state >> NUMBER_SHIFT);
    while (pool.workers + 1 < pool.wanted) {
        if (pthread_create(&pool.thread[pool.workers], NULL, worker, seen) != 0) break;
        pool.workers++;
    }
}

static int32_t wanted(void) {
    if (pool.wanted) return pool.wanted;
    int32_t asked = parse_count(cdl_port_getenv("CANDLE_NUM_THREADS"));
    return pool.wanted = asked ? asked : CDL_MIN(cdl_port_cpus(), MAX_THREADS);
}

CDL_API int32_t cdl_threads(void) { return wanted(); }

CDL_API int32_t cdl_threads_set(int32_t n) {
    if (n < 1 || n > MAX_THREADS) return CDL_EPARAM;
    pthread_mutex_lock(&pool.gate);
    if (n != pool.wanted) stop_workers();
    pool.wanted = n;
    pthread_mutex_unlock(&pool.gate);
    return CDL_OK;
}

/* Elements a piece: several pieces a thread, so that a slow one does not hold up the rest. */
static int64_t piece_size(int64_t range, int64_t grain, int32_t threads) {
    int64_t pieces = CDL_MAX(range / grain, 1), most = (int64_t)threads * PIECES;
    if (pieces > most) pieces = most;
    int64_t piece = (range + pieces - 1) / pieces;
    return (piece + grain - 1) / grain * grain;
}

void cdl_parallel_for(int64_t range, int64_t grain, cdl_range_fn fn, void *ctx) {
    if (range <= 0) return;
    if (grain < 1) grain = 1;
    if (range <= grain || inside || wanted() == 1 || pthread_mutex_trylock(&pool.gate) != 0) {
        fn(ctx, 0, range);
        return;
    }
    inside = true;
    start_workers();
    pool.now = (job){.fn = fn, .ctx = ctx, .range = range, .piece = piece_size(range, grain, pool.workers + 1)};
    __atomic_fetch_add(&pool.state, (1ull << NUMBER_SHIFT) + OPEN, __ATOMIC_SEQ_CST);
    wake_all();
    take_pieces(&pool.now);
    uint64_t s = __atomic_and_fetch(&pool.state, ~(uint64_t)OPEN, __ATOMIC_ACQ_REL);
    for (int32_t spins = 0; s & INSIDE; spins++) {
        pause_cpu();
#if !defined(_WIN32)
        if (spins > SPINS) sched_yield();
#endif
        s = __atomic_load_n(&pool.state, __ATOMIC_ACQUIRE);
    }
    inside = false;
    pthread_mutex_unlock(&pool.gate);
}
