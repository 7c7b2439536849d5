// mul(input, other): out = input * other
typedef struct {
    long offset[3];
#if NUMBERS
    C number[WG_PADDED(NUMBERS)];
#endif
} NAME(Dynamic);
#if CLASS0 == 3
#define READ0(p) dyn.number[NUMBER0]
#define READV0(p) ((V)(dyn.number[NUMBER0]))
#else
#define READ0(p) LOAD0(p)
#define READV0(p) LOADV0(p)
#endif
#if CLASS1 == 3
#define READ1(p) dyn.number[NUMBER1]
#define READV1(p) ((V)(dyn.number[NUMBER1]))
#else
#define READ1(p) LOAD1(p)
#define READV1(p) LOADV1(p)
#endif

#if !defined(SCHEDULE_GRID_STRIDED)
static inline void NAME(mul_vector)(V input, V other, V *out) {
    *out = input * other;
}
#endif

static inline void NAME(mul_scalar)(C input, C other, C *out) {
    *out = (C)(input * other);
}

#undef WG_AHEAD
#if defined(SCHEDULE_GRID) || defined(WG_NO_AHEAD)
#define WG_AHEAD(address)
#else
// With many operations per element, the out-of-order window is too short to hide memory latency, and non-temporal
// stores occupy the line-fill buffers. So prefetch 64 cache lines ahead, and again 16 ahead (gelu of 4M elements takes
// half the time). Vectors of half a line prefetch once; for shorter vectors prefetching costs more than it saves.
#define WG_AHEAD(address) \
    if (sizeof(*(address)) * LANES >= 32) WG_PREFETCH((global const char *)(address) + 4096); \
    if (sizeof(*(address)) * LANES > 32) WG_PREFETCH((global const char *)(address) + 1024);
#endif

#if defined(SCHEDULE_CONTIGUOUS) || defined(SCHEDULE_GRID)
// One run of elements: operands of class 1 are contiguous, operands of class 0 have a single element.
typedef struct { long n, chunk; } NAME(Geometry);
#ifdef SCHEDULE_CONTIGUOUS
WG_ONE kernel void NAME(mul_contiguous)(global const S0 *p0, global const S1 *p1, global S2 *p2, const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
#else
kernel void NAME(mul_grid)(global const S0 *p0, global const S1 *p1, global S2 *p2, const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
#endif
    global const S0 *x0 = WG_AT(const S0, p0, dyn.offset[0]);
    global const S1 *x1 = WG_AT(const S1, p1, dyn.offset[1]);
    global S2 *x2 = WG_AT(S2, p2, dyn.offset[2]);
    long i = (long)get_global_id(0) * geo.chunk;
    const long end = i + geo.chunk < geo.n ? i + geo.chunk : geo.n;
#if CLASS0 != 1
    const C uniform0 = READ0(x0);
    const V uniform_lanes0 = (V)(uniform0);
#define GETV0 uniform_lanes0
#define GET0 uniform0
#define AHEAD0
#else
#define AHEAD0 WG_AHEAD(x0 + i)
#define GETV0 READV0(x0 + i)
#define GET0 READ0(x0 + i)
#endif
#if CLASS1 != 1
    const C uniform1 = READ1(x1);
    const V uniform_lanes1 = (V)(uniform1);
#define GETV1 uniform_lanes1
#define GET1 uniform1
#define AHEAD1
#else
#define AHEAD1 WG_AHEAD(x1 + i)
#define GETV1 READV1(x1 + i)
#define GET1 READ1(x1 + i)
#endif
#ifdef STREAM // non-temporal stores must be aligned, but a copy may start anywhere, even inside an element
    const size_t byte_address = (size_t)(x2 + i), element = sizeof(S2);
    const long first_aligned = byte_address % element ? end : i + (long)(-byte_address % sizeof(V) / element);
    for (; i < first_aligned && i < end; i++) {
        C y0;
        NAME(mul_scalar)(GET0, GET1, &y0);
        STORE2(x2 + i, y0);
    }
#endif
    for (; i + LANES <= end; i += LANES) {
        AHEAD0
        AHEAD1
        V y0;
        NAME(mul_vector)(GETV0, GETV1, &y0);
#ifdef STREAM
        WG_STREAM((global V *)(x2 + i), y0);
#else
        STOREV2(x2 + i, y0);
#endif
    }
    for (; i < end; i++) {
        C y0;
        NAME(mul_scalar)(GET0, GET1, &y0);
        STORE2(x2 + i, y0);
    }
#undef GETV0
#undef GET0
#undef AHEAD0
#undef GETV1
#undef GET1
#undef AHEAD1
}
#endif

#if defined(SCHEDULE_ROWS) || defined(SCHEDULE_GRID_STRIDED)
// Any strides: an odometer counts the OUTER dimensions; a loop runs over the innermost one.
typedef struct {
    long rows, n;
#ifdef SCHEDULE_ROWS
    long row_chunk, chunk;
#endif
#if OUTER
    long size[OUTER];
#endif
    long stride[3 * (OUTER + 1)];
} NAME(Geometry);
#endif

#ifdef SCHEDULE_ROWS
#undef BACKWARDS
#if LANES == 16
#define BACKWARDS(T, a) ((a).sfedcba9876543210)
#elif LANES == 8
#define BACKWARDS(T, a) ((a).s76543210)
#elif LANES == 4
#define BACKWARDS(T, a) ((a).s3210)
#endif
WG_ONE kernel void NAME(mul_rows)(global const S0 *p0, global const S1 *p1, global S2 *p2, const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    global const S0 *x0 = WG_AT(const S0, p0, dyn.offset[0]);
    global const S1 *x1 = WG_AT(const S1, p1, dyn.offset[1]);
    global S2 *x2 = WG_AT(S2, p2, dyn.offset[2]);
    long row = (long)get_global_id(0) * geo.row_chunk;
    const long row_end = row + geo.row_chunk < geo.rows ? row + geo.row_chunk : geo.rows;
    const long begin = (long)get_global_id(1) * geo.chunk;
    const long end = begin + geo.chunk < geo.n ? begin + geo.chunk : geo.n;
#if OUTER
    long index[OUTER], rest = row;
    for (int d = OUTER - 1; d >= 0; d--) { index[d] = rest % geo.size[d]; rest /= geo.size[d]; }
#endif
    long o0 = 0; long o1 = 0; long o2 = 0; 
#if OUTER
    WG_UNROLL for (int d = 0; d < OUTER; d++) {
        o0 += index[d] * geo.stride[0 * (OUTER + 1) + d]; o1 += index[d] * geo.stride[1 * (OUTER + 1) + d]; o2 += index[d] * geo.stride[2 * (OUTER + 1) + d]; 
    }
#endif
    for (; row < row_end; row++) {
        global const S0 *r0 = x0 + o0;
        const long s0 = geo.stride[0 * (OUTER + 1) + OUTER];
#undef OFFSET0
#define OFFSET0(i) (CLASS0 == 5 ? (i) % s0 : (i) * s0)
#if CLASS0 == 0 || CLASS0 == 3
        const C uniform0 = READ0(r0);
        const V uniform_lanes0 = (V)(uniform0);
#elif CLASS0 == 5
        C repeated0[PERIOD + LANES];
        for (long j = 0, repeat = 0; j < s0 + LANES; j++) { repeated0[j] = READ0(r0 + repeat); if (++repeat == s0) repeat = 0; }
// The period of this call; PERIOD is the longest for which the kernel is compiled.
#undef PERIOD_LENGTH
#define PERIOD_LENGTH s0
#endif
        global const S1 *r1 = x1 + o1;
        const long s1 = geo.stride[1 * (OUTER + 1) + OUTER];
#undef OFFSET1
#define OFFSET1(i) (CLASS1 == 5 ? (i) % s1 : (i) * s1)
#if CLASS1 == 0 || CLASS1 == 3
        const C uniform1 = READ1(r1);
        const V uniform_lanes1 = (V)(uniform1);
#elif CLASS1 == 5
        C repeated1[PERIOD + LANES];
        for (long j = 0, repeat = 0; j < s1 + LANES; j++) { repeated1[j] = READ1(r1 + repeat); if (++repeat == s1) repeat = 0; }
// The period of this call; PERIOD is the longest for which the kernel is compiled.
#undef PERIOD_LENGTH
#define PERIOD_LENGTH s1
#endif
        global S2 *r2 = x2 + o2;
        const long s2 = geo.stride[2 * (OUTER + 1) + OUTER];
        long i = begin;
#ifdef PERIOD
        long phase = begin % PERIOD_LENGTH;
        const long phase_step = LANES % PERIOD_LENGTH;
#endif
        for (; i + LANES <= end; i += LANES) {
#if CLASS0 == 0 || CLASS0 == 3
            const V v0 = uniform_lanes0;
#elif CLASS0 == 5
            const V v0 = *(const VU *)(repeated0 + phase);
#elif CLASS0 == 1
            WG_AHEAD(r0 + i)
            const V v0 = READV0(r0 + i);
#elif CLASS0 == 4
            const V v0 = BACKWARDS(V, READV0(r0 - i - (LANES - 1)));
#else
            V v0;
            WG_UNROLL for (int l = 0; l < LANES; l++) v0[l] = READ0(r0 + (i + l) * s0);
#endif
#if CLASS1 == 0 || CLASS1 == 3
            const V v1 = uniform_lanes1;
#elif CLASS1 == 5
            const V v1 = *(const VU *)(repeated1 + phase);
#elif CLASS1 == 1
            WG_AHEAD(r1 + i)
            const V v1 = READV1(r1 + i);
#elif CLASS1 == 4
            const V v1 = BACKWARDS(V, READV1(r1 - i - (LANES - 1)));
#else
            V v1;
            WG_UNROLL for (int l = 0; l < LANES; l++) v1[l] = READ1(r1 + (i + l) * s1);
#endif
            V y0;
            NAME(mul_vector)(v0, v1, &y0);
#ifdef STREAM
            WG_STREAM((global V *)(r2 + i), y0);
#elif CLASS2 == 1
            STOREV2(r2 + i, y0);
#else
            WG_UNROLL for (int l = 0; l < LANES; l++) STORE2(r2 + (i + l) * s2, y0[l]);
#endif
#ifdef PERIOD
            phase += phase_step;
            phase -= phase >= PERIOD_LENGTH ? PERIOD_LENGTH : 0;
#endif
        }
        for (; i < end; i++) {
            C y0;
            NAME(mul_scalar)(READ0(r0 + OFFSET0(i)), READ1(r1 + OFFSET1(i)), &y0);
            STORE2(r2 + i * s2, y0);
        }
#if OUTER
        WG_UNROLL for (int d = OUTER - 1; d >= 0; d--) {
            o0 += geo.stride[0 * (OUTER + 1) + d]; o1 += geo.stride[1 * (OUTER + 1) + d]; o2 += geo.stride[2 * (OUTER + 1) + d]; 
            if (++index[d] < geo.size[d]) break;
            index[d] = 0;
            o0 -= geo.size[d] * geo.stride[0 * (OUTER + 1) + d]; o1 -= geo.size[d] * geo.stride[1 * (OUTER + 1) + d]; o2 -= geo.size[d] * geo.stride[2 * (OUTER + 1) + d]; 
        }
#endif
    }
}
#endif

#ifdef SCHEDULE_TILES
// Operands that are contiguous across rows (TURNk), with results that are contiguous within rows: tiles of LANES rows
// and columns are loaded as stored and transposed in registers, in blocks of BLOCK for caches and TLB.
#define BLOCK (4 * LANES)
// across: size of the last but one dimension, along which transposed operands are contiguous; blocks: number of blocks
// along it, in all outer dimensions together. A work-item computes `chunk` of these blocks by `columns` columns.
typedef struct {
    long across, n, blocks, chunk, columns;
    long size[OUTER], stride[3 * (OUTER + 1)];
} NAME(Geometry);

WG_ONE kernel void NAME(mul_tiles)(global const S0 *p0, global const S1 *p1, global S2 *p2, const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    global const S0 *x0 = WG_AT(const S0, p0, dyn.offset[0]);
    global const S1 *x1 = WG_AT(const S1, p1, dyn.offset[1]);
    global S2 *x2 = WG_AT(S2, p2, dyn.offset[2]);
    long block = (long)get_global_id(0) * geo.chunk;
    const long block_end = block + geo.chunk < geo.blocks ? block + geo.chunk : geo.blocks;
    const long first = (long)get_global_id(1) * geo.columns;
    const long end = first + geo.columns < geo.n ? first + geo.columns : geo.n;
    const long blocks_across = (geo.across + BLOCK - 1) / BLOCK;
    for (; block < block_end; block++) {
        const long row_begin = block % blocks_across * BLOCK, row_end = row_begin + BLOCK < geo.across ? row_begin + BLOCK : geo.across;
        long o0 = 0; long o1 = 0; long o2 = 0; 
#if OUTER > 1
        long rest = block / blocks_across;
        WG_UNROLL for (int d = OUTER - 2; d >= 0; d--) {
            const long position = rest % geo.size[d];
            rest /= geo.size[d];
            o0 += position * geo.stride[0 * (OUTER + 1) + d]; o1 += position * geo.stride[1 * (OUTER + 1) + d]; o2 += position * geo.stride[2 * (OUTER + 1) + d]; 
        }
#endif
        for (long left = first; left < end; left += BLOCK) {
            const long right = left + BLOCK < end ? left + BLOCK : end;
            long row = row_begin;
            for (; row < row_end; row += LANES) {
                long i = left;
                for (; row + LANES <= row_end && i + LANES <= right; i += LANES) {
#ifdef TURN0
                    V tile0[LANES];
                    WG_UNROLL for (int l = 0; l < LANES; l++) tile0[l] = READV0(x0 + o0 + row + (i + l) * geo.stride[0 * (OUTER + 1) + OUTER]);
                    WG_TRANSPOSE(V, tile0)
#endif
#ifdef TURN1
                    V tile1[LANES];
                    WG_UNROLL for (int l = 0; l < LANES; l++) tile1[l] = READV1(x1 + o1 + row + (i + l) * geo.stride[1 * (OUTER + 1) + OUTER]);
                    WG_TRANSPOSE(V, tile1)
#endif
#ifdef LIGHT // use the transposed tile from registers; unrolling an expensive function this often compiles slowly
                    WG_UNROLL
#endif
                    for (int l = 0; l < LANES; l++) {
#ifdef TURN0
                        const V v0 = tile0[l];
#else
                        global const S0 *r0 = x0 + o0 + (row + l) * geo.stride[0 * (OUTER + 1) + OUTER - 1];
#if CLASS0 == 1
                        const V v0 = READV0(r0 + i);
#elif CLASS0 == 2
                        V v0;
                        WG_UNROLL for (int m = 0; m < LANES; m++) v0[m] = READ0(r0 + (i + m) * geo.stride[0 * (OUTER + 1) + OUTER]);
#else
                        const C uniform0 = READ0(r0);
                        const V v0 = (V)(uniform0);
#endif
#endif
#ifdef TURN1
                        const V v1 = tile1[l];
#else
                        global const S1 *r1 = x1 + o1 + (row + l) * geo.stride[1 * (OUTER + 1) + OUTER - 1];
#if CLASS1 == 1
                        const V v1 = READV1(r1 + i);
#elif CLASS1 == 2
                        V v1;
                        WG_UNROLL for (int m = 0; m < LANES; m++) v1[m] = READ1(r1 + (i + m) * geo.stride[1 * (OUTER + 1) + OUTER]);
#else
                        const C uniform1 = READ1(r1);
                        const V v1 = (V)(uniform1);
#endif
#endif
                        V y0;
                        NAME(mul_vector)(v0, v1, &y0);
                        STOREV2(x2 + o2 + (row + l) * geo.stride[2 * (OUTER + 1) + OUTER - 1] + i, y0);
                    }
                }
                // The remainder that fills no tile.
                for (long edge_row = row; edge_row < row + LANES && edge_row < row_end; edge_row++) {
                    for (long column = i; column < right; column++) {
                        const long element0 = o0 + edge_row * geo.stride[0 * (OUTER + 1) + OUTER - 1] + column * geo.stride[0 * (OUTER + 1) + OUTER];
                        const long element1 = o1 + edge_row * geo.stride[1 * (OUTER + 1) + OUTER - 1] + column * geo.stride[1 * (OUTER + 1) + OUTER];
                        const long element2 = o2 + edge_row * geo.stride[2 * (OUTER + 1) + OUTER - 1] + column * geo.stride[2 * (OUTER + 1) + OUTER];
                        C y0;
                        NAME(mul_scalar)(READ0(x0 + element0), READ1(x1 + element1), &y0);
                        STORE2(x2 + element2, y0);
                    }
                }
            }
        }
    }
}
#undef BLOCK
#endif

#ifdef SCHEDULE_GRID_STRIDED
kernel void NAME(mul_grid_strided)(global const S0 *p0, global const S1 *p1, global S2 *p2, const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    const long index = get_global_id(0);
    if (index >= geo.rows * geo.n) return;
    global const S0 *x0 = WG_AT(const S0, p0, dyn.offset[0]);
    global const S1 *x1 = WG_AT(const S1, p1, dyn.offset[1]);
    global S2 *x2 = WG_AT(S2, p2, dyn.offset[2]);
    const long i = index % geo.n;
    long o0 = i * geo.stride[0 * (OUTER + 1) + OUTER]; long o1 = i * geo.stride[1 * (OUTER + 1) + OUTER]; long o2 = i * geo.stride[2 * (OUTER + 1) + OUTER]; 
#if OUTER
    long rest = index / geo.n;
    for (int d = OUTER - 1; d >= 0; d--) {
        const long position = rest % geo.size[d];
        rest /= geo.size[d];
        o0 += position * geo.stride[0 * (OUTER + 1) + d]; o1 += position * geo.stride[1 * (OUTER + 1) + d]; o2 += position * geo.stride[2 * (OUTER + 1) + d]; 
    }
#endif
    C y0;
    NAME(mul_scalar)(READ0(x0 + o0), READ1(x1 + o1), &y0);
    STORE2(x2 + o2, y0);
}
#endif
#undef READ0
#undef READV0
#undef READ1
#undef READV1
