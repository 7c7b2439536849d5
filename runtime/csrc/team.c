/* A thread pool for kernels of `cpu`: helper threads run some work-items of a launch while the calling thread runs the
 * others.
 *
 * A launch is divided into items, each a range of work-items. Threads take one item at a time by a compare-and-swap.
 * The caller takes from the front and helpers take from the back, so that over successive launches items tend to stay
 * on the cores whose caches hold their data. The caller returns when all items are finished; it never waits for a
 * helper that has not taken an item. Helpers spin for a while after an item, and then sleep. Waking a helper takes the
 * caller longer than a small launch. So while helpers sleep, the caller runs launches alone, until consecutive launches
 * add up to the cost of waking.
 *
 * A helper on the caller's core would be scheduled alternately with the caller while each waits for the other. Linux in
 * virtual machines places helpers there, because an idle virtual core without a physical core looks busy, and moves
 * them only some 30 ms later. Therefore a helper's affinity excludes the core on which the caller was last seen.
 *
 * A forked child has no helpers, and starts its own when it needs them.
 *
 * There is one team per process. A thread that finds it busy runs its launch alone.
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

enum { SPIN_NS = 200 * 1000 };  /* time that a helper spins after an item before it sleeps */
enum { WAKE_NS = 60 * 1000 };  /* cost of waking helpers */
enum { POLLS = 32 };  /* polls for items between two readings of the clock */
enum { POLLS_BEFORE_YIELD = 4096, CACHE_LINE = 64, MAX_HELPERS = 1024 };
enum { CORE_CHECK_INTERVAL = 16 };  /* launches between two checks of the caller's core */
enum { STACK_BYTES = 16 << 20 };  /* kernels have arrays of up to 2 MiB on the stack */

#if defined(__x86_64__) || defined(__i386__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE() ((void)0)
#endif

enum { MAX_ITEMS = 0x7FFF };  /* per launch; an item usually has one work-item */

/* Written only while no item is left: */
static const Launch *current;
static size_t item_size;  /* work-items per item */
static _Atomic uint32_t max_helper_id;  /* helpers up to this id may take items */

static _Alignas(CACHE_LINE) _Atomic uint64_t items;  /* launch count << 32 | end << 16 | begin of the items left */
static _Alignas(CACHE_LINE) _Atomic uint32_t finished_items;
static _Alignas(CACHE_LINE) _Atomic uint32_t sleeping_helpers;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake_condition = PTHREAD_COND_INITIALIZER;
static uint32_t thread_count;  /* helpers started */
static struct { pthread_t thread; _Atomic int excluded_core; } helper[MAX_HELPERS];  /* core + 1, or 0 for none */
static _Atomic int caller_core;  /* last known core of the caller + 1; 0 if unknown */
static uint32_t helper_limit = UINT32_MAX;  /* maximum number of helpers, set by the user */
static atomic_flag busy = ATOMIC_FLAG_INIT;

static int has_items(uint64_t word) { return (word & 0xFFFF) < (word >> 16 & 0xFFFF); }

/* Take the next item, for the caller (id 0) or a helper (id from 1). Return -1 if there is none. Reading
 * `max_helper_id` before the swap is safe: it belongs to the same launch as `items`, because the next launch is not
 * written while an item of this one is left. */
static int take_item(uint32_t helper_id) {
    uint64_t now = atomic_load_explicit(&items, memory_order_acquire), next;
    do {
        if (!has_items(now) || helper_id > atomic_load_explicit(&max_helper_id, memory_order_relaxed)) return -1;
        next = helper_id ? now - (1 << 16) : now + 1;
    } while (!atomic_compare_exchange_weak_explicit(&items, &now, next, memory_order_acq_rel, memory_order_acquire));
    return (int)(helper_id ? (now >> 16 & 0xFFFF) - 1 : now & 0xFFFF);
}

static void run_item(int item) {
    size_t begin = (size_t)item * item_size, end = begin + item_size;
    current->code(current->arguments, current->size, begin, end < current->items ? end : current->items);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#ifdef __linux__
static void record_caller_core(void) { atomic_store_explicit(&caller_core, sched_getcpu() + 1, memory_order_relaxed); }

/* Set a helper's affinity to all cores of the process except the caller's, if there are others. */
static void avoid_caller_core(uint32_t index) {
    cpu_set_t cores;
    int core = atomic_load_explicit(&caller_core, memory_order_relaxed);
    if (core < 1 || core == atomic_load(&helper[index].excluded_core) ||
        sched_getaffinity(getpid(), sizeof cores, &cores))
        return;
    CPU_CLR(core - 1, &cores);
    if (CPU_COUNT(&cores) && !pthread_setaffinity_np(helper[index].thread, sizeof cores, &cores))
        atomic_store(&helper[index].excluded_core, core);
}

static int is_on_caller_core(void) {
    return sched_getcpu() + 1 == atomic_load_explicit(&caller_core, memory_order_relaxed);
}
#else
static void record_caller_core(void) {}
static void avoid_caller_core(uint32_t index) { (void)index; }
static int is_on_caller_core(void) { return 0; }
#endif

static void sleep_until_woken(void) {
    pthread_mutex_lock(&lock);
    atomic_fetch_add(&sleeping_helpers, 1);
    while (!has_items(atomic_load(&items))) pthread_cond_wait(&wake_condition, &lock);
    atomic_fetch_sub(&sleeping_helpers, 1);
    pthread_mutex_unlock(&lock);
}

static void *run_helper(void *argument) {
    uint32_t helper_id = (uint32_t)(uintptr_t)argument;
    helper[helper_id - 1].thread = pthread_self();  /* the starting thread may not have written it yet */
    set_kernel_rounding();
    for (int64_t since = now_ns();;) {
        int item = take_item(helper_id);
        if (item >= 0) {
            run_item(item);
            /* On x86 a locked instruction also waits for non-temporal stores; a plain store would not. */
            atomic_fetch_add_explicit(&finished_items, 1, memory_order_release);
            since = now_ns();
        } else if (now_ns() - since > SPIN_NS) {
            sleep_until_woken();
            since = now_ns();
        } else {
            if (is_on_caller_core()) avoid_caller_core(helper_id - 1);
            for (int i = 0; i < POLLS && !has_items(atomic_load_explicit(&items, memory_order_relaxed)); i++) PAUSE();
        }
    }
    return NULL;
}

/* Reset the state in a forked child, which has no helper threads. */
static void reset_after_fork(void) {
    static const pthread_mutex_t fresh_lock = PTHREAD_MUTEX_INITIALIZER;
    static const pthread_cond_t fresh_condition = PTHREAD_COND_INITIALIZER;
    thread_count = 0, lock = fresh_lock, wake_condition = fresh_condition;
    atomic_store(&sleeping_helpers, 0), atomic_store(&items, 0), atomic_store(&finished_items, 0);
    atomic_flag_clear(&busy);
}

/* Start threads until there are `helpers` of them, or no more can be created. */
static void start_helpers(uint32_t helpers) {
    static int has_fork_handler;
    sigset_t all_signals, old_signals;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes)) return;
    if (!has_fork_handler) has_fork_handler = !pthread_atfork(NULL, NULL, reset_after_fork);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&all_signals);
    pthread_sigmask(SIG_SETMASK, &all_signals, &old_signals);  /* helpers block all signals: Python handles them */
    for (; thread_count < helpers && thread_count < MAX_HELPERS; thread_count++) {
        pthread_t *thread = &helper[thread_count].thread;
        if (pthread_create(thread, &attributes, run_helper, (void *)(uintptr_t)(thread_count + 1))) break;
        pthread_detach(*thread);
    }
    pthread_sigmask(SIG_SETMASK, &old_signals, NULL);
    pthread_attr_destroy(&attributes);
}

static void run_alone(const Launch *launch) { launch->code(launch->arguments, launch->size, 0, launch->items); }

/* Return whether to wake sleeping helpers for a launch that takes `expected_ns` on one thread. */
static int is_worth_waking(int64_t expected_ns) {
    static int64_t skipped_ns, last_call;
    int64_t now = now_ns();
    if (now - last_call > SPIN_NS) skipped_ns = 0;
    last_call = now;
    if ((skipped_ns += expected_ns) < WAKE_NS) return 0;
    skipped_ns = 0;
    return 1;
}

/* Run a launch on the calling thread and up to `helpers` helpers. expected_ns: estimated time on one thread. */
void team_run(const Launch *launch, uint32_t helpers, int64_t expected_ns) {
    static uint64_t launches;
    if (helpers > helper_limit) helpers = helper_limit;
    if (helpers == 0 || launch->items < 2 || atomic_flag_test_and_set_explicit(&busy, memory_order_acquire)) {
        run_alone(launch);
        return;
    }
    uint32_t sleeping = atomic_load(&sleeping_helpers), should_wake = 0;
    if (sleeping || thread_count < helpers) should_wake = is_worth_waking(expected_ns);
    if (should_wake || launches % CORE_CHECK_INTERVAL == 0) record_caller_core();
    if (should_wake && thread_count < helpers) start_helpers(helpers);
    if (should_wake)
        for (uint32_t i = 0; i < thread_count; i++) avoid_caller_core(i);
    if (sleeping < thread_count || should_wake) {
        current = launch;
        item_size = (launch->items + MAX_ITEMS - 1) / MAX_ITEMS;
        uint32_t item_count = (uint32_t)((launch->items + item_size - 1) / item_size);
        atomic_store_explicit(&max_helper_id, helpers, memory_order_relaxed);
        atomic_store_explicit(&finished_items, 0, memory_order_relaxed);
        atomic_store(&items, ++launches << 32 | (uint64_t)item_count << 16);
        if (should_wake && atomic_load(&sleeping_helpers)) {
            pthread_mutex_lock(&lock);
            pthread_cond_broadcast(&wake_condition);
            pthread_mutex_unlock(&lock);
        }
        uint32_t helper_items = item_count;
        for (int item; (item = take_item(0)) >= 0; helper_items--) run_item(item);
        for (uint32_t polls = 0; atomic_load_explicit(&finished_items, memory_order_acquire) < helper_items; polls++) {
            if (polls < POLLS_BEFORE_YIELD) PAUSE();
            else sched_yield();
        }
    } else run_alone(launch);
    atomic_flag_clear_explicit(&busy, memory_order_release);
}

/* Set the maximum number of helpers. */
void team_limit(uint32_t helpers) { helper_limit = helpers; }

#else
void team_run(const Launch *launch, uint32_t helpers, int64_t expected_ns) {
    (void)helpers, (void)expected_ns;
    launch->code(launch->arguments, launch->size, 0, launch->items);
}

void team_limit(uint32_t helpers) { (void)helpers; }
#endif
