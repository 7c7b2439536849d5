// softmax(input, dim): out = exp(input - detach(max(input))) * (1 / sum(exp(input - detach(max(input)))))
#ifndef WG_VECTOR
#define WG_VECTOR_(T, n) T##n
#define WG_VECTOR(T, n) WG_VECTOR_(T, n)
#define WG_FOLD_sum(a, b) ((a) + (b))
#define WG_FOLD_prod(a, b) ((a) * (b))
#define WG_FOLD_max(a, b) ((((a) > (b)) | ((a) != (a))) ? (a) : (b))
#define WG_FOLD_min(a, b) ((((a) < (b)) | ((a) != (a))) ? (a) : (b))
#endif
#ifdef SCHEDULE_COLUMNS
#define ROW_V V
#define ROW_M M
#define ROW_L L
#define BROADCAST_V(x) (x)
#define BROADCAST_M(x) (x)
#define BROADCAST_L(x) (x)
#else
#define ROW_V C
#define ROW_M int
#define ROW_L long
#define BROADCAST_V(x) ((V)(x))
#define BROADCAST_M(x) ((M)((x) ? -1 : 0))
#define BROADCAST_L(x) ((L)(x))
#endif
#if LANES == 16
#define LANE ((L)WG_LIST 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 WG_LIST_END)
#elif LANES == 8
#define LANE ((L)WG_LIST 0, 1, 2, 3, 4, 5, 6, 7 WG_LIST_END)
#elif LANES == 4
#define LANE ((L)WG_LIST 0, 1, 2, 3 WG_LIST_END)
#elif LANES == 2
#define LANE ((L)WG_LIST 0, 1 WG_LIST_END)
#else
#define LANE ((L)(0))
#endif
typedef struct {
    long offset[2 + SCRATCH];
#if NUMBERS
    C number[WG_PADDED(NUMBERS)];
#endif
} NAME(Dynamic);
// `rows` rows of n elements, `chunk` rows per work-item. parts: in FINISH the number of partial rows to add, in LONG the
// stride of cached rows. stride: from row to row; step: inside a row; across: from lane to lane of COLUMNS, which has
// `width` neighbouring rows in blocks of `block`.
typedef struct {
    long rows, n, chunk, parts;
    long size[OUTER], stride[2 * OUTER];
    long inner[INNER], step[2 * INNER];
#ifdef SCHEDULE_COLUMNS
    long width, block, across[2];
#endif
} NAME(Geometry);

static inline long NAME(row_offset)(long row, const long *size, const long *stride) {
#if OUTER == 1
    return row * stride[0];
#else
    long offset = 0;
    WG_UNROLL for (int d = OUTER - 1; d >= 0; d--) { offset += row % size[d] * stride[d]; row /= size[d]; }
    return offset;
#endif
}
static inline long NAME(element_offset)(long i, const long *size, const long *step) {
#if INNER == 1
    return i * step[0];
#else
    long offset = 0;
    WG_UNROLL for (int d = INNER - 1; d >= 0; d--) { offset += i % size[d] * step[d]; i /= size[d]; }
    return offset;
#endif
}
#define ELEMENT_OFFSET(k, i) NAME(element_offset)(i, geo.inner, geo.step + (k) * INNER)
#if SCRATCH
#define CACHE_PARAMETER global S2 *p2,
#else
#define CACHE_PARAMETER
#endif

#ifndef SCHEDULE_FINISH
#ifdef SCHEDULE_GROUP

static inline void NAME(softmax_sweep0)(V input, V *y0) {
    *y0 = input;
}

static inline void NAME(softmax_sweep1)(V input, ROW_V r0, V *y0) {
    *y0 = wg_exp(input - r0);
}

static inline void NAME(softmax_result)(V input, ROW_V r0, ROW_V w0, V *y0) {
    *y0 = wg_exp(input - r0) * w0;
}
#else

static inline void NAME(softmax_sweep0)(V input, V *y0) {
    *y0 = input;
}

static inline void NAME(softmax_sweep1)(V input, ROW_V r0, V *y0) {
    *y0 = wg_exp(input - BROADCAST_V(r0));
}

static inline void NAME(softmax_result)(V Kept, ROW_V w0, V *y0) {
    *y0 = Kept * BROADCAST_V(w0);
}
#endif
#if LANES > 1 && !defined(SCHEDULE_COLUMNS)
static inline C NAME(total_max)(V v) {
#if LANES == 16
    const WG_VECTOR(C, 8) a = WG_FOLD_max(v.lo, v.hi);
#else
    const V a = v;
#endif
#if LANES >= 8
    const WG_VECTOR(C, 4) b = WG_FOLD_max(a.lo, a.hi);
#else
    const V b = a;
#endif
#if LANES >= 4
    const WG_VECTOR(C, 2) c = WG_FOLD_max(b.lo, b.hi);
#else
    const V c = b;
#endif
    return WG_FOLD_max(c.lo, c.hi);
}
static inline C NAME(total_sum)(V v) {
#if LANES == 16
    const WG_VECTOR(C, 8) a = WG_FOLD_sum(v.lo, v.hi);
#else
    const V a = v;
#endif
#if LANES >= 8
    const WG_VECTOR(C, 4) b = WG_FOLD_sum(a.lo, a.hi);
#else
    const V b = a;
#endif
#if LANES >= 4
    const WG_VECTOR(C, 2) c = WG_FOLD_sum(b.lo, b.hi);
#else
    const V c = b;
#endif
    return WG_FOLD_sum(c.lo, c.hi);
}
#endif

// Loads with any stride, of the first m lanes: `gather` along a row, `load_across` from neighbouring rows.
#if CLASS0 == 2 || defined(SCHEDULE_SHORT)
static inline V NAME(gather0)(global const S0 *x, long i, const long *size, const long *step, int mA) {
    V v = (V)(0);
#if LANES > 1
    WG_UNROLL for (int lA = 0; lA < LANES; lA++) if (lA < mA) v[lA] = LOAD0(x + NAME(element_offset)(i + lA, size, step));
#endif
    return v;
}
#endif
#ifdef SCHEDULE_COLUMNS
static inline V NAME(load_across0)(global const S0 *x, long across, int mA) {
    V v = (V)(0);
    for (int lA = 0; lA < mA; lA++) v[lA] = LOAD0(x + lA * across);
    return v;
}
#endif
#if defined(SCHEDULE_COLUMNS)
#define WRITE1(i, v) if (mA == LANES && ACROSS1 == 1) STOREV1(x1 + ELEMENT_OFFSET(1, i), v); else { for (int lA = 0; lA < mA; lA++) STORE1(x1 + ELEMENT_OFFSET(1, i) + lA * geo.across[1], v[lA]); }
#elif defined(SCHEDULE_GROUP)
#define WRITE1(i, v) STORE1(x1 + ELEMENT_OFFSET(1, i), v)
#elif defined(SCHEDULE_SHORT)
#define WRITE1(i, v) WG_UNROLL for (int lA = 0; lA < LANES; lA++) if (lA < n) STORE1(x1 + ELEMENT_OFFSET(1, lA), v[lA])
#elif STREAM1
#define WRITE1(i, v) WG_STREAM((global V *)(x1 + (i)), v)
#elif CLASS1 == 1
#define WRITE1(i, v) STOREV1(x1 + (i), v)
#else
#define WRITE1(i, v) WG_UNROLL for (int lA = 0; lA < LANES; lA++) STORE1(x1 + ELEMENT_OFFSET(1, (i) + lA), v[lA])
#endif
#if defined(SCHEDULE_COLUMNS)
#if ACROSS0 == 1
#define READ0(i) (mA == LANES ? LOADV0(x0 + ELEMENT_OFFSET(0, i)) : NAME(load_across0)(x0 + ELEMENT_OFFSET(0, i), 1, mA))
#elif ACROSS0 == 0
#define READ0(i) (V)(LOAD0(x0 + ELEMENT_OFFSET(0, i)))
#else
#define READ0(i) NAME(load_across0)(x0 + ELEMENT_OFFSET(0, i), geo.across[0], mA)
#endif
#elif defined(SCHEDULE_GROUP)
#define READ0(i) LOAD0(x0 + ELEMENT_OFFSET(0, i))
#elif CLASS0 == 0
#define READ0(i) uniform0A
#elif defined(SCHEDULE_SHORT)
#define READ0(i) NAME(gather0)(x0, 0, geo.inner, geo.step + 0 * INNER, n)
#elif CLASS0 == 1
#define READ0(i) LOADV0(x0 + (i))
#else
#define READ0(i) NAME(gather0)(x0, i, geo.inner, geo.step + 0 * INNER, LANES)
#endif
#if defined(SCHEDULE_LONG) || defined(SCHEDULE_SHORT)
#define INDEX(i) ((L)(i) + LANE)
#else
#define INDEX(i) ((L)(i))
#endif

#ifdef SCHEDULE_LONG
#define PREFETCH_LIMIT 4096 // positions per row; for longer rows the hardware prefetcher is enough
#if CLASS0 == 1 && OUTER == 1
#define AHEAD0(i) WG_PREFETCH(x0 + aheadA * geo.stride[0 * OUTER] + (i))
#else
#define AHEAD0(i)
#endif
#endif
#if defined(SCHEDULE_SHORT)
#define CACHE_VALUE(i, v) cachedA = v
#define CACHED(i) cachedA
#elif defined(SCHEDULE_COLUMNS)
#define CACHE_VALUE(i, v) STOREV2(cachedA + (i) * LANES, v)
#define CACHED(i) LOADV2(cachedA + (i) * LANES)
#else
#define CACHE_VALUE(i, v) STOREV2(cachedA + (i), v)
#define CACHED(i) LOADV2(cachedA + (i))
#endif

#if defined(SCHEDULE_LONG) || defined(SCHEDULE_SHORT)
#ifdef SCHEDULE_LONG
WG_ONE kernel void NAME(softmax_long)(global const S0 *p0, global S1 *p1, CACHE_PARAMETER const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
#else
WG_ONE kernel void NAME(softmax_short)(global const S0 *p0, global S1 *p1, CACHE_PARAMETER const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
#endif
    global const S0 *base0A = WG_AT(const S0, p0, dyn.offset[0]);
    global S1 *base1A = WG_AT(S1, p1, dyn.offset[1]);
    const C n_ = (C)geo.n;
    const long n = geo.n;
    long row = (long)get_global_id(0) * geo.chunk;
    const long end = row + geo.chunk < geo.rows ? row + geo.chunk : geo.rows;
#ifdef SCHEDULE_LONG
    const int raggedA = n % LANES != 0;
    const M freshA = LANE >= (L)(LANES - (int)(n % LANES));
    global S2 *cachedA = WG_AT(S2, p2, dyn.offset[2]) + (long)get_global_id(0) * geo.parts;
    V cachedTailA = (V)(0);
    for (; row < end; row++) {
        global const S0 *x0 = base0A + NAME(row_offset)(row, geo.size, geo.stride + 0 * OUTER);
        global S1 *x1 = base1A + NAME(row_offset)(row, geo.size, geo.stride + 1 * OUTER);
        const long aheadA = row + 1 < end && n <= PREFETCH_LIMIT ? 1 : 0; // rows ahead
#if CLASS0 == 0 && !defined(SCHEDULE_GROUP)
        const V uniform0A = (V)(LOAD0(x0));
#endif
        ROW_V r0;
        {
            V acc0A[4];
            WG_UNROLL for (int uA = 0; uA < 4; uA++) acc0A[uA] = (V)(-INFINITY);
            long i = 0;
            for (; i + 4 * LANES <= n; i += 4 * LANES) {
                WG_UNROLL for (int uA = 0; uA < 4; uA++) {
                    V y0;
                    NAME(softmax_sweep0)(READ0(i + uA * LANES), &y0);
                     acc0A[uA] = WG_FOLD_max(acc0A[uA], y0);
                }
            }
            for (; i + LANES <= n; i += LANES) {
                V y0;
                NAME(softmax_sweep0)(READ0(i), &y0);
                 acc0A[0] = WG_FOLD_max(acc0A[0], y0);
            }
            if (i < n) {
                V y0;
                NAME(softmax_sweep0)(READ0(n - LANES), &y0);
                 acc0A[0] = WG_FOLD_max(acc0A[0], (freshA ? y0 : (V)(-INFINITY)));
            }
            WG_UNROLL for (int uA = 1; uA < 4; uA++) acc0A[0] = WG_FOLD_max(acc0A[0], acc0A[uA]);
            r0 = NAME(total_max)(acc0A[0]);
        }
        ROW_V r1;
        {
            V acc0A[1];
            WG_UNROLL for (int uA = 0; uA < 1; uA++) acc0A[uA] = (V)(0);
            long i = 0;
            for (; i + LANES <= n; i += LANES) {
                V y0;
                NAME(softmax_sweep1)(READ0(i), r0, &y0); CACHE_VALUE(i, y0); AHEAD0(i);
                 acc0A[0] = WG_FOLD_sum(acc0A[0], y0);
            }
            if (i < n) {
                V y0;
                NAME(softmax_sweep1)(READ0(n - LANES), r0, &y0); cachedTailA = y0;
                 acc0A[0] = WG_FOLD_sum(acc0A[0], (freshA ? y0 : (V)(0)));
            }
            WG_UNROLL for (int uA = 1; uA < 1; uA++) acc0A[0] = WG_FOLD_sum(acc0A[0], acc0A[uA]);
            r1 = NAME(total_sum)(acc0A[0]);
        }
        const ROW_V w0 = (C)(1) / r1;
        {
            // The last vector overlaps the one before it. Compute it first, because a result may overwrite an operand.
            V last_y0A; 
            if (raggedA) { NAME(softmax_result)(cachedTailA, w0, &last_y0A); }
            for (long i = 0; i + LANES <= n; i += LANES) {
                V y0;
                NAME(softmax_result)(CACHED(i), w0, &y0);
                 WRITE1(i, y0);
            }
            if (raggedA) {  WRITE1(n - LANES, last_y0A); }
        }
    }
#else
    const M filledA = LANE < (L)((int)n);
    V cachedA;
    for (; row < end; row++) {
        global const S0 *x0 = base0A + NAME(row_offset)(row, geo.size, geo.stride + 0 * OUTER);
        global S1 *x1 = base1A + NAME(row_offset)(row, geo.size, geo.stride + 1 * OUTER);
#if CLASS0 == 0 && !defined(SCHEDULE_GROUP)
        const V uniform0A = (V)(LOAD0(x0));
#endif
        ROW_V r0;
        {
            V y0;
            NAME(softmax_sweep0)(READ0(0), &y0);
            r0 = NAME(total_max)(filledA ? y0 : (V)(-INFINITY));
        }
        ROW_V r1;
        {
            V y0;
            NAME(softmax_sweep1)(READ0(0), r0, &y0); CACHE_VALUE(0, y0);
            r1 = NAME(total_sum)(filledA ? y0 : (V)(0));
        }
        const ROW_V w0 = (C)(1) / r1;
        {
            V y0;
            NAME(softmax_result)(CACHED(0), w0, &y0);
             WRITE1(0, y0);
        }
    }
#endif
}
#endif

#ifdef SCHEDULE_COLUMNS
WG_ONE kernel void NAME(softmax_columns)(global const S0 *p0, global S1 *p1, CACHE_PARAMETER const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    global const S0 *base0A = WG_AT(const S0, p0, dyn.offset[0]);
    global S1 *base1A = WG_AT(S1, p1, dyn.offset[1]);
    const C n_ = (C)geo.n;
    const long n = geo.n;
    long slabA = (long)get_global_id(0) * geo.chunk;
    const long end = slabA + geo.chunk < geo.rows ? slabA + geo.chunk : geo.rows;
    const long begin = (long)get_global_id(1) * geo.block;
    const long stopA = begin + geo.block < geo.width ? begin + geo.block : geo.width;
    global S2 *cachedA = WG_AT(S2, p2, dyn.offset[2])
        + ((long)get_global_id(0) * get_global_size(1) + get_global_id(1)) * n * LANES;
    for (; slabA < end; slabA++) for (long columnA = begin; columnA < stopA; columnA += LANES) {
        global const S0 *x0 = base0A + NAME(row_offset)(slabA, geo.size, geo.stride + 0 * OUTER);
        global S1 *x1 = base1A + NAME(row_offset)(slabA, geo.size, geo.stride + 1 * OUTER);
        x0 += columnA * geo.across[0];
        x1 += columnA * geo.across[1];
        if (columnA + LANES <= stopA) {
            const int mA = LANES;
        ROW_V r0;
        {
            V acc0A[1];
            WG_UNROLL for (int uA = 0; uA < 1; uA++) acc0A[uA] = (V)(-INFINITY);
            long i = 0;
            for (; i + 1 <= n; i += 1) {
                V y0;
                NAME(softmax_sweep0)(READ0(i), &y0);
                 acc0A[0] = WG_FOLD_max(acc0A[0], y0);
            }
            WG_UNROLL for (int uA = 1; uA < 1; uA++) acc0A[0] = WG_FOLD_max(acc0A[0], acc0A[uA]);
            r0 = acc0A[0];
        }
        ROW_V r1;
        {
            V acc0A[1];
            WG_UNROLL for (int uA = 0; uA < 1; uA++) acc0A[uA] = (V)(0);
            long i = 0;
            for (; i + 1 <= n; i += 1) {
                V y0;
                NAME(softmax_sweep1)(READ0(i), r0, &y0); CACHE_VALUE(i, y0);
                 acc0A[0] = WG_FOLD_sum(acc0A[0], y0);
            }
            WG_UNROLL for (int uA = 1; uA < 1; uA++) acc0A[0] = WG_FOLD_sum(acc0A[0], acc0A[uA]);
            r1 = acc0A[0];
        }
        const ROW_V w0 = (V)(1) / r1;
        {
            for (long i = 0; i < n; i++) {
                V y0;
                NAME(softmax_result)(CACHED(i), w0, &y0);
                 WRITE1(i, y0);
            }
        }
        } else {
            const int mA = stopA - columnA;
        ROW_V r0;
        {
            V acc0A[1];
            WG_UNROLL for (int uA = 0; uA < 1; uA++) acc0A[uA] = (V)(-INFINITY);
            long i = 0;
            for (; i + 1 <= n; i += 1) {
                V y0;
                NAME(softmax_sweep0)(READ0(i), &y0);
                 acc0A[0] = WG_FOLD_max(acc0A[0], y0);
            }
            WG_UNROLL for (int uA = 1; uA < 1; uA++) acc0A[0] = WG_FOLD_max(acc0A[0], acc0A[uA]);
            r0 = acc0A[0];
        }
        ROW_V r1;
        {
            V acc0A[1];
            WG_UNROLL for (int uA = 0; uA < 1; uA++) acc0A[uA] = (V)(0);
            long i = 0;
            for (; i + 1 <= n; i += 1) {
                V y0;
                NAME(softmax_sweep1)(READ0(i), r0, &y0); CACHE_VALUE(i, y0);
                 acc0A[0] = WG_FOLD_sum(acc0A[0], y0);
            }
            WG_UNROLL for (int uA = 1; uA < 1; uA++) acc0A[0] = WG_FOLD_sum(acc0A[0], acc0A[uA]);
            r1 = acc0A[0];
        }
        const ROW_V w0 = (V)(1) / r1;
        {
            for (long i = 0; i < n; i++) {
                V y0;
                NAME(softmax_result)(CACHED(i), w0, &y0);
                 WRITE1(i, y0);
            }
        }
        }
    }
}
#endif

#ifdef SCHEDULE_GROUP
__attribute__((reqd_work_group_size(GROUP, 1, 1)))
kernel void NAME(softmax_group)(global const S0 *p0, global S1 *p1, CACHE_PARAMETER const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    local C treeA[GROUP];
    const int lidA = get_local_id(0);
    global const S0 *base0A = WG_AT(const S0, p0, dyn.offset[0]);
    global S1 *base1A = WG_AT(S1, p1, dyn.offset[1]);
    const C n_ = (C)geo.n;
    const long n = geo.n;
    const long end = ((long)get_group_id(0) + 1) * geo.chunk < geo.rows ? ((long)get_group_id(0) + 1) * geo.chunk : geo.rows;
    for (long row = (long)get_group_id(0) * geo.chunk; row < end; row++) {
        global const S0 *x0 = base0A + NAME(row_offset)(row, geo.size, geo.stride + 0 * OUTER);
        global S1 *x1 = base1A + NAME(row_offset)(row, geo.size, geo.stride + 1 * OUTER);
#if CLASS0 == 0 && !defined(SCHEDULE_GROUP)
        const V uniform0A = (V)(LOAD0(x0));
#endif
        ROW_V r0;
        {
            C acc0A[1] = { -INFINITY };
            for (long i = lidA; i < n; i += GROUP) {
                V y0;
                NAME(softmax_sweep0)(READ0(i), &y0);
                 acc0A[0] = WG_FOLD_max(acc0A[0], y0);
            }
            treeA[lidA] = acc0A[0];
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int stepA = GROUP / 2; stepA; stepA /= 2) {
                if (lidA < stepA) treeA[lidA] = WG_FOLD_max(treeA[lidA], treeA[lidA + stepA]);
                barrier(CLK_LOCAL_MEM_FENCE);
            }
            r0 = treeA[0];
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        ROW_V r1;
        {
            C acc0A[1] = { 0 };
            for (long i = lidA; i < n; i += GROUP) {
                V y0;
                NAME(softmax_sweep1)(READ0(i), r0, &y0);
                 acc0A[0] = WG_FOLD_sum(acc0A[0], y0);
            }
            treeA[lidA] = acc0A[0];
            barrier(CLK_LOCAL_MEM_FENCE);
            for (int stepA = GROUP / 2; stepA; stepA /= 2) {
                if (lidA < stepA) treeA[lidA] = WG_FOLD_sum(treeA[lidA], treeA[lidA + stepA]);
                barrier(CLK_LOCAL_MEM_FENCE);
            }
            r1 = treeA[0];
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        const ROW_V w0 = (C)(1) / r1;
        {
            for (long i = lidA; i < n; i += GROUP) {
                V y0;
                NAME(softmax_result)(READ0(i), r0, w0, &y0);
                 WRITE1(i, y0);
            }
        }
    }
}
#endif
#undef READ0
#undef WRITE0
#undef ADD0
#undef AHEAD0
#undef READ1
#undef WRITE1
#undef ADD1
#undef AHEAD1
#undef PREFETCH_LIMIT
#undef INDEX
#undef CACHED
#undef CACHE_VALUE
#endif
#undef ROW_V
#undef ROW_M
#undef ROW_L
#undef BROADCAST_V
#undef BROADCAST_M
#undef BROADCAST_L
#undef LANE
#undef ELEMENT_OFFSET
#undef CACHE_PARAMETER
