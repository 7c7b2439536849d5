/* The path of every op, in C: a third of the time of the same statements in Python.
 *
 * Nothing is kept here. State is that of the Python objects, whose slots are read and written where their classes say
 * that they are, and each function is the twin of one in Python, which it calls for whatever is not plain:
 *
 *     dispatch.c   call, empty     dispatch.call, Plan; dispatch.empty
 *     operator.c   Operator        what api/_install.py puts on Tensor for `+` and the like
 *     into.c       call_into       dispatch.call_into, of what records nothing
 *     graph.c      tensor_of ...   Tensor, Extra, autograd.node.Node and Saved; dispatch._view
 *     memory.c     take, finalize  pool.Pool.allocate, the drivers' `allocate`, storage.Storage.__del__
 *     arguments.c  Signature       backends.arguments: a launch's numbers as kernels read them
 *     launch.c     Launcher        backends.opencl.OpenCLDriver.prepare
 *     call.c       HostLauncher    backends.cpu.launching.HostLauncher: kernels of `cpu`, which are C functions
 *     team.c       team_run        nothing: threads that share the work-items of such a call
 *
 * A change of one is a change of the other; tests/test_native.py runs both. Everything runs with the interpreter's
 * lock held (as short kernels do under pyopencl), but for waiting.
 */
#ifndef WEFTGRAD_NATIVE_H
#define WEFTGRAD_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdint.h>
#include <string.h>

/* The slots that are used here, by class. */
#define SLOTS_Tensor(X) X(extra) X(meta) X(needs) X(node) X(output) X(start) X(storage)
#define SLOTS_Storage(X) X(_pool) X(block) X(buffer) X(device) X(nbytes) X(owner) X(pending) X(start) X(version)
#define SLOTS_Extra(X) X(base) X(grad) X(hooks) X(retains) X(rewrites) X(seen) X(stored)
#define SLOTS_Block(X) X(bin) X(offset) X(requested) X(segment) X(size)
#define SLOTS_Segment(X) X(handle)
#define SLOTS_HostSegment(X) X(buffer)
#define SLOTS_Pool(X) X(_allocated) X(_allocated_peak) X(_allocations) X(_bins) X(_freed) X(_lock) X(free) X(rehearsal)
#define SLOTS_Plan(X) X(device) X(driver) X(numbers) X(outputs) X(recipe) X(run) X(tensors) X(view) X(visible)
#define SLOTS_Meta(X) X(contiguous) X(device) X(nbytes) X(numel) X(shape) X(strides)
#define SLOTS_Device(X) X(_driver)
#define SLOTS_State(X) X(grad) X(mode) X(plans) X(streams)
#define SLOTS_Recipe(X) X(differentiable) X(edges) X(saved_operands) X(saved_outputs)
#define SLOTS_Node(X)                                                                                                  \
    X(edges) X(freed) X(function) X(hooks) X(recipe) X(saved) X(saved_out) X(sequence) X(statics) X(trace)
#define SLOTS_Saved(X) X(leaf) X(meta) X(needs) X(node) X(output) X(start) X(storage) X(version)
#define SLOTS_Scratch(X) X(start) X(storage)
#define SLOTS_Base(X) X(buffer) X(start) X(storage)
#define SLOTS_QueueStream(X) X(deep) X(pool)
#define SLOTS_Counter(X) X(value)

#define CLASSES(X)                                                                                                     \
    X(Tensor) X(Storage) X(Extra) X(Block) X(Segment) X(HostSegment) X(Pool) X(Plan) X(Meta) X(Device) X(State) X(Recipe) X(Node)        \
    X(Saved) X(Scratch) X(Base) X(QueueStream) X(Counter)

#define FIELD(name) Py_ssize_t name;
#define DECLARE(class)                                                                                                 \
    struct class##Slots { PyTypeObject *type; SLOTS_##class(FIELD) };                                                  \
    extern struct class##Slots class;
CLASSES(DECLARE)

#define AT(object, class, slot) (*(PyObject **)((char *)(object) + class.slot))

static inline int is_a(PyObject *object, PyTypeObject *type) {
    return Py_IS_TYPE(object, type) || PyType_IsSubtype(Py_TYPE(object), type);
}

/* A new object of a class, its slots empty: `PUT` fills one, `PUT_OWNED` with a reference that it takes over. */
static inline PyObject *made(PyTypeObject *type) { return type->tp_alloc(type, 0); }
#define PUT(object, class, slot, value) (AT(object, class, slot) = Py_XNewRef(value))
#define PUT_OWNED(object, class, slot, value) (AT(object, class, slot) = (value))

/* Another value, taken over, in a slot that has one. */
static inline void change(PyObject **slot, PyObject *owned) {
    PyObject *before = *slot;
    *slot = owned;
    Py_XDECREF(before);
}

static inline Py_ssize_t number_at(PyObject *tuple, Py_ssize_t i) { return PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, i)); }

/* What functions of several files use. */
enum { MOST_BUFFERS = 40 };  /* of a launch here; optimizers have 33, and others go by Python */
enum { MOST_BYTES = 16 * MOST_BUFFERS };  /* of a launch's offsets and numbers */
extern PyObject *states, *slow_call, *slow_call_into, *slow_empty, *numbering, *zero, *one, *nothing;
extern PyObject *s_acquire, *s_allocate, *s_appendleft, *s_default_stream, *s_driver, *s_int_ptr, *s_popleft, *s_release,
    *s_retire, *s_state;
extern PyTypeObject launcher_type, host_launcher_type, kernel_type, operator_type;

typedef int32_t Status;
extern struct Driver {  /* OpenCL's functions, of the library that pyopencl uses */
    Status (*clSetKernelArg)(void *, uint32_t, size_t, const void *);
    Status (*clEnqueueNDRangeKernel)(void *, void *, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t,
                                     const void *, void **);
} driver;

/* A compiled kernel of the `cpu` device: it runs the work-items from `begin` up to `end` of a launch of
 * size[0] * size[1] * size[2]. runtime/program.py writes the function. */
typedef void WorkItems(void *const *arguments, const size_t *size, size_t begin, size_t end);
typedef struct {
    WorkItems *code;
    void *arguments[MOST_BUFFERS + 2];  /* addresses of the arguments' values */
    size_t size[3], items;
} Launch;

/* Which arguments of a call a kernel reads, as positions in its lists of tensors and numbers: buffers, then integers (64
 * bits each), then scalars of the compute type, whose struct letter is `element`. */
typedef struct {
    int buffer_count, integer_count, scalar_count;
    int buffer_positions[MOST_BUFFERS], number_positions[MOST_BUFFERS];  /* integers' positions before scalars' */
    char element;
} Signature;

/* Kernels round to nearest and keep subnormal numbers, whatever the calling thread's mode is. `set_kernel_rounding`
 * returns that mode, which `restore_rounding` puts back; neither writes the register where nothing would change. */
#if defined(__SSE__)
#include <xmmintrin.h>
typedef unsigned Rounding;  /* MXCSR without the flags of exceptions that were raised */
enum { KERNEL_ROUNDING = 0x1F80, RAISED_FLAGS = 0x3F };
static inline Rounding read_rounding(void) { return _mm_getcsr() & ~(Rounding)RAISED_FLAGS; }
static inline void write_rounding(Rounding mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__) && defined(__GNUC__)
typedef uint64_t Rounding;  /* FPCR, whose zero is rounding to nearest, without flushing to zero or traps */
enum { KERNEL_ROUNDING = 0 };
static inline Rounding read_rounding(void) {
    Rounding mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
static inline void write_rounding(Rounding mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
#else
typedef unsigned Rounding;  /* other processors: the thread's mode is the kernels' */
enum { KERNEL_ROUNDING = 0 };
static inline Rounding read_rounding(void) { return KERNEL_ROUNDING; }
static inline void write_rounding(Rounding mode) { (void)mode; }
#endif
static inline Rounding set_kernel_rounding(void) {
    Rounding before = read_rounding();
    if (before != KERNEL_ROUNDING) write_rounding(KERNEL_ROUNDING);
    return before;
}
static inline void restore_rounding(Rounding before) {
    if (before != KERNEL_ROUNDING) write_rounding(before);
}

typedef struct { PyObject *const *items; Py_ssize_t count; } List;  /* of a tuple or a list */

static inline int is_list(PyObject *o) { return PyTuple_Check(o) || PyList_Check(o); }
static inline List list_of(PyObject *o) { return (List){PySequence_Fast_ITEMS(o), PySequence_Fast_GET_SIZE(o)}; }

PyObject *state_of(void);
PyObject *plan_of(PyObject *state, PyObject *record, PyObject *statics, List operands, PyObject *into);
PyObject *called(PyObject *record, List operands, PyObject *statics);
int is_plain(PyObject *tensor);
int run(PyObject *plan, PyObject *const *operands, List outs, PyObject *stream);
PyObject *call_into(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *empty(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *call(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *storage_of(PyObject *device, PyObject *driver, PyObject *stream, PyObject *nbytes);
PyObject *finalize(PyObject *storage, PyObject *nothing);
PyObject *tensor_of(PyObject *storage, PyObject *meta, PyObject *start);
PyObject *view_of(PyObject *plan, PyObject *const *operands, PyObject *statics);
int recorded(PyObject *plan, PyObject *const *operands, PyObject *const *outs, PyObject *statics);
int launched(PyObject *run, PyObject *const *tensors, Py_ssize_t count, PyObject *const *scalars,
             Py_ssize_t scalar_count, PyObject *stream);
int operand_slots(PyObject *tensor, PyObject **start, PyObject **buffer);
int read_signature(Signature *signature, PyObject *buffers, PyObject *integers, PyObject *scalars, char element);
Py_ssize_t pack_numbers(const Signature *signature, PyObject *const *scalars, Py_ssize_t count, char *dynamic,
                        size_t size);
int sizes_of(PyObject *tuple, size_t *to);
PyObject *launched_by(PyObject *fallback, PyObject *const *tensors, Py_ssize_t count, PyObject *const *scalars,
                      Py_ssize_t scalar_count, PyObject *stream);
void team_run(const Launch *launch, uint32_t helpers, int64_t expected_ns);
void team_limit(uint32_t helpers);
int host_launch(PyObject *launcher, PyObject *const *tensors, Py_ssize_t count, PyObject *const *scalars,
                Py_ssize_t scalar_count);
void set_detour(int on);
PyObject *call_kernel(PyObject *module, PyObject *args);

#endif
