// Every program begins with this: what OpenCL compilers spell differently, and unaligned vectors.
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
#ifdef WG_PREFETCH // taken away by build options for simulators that do not know it
#elif __has_builtin(__builtin_prefetch)
#define WG_PREFETCH(place) __builtin_prefetch((const void *)(size_t)(place))
#else
#define WG_PREFETCH(place)
#endif
#define WG_UNROLL _Pragma("unroll")
#ifdef WG_DECLARE // the compiler was told to leave out its own declarations: these are all that kernels here call
#define WG_OF_A_WORK_ITEM size_t __attribute__((overloadable, const))
WG_OF_A_WORK_ITEM get_global_id(uint);
WG_OF_A_WORK_ITEM get_local_id(uint);
WG_OF_A_WORK_ITEM get_group_id(uint);
WG_OF_A_WORK_ITEM get_global_size(uint);
WG_OF_A_WORK_ITEM get_local_size(uint);
void __attribute__((overloadable, convergent)) barrier(cl_mem_fence_flags);
#endif
// Every bit inverted; where a kernel calculates with truth values, 0 and 1 exchanged (pointwise.cl.j2).
#define WG_NOT(x) (~(x))
// One work-item a work-group: what CPU schedules want, and what lets the compiler drop the work-item loop.
#define WG_ONE __attribute__((reqd_work_group_size(1, 1, 1)))
// Tensors start anywhere that suits their element, so vectors are read with the alignment of one element.
#define WG_UNALIGNED(T) \
    typedef T##2 __attribute__((aligned(sizeof(T)))) T##2_u; \
    typedef T##4 __attribute__((aligned(sizeof(T)))) T##4_u; \
    typedef T##8 __attribute__((aligned(sizeof(T)))) T##8_u; \
    typedef T##16 __attribute__((aligned(sizeof(T)))) T##16_u;
// A tensor's first element: its buffer, moved by the bytes the call gave.
#define WG_AT(S, p, bytes) ((global S *)((global char *)(p) + (bytes)))
#ifndef WG_INLINE // taken away by build options for simulators that cannot run what the inliner leaves behind
#define WG_INLINE __attribute__((always_inline))
#endif
// Keeps what computes v apart from what uses it, for compilers that merge shuffles into more of them.
#ifdef WG_ASSEMBLER512
#define WG_KEEP_PLAIN(T) static inline T __attribute__((overloadable)) wg_kept(T v) { return v; }
#define WG_KEEP_IN_REGISTERS(T) \
    static inline T __attribute__((overloadable)) wg_kept(T v) { __asm__("vmovaps %1, %0" : "=X"(v) : "X"(v)); return v; }
#define WG_KEEPING(T, KEEP) KEEP(T##4) KEEP(T##8) KEEP(T##16)
WG_KEEPING(char, WG_KEEP_PLAIN) WG_KEEPING(uchar, WG_KEEP_PLAIN) WG_KEEPING(short, WG_KEEP_PLAIN)
WG_KEEPING(ushort, WG_KEEP_PLAIN) WG_KEEPING(int, WG_KEEP_PLAIN) WG_KEEPING(uint, WG_KEEP_PLAIN)
WG_KEEPING(long, WG_KEEP_PLAIN) WG_KEEPING(ulong, WG_KEEP_PLAIN) WG_KEEPING(float, WG_KEEP_IN_REGISTERS)
WG_KEEP_IN_REGISTERS(double4) WG_KEEP_IN_REGISTERS(double8) WG_KEEP_PLAIN(double16)
#define WG_KEEP(v) ((v) = wg_kept(v))
// Keeps a sum of a loop's constants a number, for compilers that take it apart and add its terms at every turn.
#define WG_SUMMED(i) __asm__("" : "+r"(i))
#else
#define WG_KEEP(v)
#define WG_SUMMED(i)
#endif
