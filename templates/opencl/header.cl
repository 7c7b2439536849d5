// Every program begins with this header: differences between OpenCL compilers, and unaligned vectors.
#ifndef __has_builtin
#define __has_builtin(x) 0
#endif
#if __has_builtin(__builtin_convertvector)
#define WG_CONVERT(x, T) __builtin_convertvector((x), T)
#else
#define WG_CONVERT_(x, T) convert_##T(x)
#define WG_CONVERT(x, T) WG_CONVERT_(x, T)
#endif
#if __has_builtin(__builtin_nontemporal_store)
#define WG_STREAM(place, v) __builtin_nontemporal_store((v), (place))
#else
#define WG_STREAM(place, v) (*(place) = (v))
#endif
#ifdef WG_PREFETCH // build options disable it for simulators without prefetch
#define WG_PREFETCH_L2(place)
#elif __has_builtin(__builtin_prefetch) && (defined(WG_AS_C) || defined(__x86_64__) || defined(__aarch64__))
// Only for known processors: translators from LLVM to SPIR-V (Intel's GPUs, Mesa) abort at prefetch instructions.
#define WG_PREFETCH(place) __builtin_prefetch((const void *)(size_t)(place))
#define WG_PREFETCH_L2(place) __builtin_prefetch((const void *)(size_t)(place), 0, 2)
#else
#define WG_PREFETCH(place)
#define WG_PREFETCH_L2(place)
#endif
// Vectors wider than a register are intended: the ABI does not matter, because no other code calls these functions.
#ifdef __clang__
#pragma clang diagnostic ignored "-Wpsabi"
#endif
#define WG_UNROLL _Pragma("unroll")
// Blocks in which a fused multiply-add would be wrong begin with `#pragma OPENCL FP_CONTRACT OFF`, which every OpenCL
// compiler must obey, and `#pragma clang fp contract(off)`, because clang ignores the other one in C.
#ifdef WG_DECLARE // the compiler runs without its built-in declarations: these are all that our kernels call
#define WG_OF_A_WORK_ITEM size_t __attribute__((overloadable, const))
WG_OF_A_WORK_ITEM get_global_id(uint);
WG_OF_A_WORK_ITEM get_local_id(uint);
WG_OF_A_WORK_ITEM get_group_id(uint);
WG_OF_A_WORK_ITEM get_global_size(uint);
WG_OF_A_WORK_ITEM get_local_size(uint);
WG_OF_A_WORK_ITEM get_num_groups(uint);
void __attribute__((overloadable, convergent)) barrier(cl_mem_fence_flags);
#endif
#ifndef WG_LIST // a vector of listed elements: (float2)WG_LIST 0, 1 WG_LIST_END
#define WG_LIST (
#define WG_LIST_END )
#endif
// Bitwise not; a kernel that computes with truth values redefines it to swap 0 and 1 (pointwise.cl.j2).
#define WG_NOT(x) (~(x))
// Structs of arguments have arrays of one dimension only, and end at multiples of 8 bytes: Mesa's compiler computes the
// sizes of others wrongly. The length of an array of at least n numbers of the compute type that fills 64-bit words:
#define WG_PADDED(n) (((n) * sizeof(C) + 7) / 8 * 8 / sizeof(C))
// One work-item per work-group, for CPU schedules: the compiler can drop the work-item loop. Intel's compiler still
// builds a version that vectorises over work-items, which takes minutes for kernels with many vectors of bytes.
#ifndef __has_attribute
#define __has_attribute(x) 0
#endif
#if defined(WG_AS_C)
#define WG_ALONE
#elif __has_attribute(intel_vec_len_hint)
#define WG_ALONE __attribute__((reqd_work_group_size(1, 1, 1), intel_vec_len_hint(1)))
#else
#define WG_ALONE __attribute__((reqd_work_group_size(1, 1, 1)))
#endif
#define WG_ONE WG_ALONE
// The size of a kernel's work-groups, for kernels that count on it: a driver shrinks those of all others where needed.
#ifdef WG_AS_C
#define WG_GROUP_OF(n)
#else
#define WG_GROUP_OF(n) __attribute__((reqd_work_group_size(n, 1, 1)))
#endif
// Tensors are only aligned to their element, so vectors are loaded with the alignment of one element.
#define WG_UNALIGNED(T) \
    typedef T##2 __attribute__((aligned(sizeof(T)))) T##2_u; \
    typedef T##4 __attribute__((aligned(sizeof(T)))) T##4_u; \
    typedef T##8 __attribute__((aligned(sizeof(T)))) T##8_u; \
    typedef T##16 __attribute__((aligned(sizeof(T)))) T##16_u;
// A tensor's first element: its buffer plus the byte offset of the call.
#define WG_AT(S, p, bytes) ((global S *)((global char *)(p) + (bytes)))
#ifndef WG_INLINE // build options disable it for simulators that cannot run the inliner's output
#define WG_INLINE __attribute__((always_inline))
#endif
// Transpose t, an array of LANES vectors of type T with LANES elements each. First interleave the elements of two rows
// within 16-byte chunks until the chunks hold columns, then permute the chunks. So every step is one non-destructive
// x86 instruction without a register for indices.
#if __has_builtin(__builtin_shufflevector) && !defined(WG_NO_SHUFFLES)
#define WG_ALL_2(F, T, h) F(T, h, 0), F(T, h, 1)
#define WG_ALL_4(F, T, h) WG_ALL_2(F, T, h), F(T, h, 2), F(T, h, 3)
#define WG_ALL_8(F, T, h) WG_ALL_4(F, T, h), F(T, h, 4), F(T, h, 5), F(T, h, 6), F(T, h, 7)
#define WG_ALL_16(F, T, h) \
    WG_ALL_8(F, T, h), F(T, h, 8), F(T, h, 9), F(T, h, 10), F(T, h, 11), F(T, h, 12), F(T, h, 13), F(T, h, 14), F(T, h, 15)
#define WG_PASTED_(a, b) a##b
#define WG_PASTED(a, b) WG_PASTED_(a, b)
#define WG_CHUNK(T) (int)(sizeof(T) > 16 ? LANES * 16 / sizeof(T) : LANES)
#define WG_CHUNKS(T) (LANES / WG_CHUNK(T))
// Index of the element of two vectors that moves to position i: for interleaved lower or upper halves (h) of chunks;
// for even or odd chunks.
#define WG_ZIPPED(T, h, i) (i / WG_CHUNK(T) * WG_CHUNK(T) + i % WG_CHUNK(T) / 2 + h * (WG_CHUNK(T) / 2) + i % 2 * LANES)
#define WG_SORTED(T, h, i) ((i / WG_CHUNK(T) * 2 + h) * WG_CHUNK(T) + i % WG_CHUNK(T))
#define WG_MIXED(F, T, h, a, b) __builtin_shufflevector(a, b, WG_PASTED(WG_ALL_, LANES)(F, T, h))
#define WG_TRANSPOSE(T, t) { \
    T mixed[LANES]; \
    WG_UNROLL for (int z = 1; z < WG_CHUNK(T); z *= 2) { \
        WG_UNROLL for (int q = 0; q < LANES; q += WG_CHUNK(T)) WG_UNROLL for (int l = 0; l < WG_CHUNK(T) / 2; l++) { \
            mixed[q + 2 * l] = WG_MIXED(WG_ZIPPED, T, 0, t[q + l], t[q + l + WG_CHUNK(T) / 2]); \
            mixed[q + 2 * l + 1] = WG_MIXED(WG_ZIPPED, T, 1, t[q + l], t[q + l + WG_CHUNK(T) / 2]); \
        } \
        WG_UNROLL for (int l = 0; l < LANES; l++) t[l] = mixed[l]; \
    } \
    WG_UNROLL for (int z = 1; z < WG_CHUNKS(T); z *= 2) { \
        WG_UNROLL for (int l = 0; l < LANES / 2; l++) { \
            const int first = l / WG_CHUNK(T) * 2 * WG_CHUNK(T) + l % WG_CHUNK(T); \
            mixed[l] = WG_MIXED(WG_SORTED, T, 0, t[first], t[first + WG_CHUNK(T)]); \
            mixed[l + LANES / 2] = WG_MIXED(WG_SORTED, T, 1, t[first], t[first + WG_CHUNK(T)]); \
        } \
        WG_UNROLL for (int l = 0; l < LANES; l++) t[l] = mixed[l]; \
    } \
}
#else
#define WG_TRANSPOSE(T, t) { \
    T transposed[LANES]; \
    WG_UNROLL for (int l = 0; l < LANES; l++) WG_UNROLL for (int m = 0; m < LANES; m++) transposed[l][m] = t[m][l]; \
    WG_UNROLL for (int l = 0; l < LANES; l++) t[l] = transposed[l]; \
}
#endif
