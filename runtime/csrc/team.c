/* A team: threads that run some work-items of a launch while the calling thread runs the others.
 *
 * Items are taken one at a time, by one compare-and-swap: the caller takes from the front and helpers from the back, so
 * that items stay with the cores whose caches have them. Who calls returns when all are done. Helpers spin for a while
 * after an item, and sleep then. One that is late leaves the work to the others; nothing waits for a thread that has
 * taken nothing. Waking one costs the caller more than small launches take: while helpers sleep, launches are the
 * caller's alone until those that follow one another add up to that cost.
 *
 * A helper on the caller's core would take turns with it where each waits for the other. Kernels of virtual machines put
 * them there (to the scheduler an idle core whose host lent it away looks occupied), and move them some 30 ms later: so
 * a helper is kept from the core on which the caller was last seen.
 *
 * A child of a fork has no helpers, and starts its own when it first needs them.
 *
 * There is one team a process. Who finds it at work for another thread does its own launch alone.
 */
#define _GNU_SOURCE
#include "native.h"

#if !defined(_WIN32) && !defined(__STDC_NO_ATOMICS__)
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { SPIN_NS = 200 * 1000, WAKE_NS = 60 * 1000, POLLS = 32, PATIENCE = 4096, LINE = 64, MOST_HELPERS = 1024 };
enum { LOOKS = 16 };  /* launches from one look at where the caller is to the next */
enum { STACK = 16 << 20 };  /* bytes: kernels have arrays of up to two megabytes there */

#if defined(__x86_64__) || defined(__i386__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE() ((void)0)
#endif

enum { MOST_SHARES = 0x7FFF };  /* of a launch: an item is a share of its work-items, mostly one */

static const Launch *current;  /* written while no item is left, as are `share`, the work-items in an item, */
static size_t share;           /* and `allowed`, how many helpers may take items */
static _Atomic uint32_t allowed;
static _Alignas(LINE) _Atomic uint64_t items;  /* launches counted << 32 | end << 16 | begin: items not taken yet */
static _Alignas(LINE) _Atomic uint32_t done;
static _Alignas(LINE) _Atomic uint32_t asleep;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t bell = PTHREAD_COND_INITIALIZER;
static uint32_t threads;  /* that were started */
static struct { pthread_t thread; _Atomic int kept_from; } helper[MOST_HELPERS];  /* a core + 1, 0: from none */
static _Atomic int callers;  /* the caller's core + 1, as last seen; 0: not known */
static uint32_t most = UINT32_MAX;  /* that may take part, by the user's wish */
static atomic_flag busy = ATOMIC_FLAG_INIT;

static int is_left(uint64_t word) { return (word & 0xFFFF) < (word >> 16 & 0xFFFF); }

/* The next item of the caller (who = 0) or of a helper (from 1); -1 if there is none. A helper reads how many take part
 * before it takes: both are of one launch, since the next is not written while an item of this one is left. */
static int taken(uint32_t who) {
    uint64_t now = atomic_load_explicit(&items, memory_order_acquire), next;
    do {
        if (!is_left(now) || who > atomic_load_explicit(&allowed, memory_order_relaxed)) return -1;
        next = who ? now - (1 << 16) : now + 1;
    } while (!atomic_compare_exchange_weak_explicit(&items, &now, next, memory_order_acq_rel, memory_order_acquire));
    return (int)(who ? (now >> 16 & 0xFFFF) - 1 : now & 0xFFFF);
}

static void perform(int item) {
    size_t begin = (size_t)item * share, end = begin + share;
    current->code(current->arguments, current->size, begin, end < current->items ? end : current->items);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#ifdef __linux__
static void see_caller(void) { atomic_store_explicit(&callers, sched_getcpu() + 1, memory_order_relaxed); }

/* Let a helper run on all cores of the process but the caller's, if it has others. */
static void keep_away(uint32_t who) {
    cpu_set_t cores;
    int from = atomic_load_explicit(&callers, memory_order_relaxed);
    if (from < 1 || from == atomic_load(&helper[who].kept_from) || sched_getaffinity(getpid(), sizeof cores, &cores))
        return;
    CPU_CLR(from - 1, &cores);
    if (CPU_COUNT(&cores) && !pthread_setaffinity_np(helper[who].thread, sizeof cores, &cores))
        atomic_store(&helper[who].kept_from, from);
}

static int is_beside_caller(void) { return sched_getcpu() + 1 == atomic_load_explicit(&callers, memory_order_relaxed); }
#else
static void see_caller(void) {}
static void keep_away(uint32_t who) { (void)who; }
static int is_beside_caller(void) { return 0; }
#endif

static void sleep_until_rung(void) {
    pthread_mutex_lock(&lock);
    atomic_fetch_add(&asleep, 1);
    while (!is_left(atomic_load(&items))) pthread_cond_wait(&bell, &lock);
    atomic_fetch_sub(&asleep, 1);
    pthread_mutex_unlock(&lock);
}

static void *help(void *argument) {
    uint32_t who = (uint32_t)(uintptr_t)argument;
    helper[who - 1].thread = pthread_self();  /* who started it may not have written that yet */
    set_kernel_rounding();
    for (int64_t since = now_ns();;) {
        int item = taken(who);
        if (item >= 0) {
            perform(item);
            /* On x86 this is locked, and so waits for stores past the caches too; a plain store would not. */
            atomic_fetch_add_explicit(&done, 1, memory_order_release);
            since = now_ns();
        } else if (now_ns() - since > SPIN_NS) {
            sleep_until_rung();
            since = now_ns();
        } else {
            if (is_beside_caller()) keep_away(who - 1);
            for (int i = 0; i < POLLS && !is_left(atomic_load_explicit(&items, memory_order_relaxed)); i++) PAUSE();
        }
    }
    return NULL;
}

/* In the child of a fork: the helpers are the parent's. */
static void forget_helpers(void) {
    static const pthread_mutex_t fresh_lock = PTHREAD_MUTEX_INITIALIZER;
    static const pthread_cond_t fresh_bell = PTHREAD_COND_INITIALIZER;
    threads = 0, lock = fresh_lock, bell = fresh_bell;
    atomic_store(&asleep, 0), atomic_store(&items, 0), atomic_store(&done, 0);
    atomic_flag_clear(&busy);
}

/* Have as many helpers as that, if threads can be had. */
static void start(uint32_t helpers) {
    static int watches_forks;
    sigset_t all, before;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes)) return;
    if (!watches_forks) watches_forks = !pthread_atfork(NULL, NULL, forget_helpers);
    pthread_attr_setstacksize(&attributes, STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  /* signals are the interpreter's */
    for (; threads < helpers && threads < MOST_HELPERS; threads++) {
        pthread_t *thread = &helper[threads].thread;
        if (pthread_create(thread, &attributes, help, (void *)(uintptr_t)(threads + 1))) break;
        pthread_detach(*thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

static void alone(const Launch *launch) { launch->code(launch->arguments, launch->size, 0, launch->items); }

/* Whether helpers that sleep are woken now, for a launch that takes one thread so long. */
static int is_worth_waking(int64_t expected_ns) {
    static int64_t owed, last;
    int64_t now = now_ns();
    if (now - last > SPIN_NS) owed = 0;
    last = now;
    if ((owed += expected_ns) < WAKE_NS) return 0;
    owed = 0;
    return 1;
}

/* Run a launch by the calling thread and that many helpers. expected_ns: what one thread takes for it, roughly. */
void team_run(const Launch *launch, uint32_t helpers, int64_t expected_ns) {
    static uint64_t launches;
    if (helpers > most) helpers = most;
    if (helpers == 0 || launch->items < 2 || atomic_flag_test_and_set_explicit(&busy, memory_order_acquire)) {
        alone(launch);
        return;
    }
    uint32_t sleep = atomic_load(&asleep), wakes = 0;
    if (sleep || threads < helpers) wakes = is_worth_waking(expected_ns);
    if (wakes || launches % LOOKS == 0) see_caller();
    if (wakes && threads < helpers) start(helpers);
    if (wakes)
        for (uint32_t i = 0; i < threads; i++) keep_away(i);
    if (sleep < threads || wakes) {
        current = launch;
        share = (launch->items + MOST_SHARES - 1) / MOST_SHARES;
        uint32_t shares = (uint32_t)((launch->items + share - 1) / share);
        atomic_store_explicit(&allowed, helpers, memory_order_relaxed);
        atomic_store_explicit(&done, 0, memory_order_relaxed);
        atomic_store(&items, ++launches << 32 | (uint64_t)shares << 16);
        if (wakes && atomic_load(&asleep)) {
            pthread_mutex_lock(&lock);
            pthread_cond_broadcast(&bell);
            pthread_mutex_unlock(&lock);
        }
        uint32_t others = shares;
        for (int item; (item = taken(0)) >= 0; others--) perform(item);
        for (uint32_t polls = 0; atomic_load_explicit(&done, memory_order_acquire) < others; polls++) {
            if (polls < PATIENCE) PAUSE();
            else sched_yield();
        }
    } else alone(launch);
    atomic_flag_clear_explicit(&busy, memory_order_release);
}

/* Have at most that many helpers from now on. */
void team_limit(uint32_t helpers) { most = helpers; }

#else
void team_run(const Launch *launch, uint32_t helpers, int64_t expected_ns) {
    (void)helpers, (void)expected_ns;
    launch->code(launch->arguments, launch->size, 0, launch->items);
}

void team_limit(uint32_t helpers) { (void)helpers; }
#endif
