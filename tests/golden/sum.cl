// sum(input, dim, keepdim, dtype): map acc = input, combine acc = a + b, finish out = acc
typedef struct { long offset[BUFFERS]; } NAME(Dynamic);
typedef struct {
    long outputs, count;  // number of results, and of reduced elements per result
    long splits;          // partial states per result
    long outer;           // rows: `count` without the innermost reduced dimension
    long chunk[3];        // share of one work-item in each dimension of the launch
    long across;          // tree: neighbouring results per work-group
    long kept[KEPT], reduced[REDUCED];
    long kept_stride[2 * KEPT], stride[1 * REDUCED];
} NAME(Geometry);

typedef struct { C acc; } NAME(State);
static inline WG_INLINE NAME(State) NAME(sum_identity_scalar)(void) {
    NAME(State) state;
    state.acc = (C)((0));
    return state;
}
static inline WG_INLINE NAME(State) NAME(sum_map_scalar)(C input, long index) {
    NAME(State) state;
    state.acc = input;
    return state;
}
static inline WG_INLINE NAME(State) NAME(sum_combine_scalar)(NAME(State) first, NAME(State) second) {
    NAME(State) state;
    state.acc = (C)(first.acc + second.acc);
    return state;
}
static inline WG_INLINE void NAME(sum_finish_scalar)(NAME(State) state, C n, C *y0) {
    *y0 = state.acc;
}

#ifdef VECTOR
typedef struct { V acc; } NAME(States);
static inline WG_INLINE NAME(States) NAME(sum_identity_vector)(void) {
    NAME(States) state;
    state.acc = (V)((0));
    return state;
}
static inline WG_INLINE NAME(States) NAME(sum_map_vector)(V input, L index) {
    NAME(States) state;
    state.acc = input;
    return state;
}
static inline WG_INLINE NAME(States) NAME(sum_combine_vector)(NAME(States) first, NAME(States) second) {
    NAME(States) state;
    state.acc = first.acc + second.acc;
    return state;
}
static inline WG_INLINE void NAME(sum_finish_vector)(NAME(States) state, C n, V *y0) {
    *y0 = state.acc;
}
// Combine the lanes of a state by halving the vector repeatedly: the order is fixed and rounding errors of a sum stay
// small.
static inline WG_INLINE NAME(State) NAME(sum_fold)(NAME(States) states) {
    NAME(States) other;
#if LANES == 16
    other.acc = states.acc.s89abcdef01234567; 
    states = NAME(sum_combine_vector)(states, other);
    other.acc = states.acc.s45670123cdef89ab; 
    states = NAME(sum_combine_vector)(states, other);
    other.acc = states.acc.s23016745ab89efcd; 
    states = NAME(sum_combine_vector)(states, other);
    other.acc = states.acc.s1032547698badcfe; 
    states = NAME(sum_combine_vector)(states, other);
#endif
#if LANES == 8
    other.acc = states.acc.s45670123; 
    states = NAME(sum_combine_vector)(states, other);
    other.acc = states.acc.s23016745; 
    states = NAME(sum_combine_vector)(states, other);
    other.acc = states.acc.s10325476; 
    states = NAME(sum_combine_vector)(states, other);
#endif
#if LANES == 4
    other.acc = states.acc.s2301; 
    states = NAME(sum_combine_vector)(states, other);
    other.acc = states.acc.s1032; 
    states = NAME(sum_combine_vector)(states, other);
#endif
#if LANES == 2
    other.acc = states.acc.s10; 
    states = NAME(sum_combine_vector)(states, other);
#endif
    NAME(State) scalar_state;
    scalar_state.acc = states.acc.s0;
    return scalar_state;
}
#endif

#ifdef SCHEDULE_ROWS
// Vectorised along the innermost reduced dimension: 4 vector states, combined after every BLOCK elements.
WG_ONE kernel void NAME(sum_rows)(global const S0 *p0, 
#ifdef SPLIT
    global S1 *p1, 
#else
    global S1 *p1, 
#endif
    const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    global const S0 *x0 = WG_AT(const S0, p0, dyn.offset[0]);
#ifdef SPLIT
    global S1 *x1 = WG_AT(S1, p1, dyn.offset[1]);
#else
    global S1 *x1 = WG_AT(S1, p1, dyn.offset[1]);
#endif
    const long n = geo.reduced[REDUCED - 1];
    long out = (long)get_global_id(0) * geo.chunk[0];
    const long last = out + geo.chunk[0] < geo.outputs ? out + geo.chunk[0] : geo.outputs;
    const long top = (long)get_global_id(1) * geo.chunk[1];
    const long bottom = top + geo.chunk[1] < geo.outer ? top + geo.chunk[1] : geo.outer;
    const long begin = (long)get_global_id(2) * geo.chunk[2];
    const long end = begin + geo.chunk[2] < n ? begin + geo.chunk[2] : n;
    const long split = get_global_id(1) * get_global_size(2) + get_global_id(2);
    long coordinates[KEPT], rest = out;
    for (int d = KEPT - 1; d >= 0; d--) { coordinates[d] = rest % geo.kept[d]; rest /= geo.kept[d]; }
    for (; out < last; out++) {
        long o0 = 0; long o1 = 0; 
        WG_UNROLL for (int d = 0; d < KEPT; d++) {
            o0 += coordinates[d] * geo.kept_stride[0 * KEPT + d]; o1 += coordinates[d] * geo.kept_stride[1 * KEPT + d]; 
        }
        NAME(State) scalar_state = NAME(sum_identity_scalar)();
        NAME(States) total = NAME(sum_identity_vector)();
        for (long row = top; row < bottom; row++) {
            const long base = row * n;
            const long s0 = geo.stride[0 * REDUCED + REDUCED - 1];
            global const S0 *r0 = x0 + o0;
#if REDUCED > 1
            long rest = row;
            WG_UNROLL for (int d = REDUCED - 2; d >= 0; d--) {
                const long position = rest % geo.reduced[d];
                rest /= geo.reduced[d];
                r0 += position * geo.stride[0 * REDUCED + d]; 
            }
#endif
            long i = begin;
            while (i + LANES <= end) {
                const long stop = i + BLOCK < end ? i + BLOCK : end;
                NAME(States) acc0 = NAME(sum_identity_vector)(), acc1 = NAME(sum_identity_vector)(), acc2 = NAME(sum_identity_vector)(), acc3 = NAME(sum_identity_vector)();
                for (; i + 4 * LANES <= stop; i += 4 * LANES) {
                {
#if CLASS0 == 0
                const V v0 = (V)(LOAD0(r0));
#elif CLASS0 == 1
                const V v0 = LOADV0(r0 + i + 0 * LANES);
#else
                V v0;
                WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(r0 + (i + 0 * LANES + l) * s0);
#endif
                acc0 = NAME(sum_combine_vector)(acc0, NAME(sum_map_vector)(v0, (L)(0)));
                }
                {
#if CLASS0 == 0
                const V v0 = (V)(LOAD0(r0));
#elif CLASS0 == 1
                const V v0 = LOADV0(r0 + i + 1 * LANES);
#else
                V v0;
                WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(r0 + (i + 1 * LANES + l) * s0);
#endif
                acc1 = NAME(sum_combine_vector)(acc1, NAME(sum_map_vector)(v0, (L)(0)));
                }
                {
#if CLASS0 == 0
                const V v0 = (V)(LOAD0(r0));
#elif CLASS0 == 1
                const V v0 = LOADV0(r0 + i + 2 * LANES);
#else
                V v0;
                WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(r0 + (i + 2 * LANES + l) * s0);
#endif
                acc2 = NAME(sum_combine_vector)(acc2, NAME(sum_map_vector)(v0, (L)(0)));
                }
                {
#if CLASS0 == 0
                const V v0 = (V)(LOAD0(r0));
#elif CLASS0 == 1
                const V v0 = LOADV0(r0 + i + 3 * LANES);
#else
                V v0;
                WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(r0 + (i + 3 * LANES + l) * s0);
#endif
                acc3 = NAME(sum_combine_vector)(acc3, NAME(sum_map_vector)(v0, (L)(0)));
                }
                }
                for (; i + LANES <= stop; i += LANES) {
#if CLASS0 == 0
                const V v0 = (V)(LOAD0(r0));
#elif CLASS0 == 1
                const V v0 = LOADV0(r0 + i);
#else
                V v0;
                WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(r0 + (i + l) * s0);
#endif
                acc0 = NAME(sum_combine_vector)(acc0, NAME(sum_map_vector)(v0, (L)(0)));
                }
                acc0 = NAME(sum_combine_vector)(acc0, acc2);
                acc1 = NAME(sum_combine_vector)(acc1, acc3);
                acc0 = NAME(sum_combine_vector)(acc0, acc1);
                total = NAME(sum_combine_vector)(total, acc0);
            }
            if (i < end && end - begin >= LANES) {
                // The last vector overlaps the one before it: repeated lanes count as the identity.
                const long repeated_lanes = i - (end - LANES);
                i = end - LANES;
#if CLASS0 == 0
                const V v0 = (V)(LOAD0(r0));
#elif CLASS0 == 1
                const V v0 = LOADV0(r0 + i);
#else
                V v0;
                WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(r0 + (i + l) * s0);
#endif
                NAME(States) tail = NAME(sum_map_vector)(v0, (L)(0));
                const NAME(States) none = NAME(sum_identity_vector)();
                const M is_new_lane = ROW_IOTA >= (M)(repeated_lanes);
                tail.acc = is_new_lane ? tail.acc : none.acc;
                total = NAME(sum_combine_vector)(total, tail);
                i = end;
            }
            for (; i < end; i++) scalar_state = NAME(sum_combine_scalar)(scalar_state, NAME(sum_map_scalar)(LOAD0(r0 + i * s0), base + i));
        }
        scalar_state = NAME(sum_combine_scalar)(NAME(sum_fold)(total), scalar_state);
#ifdef SPLIT
        STORE1(x1 + split * geo.outputs + out, scalar_state.acc);
#else
        {
            C y0;
            NAME(sum_finish_scalar)(scalar_state, (C)geo.count, &y0);
            STORE1(x1 + o1, y0);
        }
#endif
        for (int d = KEPT - 1; d >= 0; d--) { if (++coordinates[d] < geo.kept[d]) break; coordinates[d] = 0; }
    }
}
#endif

#ifdef SCHEDULE_INTERLEAVED
// Reduce LANES rows at once, each in its own vector state. A transposition then puts lane j of all rows into vector j,
// so that vector operations combine the lanes of all rows together, in the same order as `fold`.
WG_ONE kernel void NAME(sum_interleaved)(global const S0 *p0, 
#ifdef SPLIT
    global S1 *p1, 
#else
    global S1 *p1, 
#endif
    const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    global const S0 *x0 = WG_AT(const S0, p0, dyn.offset[0]);
#ifdef SPLIT
    global S1 *x1 = WG_AT(S1, p1, dyn.offset[1]);
#else
    global S1 *x1 = WG_AT(S1, p1, dyn.offset[1]);
#endif
    const long base = 0, n = geo.count, whole = n - n % LANES;
    long out = (long)get_global_id(0) * geo.chunk[0];
    const long last = out + geo.chunk[0] < geo.outputs ? out + geo.chunk[0] : geo.outputs;
    const NAME(States) none = NAME(sum_identity_vector)();
    const M is_new_lane = ROW_IOTA >= (M)((int)(LANES - n % LANES));  // lanes of the last vector that are not repeated
    for (; out + LANES <= last; out += LANES) {
        NAME(States) states[LANES];
        WG_UNROLL for (int j = 0; j < LANES; j++) states[j] = none;
        for (long i = 0; i < whole; i += LANES)
        WG_UNROLL for (int j = 0; j < LANES; j++) {
            const long row = out + j;
            const long s0 = geo.stride[0 * REDUCED];
            global const S0 *r0 = x0 + row * geo.kept_stride[0 * KEPT];
#if CLASS0 == 0
                const V v0 = (V)(LOAD0(r0));
#elif CLASS0 == 1
                const V v0 = LOADV0(r0 + i);
#else
                V v0;
                WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(r0 + (i + l) * s0);
#endif
            states[j] = NAME(sum_combine_vector)(states[j], NAME(sum_map_vector)(v0, (L)(0)));
        }
        if (whole < n)
        WG_UNROLL for (int j = 0; j < LANES; j++) {
            const long row = out + j, i = n - LANES;
            const long s0 = geo.stride[0 * REDUCED];
            global const S0 *r0 = x0 + row * geo.kept_stride[0 * KEPT];
#if CLASS0 == 0
                const V v0 = (V)(LOAD0(r0));
#elif CLASS0 == 1
                const V v0 = LOADV0(r0 + i);
#else
                V v0;
                WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(r0 + (i + l) * s0);
#endif
            NAME(States) tail = NAME(sum_map_vector)(v0, (L)(0));
            tail.acc = is_new_lane ? tail.acc : none.acc;
            states[j] = NAME(sum_combine_vector)(states[j], tail);
        }
        V transposed0[LANES];
        WG_UNROLL for (int j = 0; j < LANES; j++) transposed0[j] = states[j].acc;
        WG_TRANSPOSE(V, transposed0)
        WG_UNROLL for (int j = 0; j < LANES; j++) states[j].acc = transposed0[j];
        WG_UNROLL for (int reach = LANES / 2; reach > 0; reach /= 2)
        WG_UNROLL for (int j = 0; j < reach; j++) states[j] = NAME(sum_combine_vector)(states[j], states[j + reach]);
        V y0;
        NAME(sum_finish_vector)(states[0], (C)n, &y0);
        STOREV1(x1 + out, y0);
    }
    for (; out < last; out++) {
        const long row = out;
        NAME(States) total = none;
        for (long i = 0; i < whole; i += LANES) {
            const long s0 = geo.stride[0 * REDUCED];
            global const S0 *r0 = x0 + row * geo.kept_stride[0 * KEPT];
#if CLASS0 == 0
                const V v0 = (V)(LOAD0(r0));
#elif CLASS0 == 1
                const V v0 = LOADV0(r0 + i);
#else
                V v0;
                WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(r0 + (i + l) * s0);
#endif
            total = NAME(sum_combine_vector)(total, NAME(sum_map_vector)(v0, (L)(0)));
        }
        if (whole < n) {
            const long i = n - LANES;
            const long s0 = geo.stride[0 * REDUCED];
            global const S0 *r0 = x0 + row * geo.kept_stride[0 * KEPT];
#if CLASS0 == 0
                const V v0 = (V)(LOAD0(r0));
#elif CLASS0 == 1
                const V v0 = LOADV0(r0 + i);
#else
                V v0;
                WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(r0 + (i + l) * s0);
#endif
            NAME(States) tail = NAME(sum_map_vector)(v0, (L)(0));
            tail.acc = is_new_lane ? tail.acc : none.acc;
            total = NAME(sum_combine_vector)(total, tail);
        }
        const NAME(State) scalar_state = NAME(sum_fold)(total);
        const long o1 = out; 
        {
            C y0;
            NAME(sum_finish_scalar)(scalar_state, (C)geo.count, &y0);
            STORE1(x1 + o1, y0);
        }
    }
}
#endif

#ifdef SCHEDULE_SHORT
// Contiguous rows of ROW elements, one result each. The compiler vectorises across rows, with a stride of ROW elements.
WG_ONE kernel void NAME(sum_short)(global const S0 *p0, 
#ifdef SPLIT
    global S1 *p1, 
#else
    global S1 *p1, 
#endif
    const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    global const S0 *x0 = WG_AT(const S0, p0, dyn.offset[0]);
#ifdef SPLIT
    global S1 *x1 = WG_AT(S1, p1, dyn.offset[1]);
#else
    global S1 *x1 = WG_AT(S1, p1, dyn.offset[1]);
#endif
    long out = (long)get_global_id(0) * geo.chunk[0];
    const long last = out + geo.chunk[0] < geo.outputs ? out + geo.chunk[0] : geo.outputs;
    global const S0 *restrict r0 = x0;
    for (; out < last; out++) {
        NAME(State) scalar_state = NAME(sum_identity_scalar)();
        WG_UNROLL for (int i = 0; i < ROW; i++)
            scalar_state = NAME(sum_combine_scalar)(scalar_state, NAME(sum_map_scalar)(LOAD0(r0 + out * ROW + i), i));
        const long o1 = out; 
        {
            C y0;
            NAME(sum_finish_scalar)(scalar_state, (C)geo.count, &y0);
            STORE1(x1 + o1, y0);
        }
    }
}
#endif

#ifdef SCHEDULE_COLUMNS
// Vectorised along the innermost kept dimension, several vectors at a time; a loop runs over the reduced elements.
WG_ONE kernel void NAME(sum_columns)(global const S0 *p0, 
#ifdef SPLIT
    global S1 *p1, 
#else
    global S1 *p1, 
#endif
    const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    global const S0 *x0 = WG_AT(const S0, p0, dyn.offset[0]);
#ifdef SPLIT
    global S1 *x1 = WG_AT(S1, p1, dyn.offset[1]);
#else
    global S1 *x1 = WG_AT(S1, p1, dyn.offset[1]);
#endif
    const long width = geo.kept[KEPT - 1], rows = geo.outputs / width;
    long row = (long)get_global_id(0) * geo.chunk[0];
    const long last = row + geo.chunk[0] < rows ? row + geo.chunk[0] : rows;
    const long left = (long)get_global_id(1) * geo.chunk[1];
    const long right = left + geo.chunk[1] < width ? left + geo.chunk[1] : width;
    const long begin = (long)get_global_id(2) * geo.chunk[2];
    const long end = begin + geo.chunk[2] < geo.count ? begin + geo.chunk[2] : geo.count;
    const long split = get_global_id(2);
    long coordinates[KEPT], rest = row;
    for (int d = KEPT - 2; d >= 0; d--) { coordinates[d] = rest % geo.kept[d]; rest /= geo.kept[d]; }
    const long c0 = geo.kept_stride[0 * KEPT + KEPT - 1];
    const long c1 = geo.kept_stride[1 * KEPT + KEPT - 1];
    for (; row < last; row++) {
        long o0 = 0; long o1 = 0; 
        WG_UNROLL for (int d = 0; d < KEPT - 1; d++) {
            o0 += coordinates[d] * geo.kept_stride[0 * KEPT + d]; o1 += coordinates[d] * geo.kept_stride[1 * KEPT + d]; 
        }
        long column = left;
        for (; column + 8 * LANES <= right; column += 8 * LANES)
        {
            NAME(States) total0 = NAME(sum_identity_vector)(), total1 = NAME(sum_identity_vector)(), total2 = NAME(sum_identity_vector)(), total3 = NAME(sum_identity_vector)(), total4 = NAME(sum_identity_vector)(), total5 = NAME(sum_identity_vector)(), total6 = NAME(sum_identity_vector)(), total7 = NAME(sum_identity_vector)();
            for (long r = begin; r < end;) {
                const long inner = r % geo.reduced[REDUCED - 1];
                long stop = r + geo.reduced[REDUCED - 1] - inner;
                stop = stop < r + BLOCK ? stop : r + BLOCK;
                stop = stop < end ? stop : end;
                const long s0 = geo.stride[0 * REDUCED + REDUCED - 1];
                global const S0 *q0 = x0 + o0 + inner * s0;
#if REDUCED > 1
                { long rest = r / geo.reduced[REDUCED - 1];
                WG_UNROLL for (int d = REDUCED - 2; d >= 0; d--) {
                    const long position = rest % geo.reduced[d];
                    rest /= geo.reduced[d];
                    q0 += position * geo.stride[0 * REDUCED + d]; 
                } }
#endif
                NAME(States) acc0 = NAME(sum_identity_vector)(), acc1 = NAME(sum_identity_vector)(), acc2 = NAME(sum_identity_vector)(), acc3 = NAME(sum_identity_vector)(), acc4 = NAME(sum_identity_vector)(), acc5 = NAME(sum_identity_vector)(), acc6 = NAME(sum_identity_vector)(), acc7 = NAME(sum_identity_vector)();
                for (; r < stop; r++) {
                    {
#if CLASS0 == 0
                    const V v0 = (V)(LOAD0(q0));
#elif CLASS0 == 1
                    const V v0 = LOADV0(q0 + column + 0 * LANES);
#else
                    V v0;
                    WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(q0 + (column + 0 * LANES + l) * c0);
#endif
                    acc0 = NAME(sum_combine_vector)(acc0, NAME(sum_map_vector)(v0, (L)(0)));
                    }
                    {
#if CLASS0 == 0
                    const V v0 = (V)(LOAD0(q0));
#elif CLASS0 == 1
                    const V v0 = LOADV0(q0 + column + 1 * LANES);
#else
                    V v0;
                    WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(q0 + (column + 1 * LANES + l) * c0);
#endif
                    acc1 = NAME(sum_combine_vector)(acc1, NAME(sum_map_vector)(v0, (L)(0)));
                    }
                    {
#if CLASS0 == 0
                    const V v0 = (V)(LOAD0(q0));
#elif CLASS0 == 1
                    const V v0 = LOADV0(q0 + column + 2 * LANES);
#else
                    V v0;
                    WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(q0 + (column + 2 * LANES + l) * c0);
#endif
                    acc2 = NAME(sum_combine_vector)(acc2, NAME(sum_map_vector)(v0, (L)(0)));
                    }
                    {
#if CLASS0 == 0
                    const V v0 = (V)(LOAD0(q0));
#elif CLASS0 == 1
                    const V v0 = LOADV0(q0 + column + 3 * LANES);
#else
                    V v0;
                    WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(q0 + (column + 3 * LANES + l) * c0);
#endif
                    acc3 = NAME(sum_combine_vector)(acc3, NAME(sum_map_vector)(v0, (L)(0)));
                    }
                    {
#if CLASS0 == 0
                    const V v0 = (V)(LOAD0(q0));
#elif CLASS0 == 1
                    const V v0 = LOADV0(q0 + column + 4 * LANES);
#else
                    V v0;
                    WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(q0 + (column + 4 * LANES + l) * c0);
#endif
                    acc4 = NAME(sum_combine_vector)(acc4, NAME(sum_map_vector)(v0, (L)(0)));
                    }
                    {
#if CLASS0 == 0
                    const V v0 = (V)(LOAD0(q0));
#elif CLASS0 == 1
                    const V v0 = LOADV0(q0 + column + 5 * LANES);
#else
                    V v0;
                    WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(q0 + (column + 5 * LANES + l) * c0);
#endif
                    acc5 = NAME(sum_combine_vector)(acc5, NAME(sum_map_vector)(v0, (L)(0)));
                    }
                    {
#if CLASS0 == 0
                    const V v0 = (V)(LOAD0(q0));
#elif CLASS0 == 1
                    const V v0 = LOADV0(q0 + column + 6 * LANES);
#else
                    V v0;
                    WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(q0 + (column + 6 * LANES + l) * c0);
#endif
                    acc6 = NAME(sum_combine_vector)(acc6, NAME(sum_map_vector)(v0, (L)(0)));
                    }
                    {
#if CLASS0 == 0
                    const V v0 = (V)(LOAD0(q0));
#elif CLASS0 == 1
                    const V v0 = LOADV0(q0 + column + 7 * LANES);
#else
                    V v0;
                    WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(q0 + (column + 7 * LANES + l) * c0);
#endif
                    acc7 = NAME(sum_combine_vector)(acc7, NAME(sum_map_vector)(v0, (L)(0)));
                    }
                    q0 += s0; 
                }
                total0 = NAME(sum_combine_vector)(total0, acc0);
                total1 = NAME(sum_combine_vector)(total1, acc1);
                total2 = NAME(sum_combine_vector)(total2, acc2);
                total3 = NAME(sum_combine_vector)(total3, acc3);
                total4 = NAME(sum_combine_vector)(total4, acc4);
                total5 = NAME(sum_combine_vector)(total5, acc5);
                total6 = NAME(sum_combine_vector)(total6, acc6);
                total7 = NAME(sum_combine_vector)(total7, acc7);
            }
#ifdef SPLIT
            STOREV1(x1 + split * geo.outputs + row * width + column + 0 * LANES, total0.acc);
#else
            {
                V y0;
                NAME(sum_finish_vector)(total0, (C)geo.count, &y0);
#if CLASS1 == 1
                STOREV1(x1 + o1 + column + 0 * LANES, y0);
#else
                WG_UNROLL for (int l = 0; l < LANES; l++) STORE1(x1 + o1 + (column + 0 * LANES + l) * c1, y0[l]);
#endif
            }
#endif
#ifdef SPLIT
            STOREV1(x1 + split * geo.outputs + row * width + column + 1 * LANES, total1.acc);
#else
            {
                V y0;
                NAME(sum_finish_vector)(total1, (C)geo.count, &y0);
#if CLASS1 == 1
                STOREV1(x1 + o1 + column + 1 * LANES, y0);
#else
                WG_UNROLL for (int l = 0; l < LANES; l++) STORE1(x1 + o1 + (column + 1 * LANES + l) * c1, y0[l]);
#endif
            }
#endif
#ifdef SPLIT
            STOREV1(x1 + split * geo.outputs + row * width + column + 2 * LANES, total2.acc);
#else
            {
                V y0;
                NAME(sum_finish_vector)(total2, (C)geo.count, &y0);
#if CLASS1 == 1
                STOREV1(x1 + o1 + column + 2 * LANES, y0);
#else
                WG_UNROLL for (int l = 0; l < LANES; l++) STORE1(x1 + o1 + (column + 2 * LANES + l) * c1, y0[l]);
#endif
            }
#endif
#ifdef SPLIT
            STOREV1(x1 + split * geo.outputs + row * width + column + 3 * LANES, total3.acc);
#else
            {
                V y0;
                NAME(sum_finish_vector)(total3, (C)geo.count, &y0);
#if CLASS1 == 1
                STOREV1(x1 + o1 + column + 3 * LANES, y0);
#else
                WG_UNROLL for (int l = 0; l < LANES; l++) STORE1(x1 + o1 + (column + 3 * LANES + l) * c1, y0[l]);
#endif
            }
#endif
#ifdef SPLIT
            STOREV1(x1 + split * geo.outputs + row * width + column + 4 * LANES, total4.acc);
#else
            {
                V y0;
                NAME(sum_finish_vector)(total4, (C)geo.count, &y0);
#if CLASS1 == 1
                STOREV1(x1 + o1 + column + 4 * LANES, y0);
#else
                WG_UNROLL for (int l = 0; l < LANES; l++) STORE1(x1 + o1 + (column + 4 * LANES + l) * c1, y0[l]);
#endif
            }
#endif
#ifdef SPLIT
            STOREV1(x1 + split * geo.outputs + row * width + column + 5 * LANES, total5.acc);
#else
            {
                V y0;
                NAME(sum_finish_vector)(total5, (C)geo.count, &y0);
#if CLASS1 == 1
                STOREV1(x1 + o1 + column + 5 * LANES, y0);
#else
                WG_UNROLL for (int l = 0; l < LANES; l++) STORE1(x1 + o1 + (column + 5 * LANES + l) * c1, y0[l]);
#endif
            }
#endif
#ifdef SPLIT
            STOREV1(x1 + split * geo.outputs + row * width + column + 6 * LANES, total6.acc);
#else
            {
                V y0;
                NAME(sum_finish_vector)(total6, (C)geo.count, &y0);
#if CLASS1 == 1
                STOREV1(x1 + o1 + column + 6 * LANES, y0);
#else
                WG_UNROLL for (int l = 0; l < LANES; l++) STORE1(x1 + o1 + (column + 6 * LANES + l) * c1, y0[l]);
#endif
            }
#endif
#ifdef SPLIT
            STOREV1(x1 + split * geo.outputs + row * width + column + 7 * LANES, total7.acc);
#else
            {
                V y0;
                NAME(sum_finish_vector)(total7, (C)geo.count, &y0);
#if CLASS1 == 1
                STOREV1(x1 + o1 + column + 7 * LANES, y0);
#else
                WG_UNROLL for (int l = 0; l < LANES; l++) STORE1(x1 + o1 + (column + 7 * LANES + l) * c1, y0[l]);
#endif
            }
#endif
        }
        for (; column < right; column += LANES) {
            // The chunk is at least a vector wide: the last vector may overlap the one before it.
            column = column + LANES <= right ? column : right - LANES;
        {
            NAME(States) total0 = NAME(sum_identity_vector)();
            for (long r = begin; r < end;) {
                const long inner = r % geo.reduced[REDUCED - 1];
                long stop = r + geo.reduced[REDUCED - 1] - inner;
                stop = stop < r + BLOCK ? stop : r + BLOCK;
                stop = stop < end ? stop : end;
                const long s0 = geo.stride[0 * REDUCED + REDUCED - 1];
                global const S0 *q0 = x0 + o0 + inner * s0;
#if REDUCED > 1
                { long rest = r / geo.reduced[REDUCED - 1];
                WG_UNROLL for (int d = REDUCED - 2; d >= 0; d--) {
                    const long position = rest % geo.reduced[d];
                    rest /= geo.reduced[d];
                    q0 += position * geo.stride[0 * REDUCED + d]; 
                } }
#endif
                NAME(States) acc0 = NAME(sum_identity_vector)();
                for (; r < stop; r++) {
                    {
#if CLASS0 == 0
                    const V v0 = (V)(LOAD0(q0));
#elif CLASS0 == 1
                    const V v0 = LOADV0(q0 + column + 0 * LANES);
#else
                    V v0;
                    WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = LOAD0(q0 + (column + 0 * LANES + l) * c0);
#endif
                    acc0 = NAME(sum_combine_vector)(acc0, NAME(sum_map_vector)(v0, (L)(0)));
                    }
                    q0 += s0; 
                }
                total0 = NAME(sum_combine_vector)(total0, acc0);
            }
#ifdef SPLIT
            STOREV1(x1 + split * geo.outputs + row * width + column + 0 * LANES, total0.acc);
#else
            {
                V y0;
                NAME(sum_finish_vector)(total0, (C)geo.count, &y0);
#if CLASS1 == 1
                STOREV1(x1 + o1 + column + 0 * LANES, y0);
#else
                WG_UNROLL for (int l = 0; l < LANES; l++) STORE1(x1 + o1 + (column + 0 * LANES + l) * c1, y0[l]);
#endif
            }
#endif
        }
        }
        for (int d = (KEPT - 1) - 1; d >= 0; d--) { if (++coordinates[d] < geo.kept[d]) break; coordinates[d] = 0; }
    }
}
#endif

#ifdef SCHEDULE_GENERAL
// Any strides, one element at a time: for short rows, and states that vectors cannot hold.
WG_ONE kernel void NAME(sum_general)(global const S0 *p0, 
#ifdef SPLIT
    global S1 *p1, 
#else
    global S1 *p1, 
#endif
    const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    global const S0 *x0 = WG_AT(const S0, p0, dyn.offset[0]);
#ifdef SPLIT
    global S1 *x1 = WG_AT(S1, p1, dyn.offset[1]);
#else
    global S1 *x1 = WG_AT(S1, p1, dyn.offset[1]);
#endif
    long out = (long)get_global_id(0) * geo.chunk[0];
    const long last = out + geo.chunk[0] < geo.outputs ? out + geo.chunk[0] : geo.outputs;
    const long begin = (long)get_global_id(2) * geo.chunk[2];
    const long end = begin + geo.chunk[2] < geo.count ? begin + geo.chunk[2] : geo.count;
    const long split = get_global_id(2);
    long coordinates[KEPT], rest = out;
    for (int d = KEPT - 1; d >= 0; d--) { coordinates[d] = rest % geo.kept[d]; rest /= geo.kept[d]; }
    for (; out < last; out++) {
        long o0 = 0; long o1 = 0; 
        WG_UNROLL for (int d = 0; d < KEPT; d++) {
            o0 += coordinates[d] * geo.kept_stride[0 * KEPT + d]; o1 += coordinates[d] * geo.kept_stride[1 * KEPT + d]; 
        }
        NAME(State) scalar_state = NAME(sum_identity_scalar)();
        for (long r = begin; r < end;) {
            const long inner = r % geo.reduced[REDUCED - 1];
            long stop = r + geo.reduced[REDUCED - 1] - inner;
            stop = stop < r + BLOCK ? stop : r + BLOCK;
            stop = stop < end ? stop : end;
            const long s0 = geo.stride[0 * REDUCED + REDUCED - 1];
            global const S0 *q0 = x0 + o0 + inner * s0;
#if REDUCED > 1
            { long rest = r / geo.reduced[REDUCED - 1];
            WG_UNROLL for (int d = REDUCED - 2; d >= 0; d--) {
                const long position = rest % geo.reduced[d];
                rest /= geo.reduced[d];
                q0 += position * geo.stride[0 * REDUCED + d]; 
            } }
#endif
            NAME(State) acc0 = NAME(sum_identity_scalar)(), acc1 = NAME(sum_identity_scalar)(), acc2 = NAME(sum_identity_scalar)(), acc3 = NAME(sum_identity_scalar)();
            for (; r + 4 <= stop; r += 4) {
                acc0 = NAME(sum_combine_scalar)(acc0, NAME(sum_map_scalar)(LOAD0(q0 + 0 * s0), r + 0));
                acc1 = NAME(sum_combine_scalar)(acc1, NAME(sum_map_scalar)(LOAD0(q0 + 1 * s0), r + 1));
                acc2 = NAME(sum_combine_scalar)(acc2, NAME(sum_map_scalar)(LOAD0(q0 + 2 * s0), r + 2));
                acc3 = NAME(sum_combine_scalar)(acc3, NAME(sum_map_scalar)(LOAD0(q0 + 3 * s0), r + 3));
                q0 += 4 * s0; 
            }
            for (; r < stop; r++) {
                acc0 = NAME(sum_combine_scalar)(acc0, NAME(sum_map_scalar)(LOAD0(q0), r));
                q0 += s0; 
            }
            scalar_state = NAME(sum_combine_scalar)(scalar_state, acc0);
            scalar_state = NAME(sum_combine_scalar)(scalar_state, acc1);
            scalar_state = NAME(sum_combine_scalar)(scalar_state, acc2);
            scalar_state = NAME(sum_combine_scalar)(scalar_state, acc3);
        }
#ifdef SPLIT
        STORE1(x1 + split * geo.outputs + out, scalar_state.acc);
#else
        {
            C y0;
            NAME(sum_finish_scalar)(scalar_state, (C)geo.count, &y0);
            STORE1(x1 + o1, y0);
        }
#endif
        for (int d = KEPT - 1; d >= 0; d--) { if (++coordinates[d] < geo.kept[d]) break; coordinates[d] = 0; }
    }
}
#endif

#ifdef SCHEDULE_TREE
// A work-group computes `across` neighbouring results, with GROUP / across work-items each.
__attribute__((reqd_work_group_size(GROUP, 1, 1))) kernel void NAME(sum_tree)(global const S0 *p0, 
#ifdef SPLIT
    global S1 *p1, 
#else
    global S1 *p1, 
#endif
    const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    global const S0 *x0 = WG_AT(const S0, p0, dyn.offset[0]);
#ifdef SPLIT
    global S1 *x1 = WG_AT(S1, p1, dyn.offset[1]);
#else
    global S1 *x1 = WG_AT(S1, p1, dyn.offset[1]);
#endif
    const int lid = get_local_id(0), across = (int)geo.across, deep = GROUP / across;
    const int y = lid / across;
    const long out = (long)get_group_id(0) * across + lid % across;
    long coordinates[KEPT], rest = out;
    for (int d = KEPT - 1; d >= 0; d--) { coordinates[d] = rest % geo.kept[d]; rest /= geo.kept[d]; }
    long o0 = 0; long o1 = 0; 
    WG_UNROLL for (int d = 0; d < KEPT; d++) {
        o0 += coordinates[d] * geo.kept_stride[0 * KEPT + d]; o1 += coordinates[d] * geo.kept_stride[1 * KEPT + d]; 
    }
    const long split = get_group_id(1);
    const long begin = split * geo.chunk[1];
    const long end = begin + geo.chunk[1] < geo.count ? begin + geo.chunk[1] : geo.count;
    NAME(State) scalar_state = NAME(sum_identity_scalar)();
    if (out < geo.outputs) {
        for (long r = begin + y; r < end; r += deep) {
#if REDUCED > 1
            long q0 = o0; 
            long rest = r;
            WG_UNROLL for (int d = REDUCED - 1; d >= 0; d--) {
                const long position = rest % geo.reduced[d];
                rest /= geo.reduced[d];
                q0 += position * geo.stride[0 * REDUCED + d]; 
            }
#else
            const long q0 = o0 + r * geo.stride[0 * REDUCED]; 
#endif
            scalar_state = NAME(sum_combine_scalar)(scalar_state, NAME(sum_map_scalar)(LOAD0(x0 + q0), r));
        }
    }
    local C shared0[GROUP];
    shared0[lid] = scalar_state.acc;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int reach = deep / 2; reach > 0; reach /= 2) {
        if (y < reach) {
            NAME(State) other;
            const int partner = lid + reach * (int)geo.across;
            other.acc = shared0[partner];
            scalar_state = NAME(sum_combine_scalar)(scalar_state, other);
            shared0[lid] = scalar_state.acc;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (y == 0 && out < geo.outputs) {
#ifdef SPLIT
        STORE1(x1 + split * geo.outputs + out, scalar_state.acc);
#else
        {
            C y0;
            NAME(sum_finish_scalar)(scalar_state, (C)geo.count, &y0);
            STORE1(x1 + o1, y0);
        }
#endif
    }
}
#endif

#ifdef SCHEDULE_FINISH
// Results from partial states, stored as [result][split].
WG_ONE kernel void NAME(sum_finish)(global const S0 *p0, global S1 *p1, const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    global const S0 *x0 = WG_AT(const S0, p0, dyn.offset[0]);
    global S1 *x1 = WG_AT(S1, p1, dyn.offset[1]);
    long out = (long)get_global_id(0) * geo.chunk[0];
    const long last = out + geo.chunk[0] < geo.outputs ? out + geo.chunk[0] : geo.outputs;
#ifdef VECTOR
    for (; out + LANES <= last; out += LANES) {
        NAME(States) total = NAME(sum_identity_vector)();
        for (long s = 0; s < geo.splits; s++) {
            NAME(States) part;
            part.acc = LOADV0(x0 + s * geo.outputs + out);
            total = NAME(sum_combine_vector)(total, part);
        }
        V y0;
        NAME(sum_finish_vector)(total, (C)geo.count, &y0);
        STOREV1(x1 + out, y0);
    }
#endif
    long coordinates[KEPT], rest = out;
    for (int d = KEPT - 1; d >= 0; d--) { coordinates[d] = rest % geo.kept[d]; rest /= geo.kept[d]; }
    for (; out < last; out++) {
        long o0 = 0; long o1 = 0; 
        WG_UNROLL for (int d = 0; d < KEPT; d++) {
            o0 += coordinates[d] * geo.kept_stride[0 * KEPT + d]; o1 += coordinates[d] * geo.kept_stride[1 * KEPT + d]; 
        }
        NAME(State) scalar_state = NAME(sum_identity_scalar)();
        for (long s = 0; s < geo.splits; s++) {
            NAME(State) part;
            part.acc = LOAD0(x0 + s * geo.outputs + out);
            scalar_state = NAME(sum_combine_scalar)(scalar_state, part);
        }
        {
            C y0;
            NAME(sum_finish_scalar)(scalar_state, (C)geo.count, &y0);
            STORE1(x1 + o1, y0);
        }
        for (int d = KEPT - 1; d >= 0; d--) { if (++coordinates[d] < geo.kept[d]) break; coordinates[d] = 0; }
    }
}
#endif

#ifdef SCHEDULE_TREE_FINISH
__attribute__((reqd_work_group_size(GROUP, 1, 1))) kernel void NAME(sum_tree_finish)(global const S0 *p0, global S1 *p1, const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    global const S0 *x0 = WG_AT(const S0, p0, dyn.offset[0]);
    global S1 *x1 = WG_AT(S1, p1, dyn.offset[1]);
    const int lid = get_local_id(0), across = (int)geo.across, deep = GROUP / across;
    const int y = lid / across;
    const long out = (long)get_group_id(0) * across + lid % across;
    long coordinates[KEPT], rest = out;
    for (int d = KEPT - 1; d >= 0; d--) { coordinates[d] = rest % geo.kept[d]; rest /= geo.kept[d]; }
    long o0 = 0; long o1 = 0; 
    WG_UNROLL for (int d = 0; d < KEPT; d++) {
        o0 += coordinates[d] * geo.kept_stride[0 * KEPT + d]; o1 += coordinates[d] * geo.kept_stride[1 * KEPT + d]; 
    }
    NAME(State) scalar_state = NAME(sum_identity_scalar)();
    if (out < geo.outputs) {
        for (long s = y; s < geo.splits; s += deep) {
            NAME(State) part;
            part.acc = LOAD0(x0 + s * geo.outputs + out);
            scalar_state = NAME(sum_combine_scalar)(scalar_state, part);
        }
    }
    local C shared0[GROUP];
    shared0[lid] = scalar_state.acc;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int reach = deep / 2; reach > 0; reach /= 2) {
        if (y < reach) {
            NAME(State) other;
            const int partner = lid + reach * (int)geo.across;
            other.acc = shared0[partner];
            scalar_state = NAME(sum_combine_scalar)(scalar_state, other);
            shared0[lid] = scalar_state.acc;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (y == 0 && out < geo.outputs) {
        {
            C y0;
            NAME(sum_finish_scalar)(scalar_state, (C)geo.count, &y0);
            STORE1(x1 + o1, y0);
        }
    }
}
#endif
