// Lets clang compile the project's OpenCL C kernels as C with vector extensions, for the device `cpu`. Included before
// header.cl. A kernel becomes a static function with four more parameters: the work-item's position (three) and the
// launch size (runtime/program.py adds them, and the exported function that loops over work-items).
#define WG_AS_C 1
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef __SIZE_TYPE__ size_t;
#ifdef _WIN32 // where `long` has 32 bits; in OpenCL it has 64
typedef long long wg_long;
typedef unsigned long long ulong;
#define long wg_long
#else
typedef unsigned long ulong;
#endif
#define WG_VECTORS(T, name) \
    typedef T name##2 __attribute__((ext_vector_type(2))); \
    typedef T name##3 __attribute__((ext_vector_type(3))); \
    typedef T name##4 __attribute__((ext_vector_type(4))); \
    typedef T name##8 __attribute__((ext_vector_type(8))); \
    typedef T name##16 __attribute__((ext_vector_type(16)));
WG_VECTORS(char, char)
WG_VECTORS(uchar, uchar)
WG_VECTORS(short, short)
WG_VECTORS(ushort, ushort)
WG_VECTORS(int, int)
WG_VECTORS(uint, uint)
#ifdef _WIN32
WG_VECTORS(wg_long, wg_long)
typedef wg_long2 long2;
typedef wg_long4 long4;
typedef wg_long8 long8;
typedef wg_long16 long16;
#else
WG_VECTORS(long, long)
#endif
WG_VECTORS(ulong, ulong)
WG_VECTORS(float, float)
WG_VECTORS(double, double)
// The functions that a shared library of kernels exports.
#ifdef _WIN32
#define WG_EXPORT __attribute__((dllexport))
#else
#define WG_EXPORT __attribute__((visibility("default")))
#endif
// Code that clang generates calls library functions implicitly. Elsewhere the C library of the process provides them.
// On Windows nothing resolves a library's undefined symbols at load, so they are defined here.
#ifdef _WIN32
#define WG_RUNTIME static __attribute__((used, no_builtin))
WG_RUNTIME void *memset(void *to, int value, size_t count) {
    for (size_t i = 0; i < count; i++) ((uchar *)to)[i] = (uchar)value;
    return to;
}
WG_RUNTIME void *memcpy(void *to, const void *from, size_t count) {
    for (size_t i = 0; i < count; i++) ((uchar *)to)[i] = ((const uchar *)from)[i];
    return to;
}
WG_RUNTIME void *memmove(void *to, const void *from, size_t count) {
    if ((size_t)to - (size_t)from >= count) return memcpy(to, from, count);
    while (count--) ((uchar *)to)[count] = ((const uchar *)from)[count];
    return to;
}
// Functions with more than a page of locals call this first, to touch each page of the stack in order: Windows commits
// a page when its guard page is touched. The size is in rax; on ARM, in units of 16 bytes, in x15. No register may
// change except, on ARM, x16 and x17.
#ifdef __x86_64__
__asm__(".p2align 4\n"
        "___chkstk_ms:\n"
        "    push %rcx\n"
        "    push %rax\n"
        "    lea 24(%rsp), %rcx\n" // end of the stack before the call
        "1:  cmp $4096, %rax\n"
        "    jb 2f\n"
        "    sub $4096, %rcx\n"
        "    test %rcx, (%rcx)\n"
        "    sub $4096, %rax\n"
        "    jmp 1b\n"
        "2:  sub %rax, %rcx\n"
        "    test %rcx, (%rcx)\n"
        "    pop %rax\n"
        "    pop %rcx\n"
        "    ret\n");
#else
__asm__(".p2align 2\n"
        "__chkstk:\n"
        "    lsl x16, x15, #4\n"
        "    mov x17, sp\n"
        "1:  sub x17, x17, #4096\n"
        "    subs x16, x16, #4096\n"
        "    ldr xzr, [x17]\n"
        "    b.gt 1b\n"
        "    ret\n");
#endif
#endif
// All address spaces are host memory.
#define kernel
#define __kernel
#define global
#define __global
#define local
#define constant const
#define private
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define __builtin_astype(x, T) __builtin_bit_cast(T, (x))
#define as_int(x) __builtin_bit_cast(int, (x))
#define as_int2(x) __builtin_bit_cast(int2, (x))
#define as_int4(x) __builtin_bit_cast(int4, (x))
#define as_int8(x) __builtin_bit_cast(int8, (x))
#define as_int16(x) __builtin_bit_cast(int16, (x))
#define as_uint(x) __builtin_bit_cast(uint, (x))
#define as_uint2(x) __builtin_bit_cast(uint2, (x))
#define as_uint4(x) __builtin_bit_cast(uint4, (x))
#define as_uint8(x) __builtin_bit_cast(uint8, (x))
#define as_uint16(x) __builtin_bit_cast(uint16, (x))
#define as_long(x) __builtin_bit_cast(long, (x))
#define as_long2(x) __builtin_bit_cast(long2, (x))
#define as_long4(x) __builtin_bit_cast(long4, (x))
#define as_long8(x) __builtin_bit_cast(long8, (x))
#define as_long16(x) __builtin_bit_cast(long16, (x))
#define as_ulong(x) __builtin_bit_cast(ulong, (x))
#define as_ulong2(x) __builtin_bit_cast(ulong2, (x))
#define as_ulong4(x) __builtin_bit_cast(ulong4, (x))
#define as_ulong8(x) __builtin_bit_cast(ulong8, (x))
#define as_ulong16(x) __builtin_bit_cast(ulong16, (x))
#define as_float(x) __builtin_bit_cast(float, (x))
#define as_float2(x) __builtin_bit_cast(float2, (x))
#define as_float4(x) __builtin_bit_cast(float4, (x))
#define as_float8(x) __builtin_bit_cast(float8, (x))
#define as_float16(x) __builtin_bit_cast(float16, (x))
#define as_double(x) __builtin_bit_cast(double, (x))
#define as_double2(x) __builtin_bit_cast(double2, (x))
#define as_double4(x) __builtin_bit_cast(double4, (x))
#define as_double8(x) __builtin_bit_cast(double8, (x))
#define as_double16(x) __builtin_bit_cast(double16, (x))
#define as_ushort16(x) __builtin_bit_cast(ushort16, (x))
// A vector literal has braces in C, parentheses in OpenCL C.
#define WG_LIST {
#define WG_LIST_END }
// Work-groups have one work-item, so a barrier does nothing.
#define barrier(fence)
#define reqd_work_group_size(x, y, z)
#define get_global_id(d) ((d) == 0 ? wg_x : (d) == 1 ? wg_y : wg_z)
#define get_group_id(d) get_global_id(d)
#define get_local_id(d) ((size_t)0)
#define get_local_size(d) ((size_t)1)
#define get_global_size(d) (wg_size[d])
#define get_num_groups(d) (wg_size[d])
