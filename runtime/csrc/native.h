/* The hot path of every op in C, which takes a third of the time of the same statements in Python.
 *
 * The C code keeps no state of its own. It reads and writes the slots of Python objects directly, at the offsets of
 * their class's member descriptors. Each C function implements the common case of a Python function, and calls that
 * function for all other cases:
 *
 *     dispatch.c   call, empty     dispatch.call, Plan; dispatch.empty
 *     operator.c   Operator        the methods that api/tensor_methods adds to Tensor for `+` and other operators
 *     into.c       call_into       dispatch.call_into, if no gradient is recorded
 *     graph.c      tensor_of ...   Tensor, Extra, autograd.node.Node and Saved; dispatch._view
 *     backward.c   advance         autograd.engine._BackwardPass.step, with gradient_rules.c (autograd.rules) and
 *                                  gradient_sums.c (the sums of gradients, and set_reaching_nodes)
 *     memory.c     storage_of ...  pool.Pool.allocate, the drivers' `allocate`, storage.Storage.__del__
 *     arguments.c  Signature       backends.arguments: pack a launch's numbers as kernels read them
 *     launch.c     Launcher        backends.opencl.OpenCLDriver.prepare
 *     call.c       HostLauncher    backends.cpu.launching.ClangExecutor.prepare: kernels of `cpu` are C functions
 *     families.c   fill_plan       plan_families.Search, plans.Plan.refill: plan a call with new sizes
 *     program.c    Program         the functions that plan_functions writes for plan families
 *     sequence.c   Sequence        backends.arguments.launch_in_order
 *     messages.c   exchange_messages   distributed.exchanges.DirectMessages._exchange
 *     team.c       team_run        (only in C) threads that share the work-items of a `cpu` kernel
 *
 * Change both versions together; tests/test_native.py runs both. The interpreter's lock is held throughout, except
 * while a long `cpu` kernel runs.
 */
#ifndef WEFTGRAD_NATIVE_H
#define WEFTGRAD_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdint.h>
#include <string.h>

/* The slots that the C code uses, by class. */
#define SLOTS_Tensor(X) X(extra) X(meta) X(needs_grad) X(node) X(output) X(start) X(storage)
#define SLOTS_Storage(X) X(_pool) X(block) X(buffer) X(device) X(nbytes) X(owner) X(pending) X(start) X(version)
#define SLOTS_Extra(X) \
    X(base) X(grad) X(hooks) X(retains) X(rewrites) X(seen_rewrites) X(accumulation_hooks) X(ready_hook)
#define SLOTS_Block(X) X(bin) X(offset) X(requested) X(segment) X(size)
#define SLOTS_Segment(X) X(handle)
#define SLOTS_HostSegment(X) X(buffer)
#define SLOTS_Pool(X) X(_allocated) X(_allocated_peak) X(_allocations) X(_bins) X(_freed) X(_lock) X(free) X(rehearsal)
#define SLOTS_Plan(X)                                                                                                  \
    X(device) X(driver) X(has_only_tensors) X(nbytes) X(numbers) X(outputs) X(planned) X(recipe) X(run) X(single)      \
    X(tensors) X(view) X(visible)
#define SLOTS_Lineage(X) X(root)
#define SLOTS_Family(X) X(branches) X(program) X(template)
#define SLOTS_OpRecord(X) X(kind) X(statics)
#define SLOTS_Meta(X)                                                                                                  \
    X(contiguous) X(device) X(dtype) X(nbytes) X(numel) X(shape) X(signature) X(strides)
#define SLOTS_Device(X) X(_driver)
#define SLOTS_State(X) X(grad) X(mode) X(overriding_disabled) X(plans) X(streams)
#define SLOTS_Recipe(X)                                                                                                \
    X(applications) X(differentiable) X(edges) X(is_partial_view) X(is_reshape) X(out_metas) X(record)                 \
    X(saved_operands) X(saved_outputs) X(seeds)
#define SLOTS_Application(X)                                                                                           \
    X(broadcast_shape) X(count) X(dense_layout) X(keepdim_shape) X(layout) X(record) X(result) X(sources) X(statics)   \
    X(sum_dims) X(sum_record)
#define SLOTS_Node(X)                                                                                                  \
    X(edges) X(freed) X(function) X(hooks) X(recipe) X(saved) X(saved_out) X(sequence) X(statics) X(trace)
#define SLOTS_Saved(X) X(leaf) X(meta) X(needs_grad) X(node) X(output) X(start) X(storage) X(version)
#define SLOTS_BackwardState(X)                                                                                         \
    X(add_record) X(copy_record) X(create_graph) X(expand_record) X(fill_record) X(heap) X(inputs) X(leaves)           \
    X(node_sums) X(reaching_nodes) X(requested_leaves) X(requested_nodes) X(retain_graph) X(sum_record) X(view_record) \
    X(zero_edges)
#define SLOTS_GradientSums(X) X(grads) X(is_owned)
#define SLOTS_Scratch(X) X(start) X(storage)
#define SLOTS_Base(X) X(buffer) X(start) X(storage)
#define SLOTS_QueueStream(X) X(queue_address) X(pool)
#define SLOTS_Counter(X) X(value)

#define CLASSES(X)                                                                                                     \
    X(Tensor) X(Storage) X(Extra) X(Block) X(Segment) X(HostSegment) X(Pool) X(Plan) X(Lineage) X(Family) X(OpRecord)  \
    X(Meta) X(Device) X(State) X(Recipe) X(Application) X(Node) X(Saved) X(BackwardState) X(GradientSums) X(Scratch)   \
    X(Base) X(QueueStream) X(Counter)

#define FIELD(name) Py_ssize_t name;
#define DECLARE(class)                                                                                                 \
    struct class##Slots { PyTypeObject *type; SLOTS_##class(FIELD) };                                                  \
    extern struct class##Slots class;
CLASSES(DECLARE)

#define SLOT(object, class, slot) (*(PyObject **)((char *)(object) + class.slot))

static inline int is_a(PyObject *object, PyTypeObject *type) {
    return Py_IS_TYPE(object, type) || PyType_IsSubtype(Py_TYPE(object), type);
}

/* Return a new object of a class with empty slots. INIT_SLOT fills one, INIT_SLOT_STEAL steals the reference. */
static inline PyObject *new_object(PyTypeObject *type) { return type->tp_alloc(type, 0); }
#define INIT_SLOT(object, class, slot, value) (SLOT(object, class, slot) = Py_XNewRef(value))
#define INIT_SLOT_STEAL(object, class, slot, value) (SLOT(object, class, slot) = (value))

/* Replace the value of a filled slot. Steals the reference. */
static inline void set_slot(PyObject **slot, PyObject *owned) {
    PyObject *old_value = *slot;
    *slot = owned;
    Py_XDECREF(old_value);
}

extern PyObject *overriding_classes;  /* runtime/overriding.py: `classes` */

/* Return 1 if a tensor's class takes over calls, so that Python has to ask it. */
static inline int takes_over(PyObject *tensor, PyObject *state) {
    return !Py_IS_TYPE(tensor, Tensor.type) && PySet_GET_SIZE(overriding_classes) != 0 &&
           SLOT(state, State, overriding_disabled) != Py_True &&
           PySet_Contains(overriding_classes, (PyObject *)Py_TYPE(tensor)) != 0;
}

static inline Py_ssize_t index_at(PyObject *tuple, Py_ssize_t i) {
    return PyLong_AsSsize_t(PyTuple_GET_ITEM(tuple, i));
}

/* Shared by several files. */
enum { MAX_BUFFERS = 40 };  /* per launch from C; optimizers need 33. Larger launches go through Python */
enum { MAX_DYNAMIC_BYTES = 16 * MAX_BUFFERS };  /* size of a launch's packed offsets and numbers */
extern PyObject *states, *python_call, *python_call_into, *python_empty, *node_numbers, *zero, *one, *empty_tuple;
extern PyObject *forward_stack;  /* returns the `trace` of a node, in anomaly mode; else NULL */
extern PyObject *s_acquire, *s_add_to_part, *s_allocate, *s_appendleft, *s_default_stream, *s_driver, *s_fit_to,
    *s_int_ptr, *s_launcher, *s_lineages, *s_popleft, *s_release, *s_reshape, *s_reshape_unshared, *s_retire, *s_state,
    *s_step, *in_place_name;
extern PyTypeObject launcher_type, host_launcher_type, host_template_type, kernel_type, operator_type, program_type,
    sequence_type;

typedef int32_t Status;
extern struct Driver {  /* OpenCL's functions, from the library that pyopencl uses */
    Status (*clSetKernelArg)(void *, uint32_t, size_t, const void *);
    Status (*clEnqueueNDRangeKernel)(void *, void *, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t,
                                     const void *, void **);
} driver;

/* A compiled kernel of the `cpu` device: run the work-items from `begin` up to, not including, `end` of the launch's
 * size[0] * size[1] * size[2]. runtime/program.py generates the function. */
typedef void WorkItems(void *const *arguments, const size_t *size, size_t begin, size_t end);
typedef struct {
    WorkItems *code;
    void *arguments[MAX_BUFFERS + 2];  /* addresses of the arguments' values */
    size_t size[3], items;
} Launch;

/* The arguments of a call that a kernel reads, as positions in the call's tensors and numbers: buffers, then integers
 * (64 bits each), then scalars of the compute type. format: the compute type's letter in Python's `struct`. */
typedef struct {
    int buffer_count, integer_count, scalar_count;
    int buffer_positions[MAX_BUFFERS], number_positions[MAX_BUFFERS];  /* integers' positions before scalars' */
    char format;
} Signature;

/* Kernels round to nearest and keep subnormal numbers, whatever the calling thread's mode is. `set_kernel_rounding`
 * returns the thread's mode, and `restore_rounding` restores it. Neither writes the register without need. */
#if defined(__SSE__)
#include <xmmintrin.h>
typedef unsigned Rounding;  /* MXCSR without the sticky exception flags */
enum { KERNEL_ROUNDING = 0x1F80, RAISED_FLAGS = 0x3F };
static inline Rounding read_rounding(void) { return _mm_getcsr() & ~(Rounding)RAISED_FLAGS; }
static inline void write_rounding(Rounding mode) { _mm_setcsr(mode); }
#elif defined(__aarch64__) && defined(__GNUC__)
typedef uint64_t Rounding;  /* FPCR; 0 means round to nearest, no flush to zero, no traps */
enum { KERNEL_ROUNDING = 0 };
static inline Rounding read_rounding(void) {
    Rounding mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
static inline void write_rounding(Rounding mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
#else
typedef unsigned Rounding;  /* other processors: kernels run in the thread's mode */
enum { KERNEL_ROUNDING = 0 };
static inline Rounding read_rounding(void) { return KERNEL_ROUNDING; }
static inline void write_rounding(Rounding mode) { (void)mode; }
#endif
static inline Rounding set_kernel_rounding(void) {
    Rounding old_mode = read_rounding();
    if (old_mode != KERNEL_ROUNDING) write_rounding(KERNEL_ROUNDING);
    return old_mode;
}
static inline void restore_rounding(Rounding old_mode) {
    if (old_mode != KERNEL_ROUNDING) write_rounding(old_mode);
}

typedef struct { PyObject *const *items; Py_ssize_t count; } List;  /* the items of a tuple or a list, borrowed */

static inline int is_list(PyObject *o) { return PyTuple_Check(o) || PyList_Check(o); }
static inline List list_of(PyObject *o) { return (List){PySequence_Fast_ITEMS(o), PySequence_Fast_GET_SIZE(o)}; }

/* Plan families. */
enum { MAX_STATIC_SIZES = 64 };
enum { PLAN_PARTS = 4 };  /* what a program builds: outputs, recipe, view, launcher */
enum { FILLED = -1, GIVE_UP = -2, FAILED = -3 };  /* of a program; otherwise the number of the guard that failed */

PyObject *state_of(void);
PyObject *plan_of(PyObject *state, PyObject *record, PyObject *statics, List operands, PyObject *into);
PyObject *try_call(PyObject *record, List operands, PyObject *statics);
int is_readable(PyObject *tensor);
int run(PyObject *plan, PyObject *const *operands, List outs, PyObject *stream);
PyObject *call_into(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *advance(PyObject *module, PyObject *state);
PyObject *set_reaching_nodes(PyObject *module, PyObject *args);
PyObject *empty(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *call(PyObject *module, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *storage_of(PyObject *device, PyObject *driver, PyObject *stream, PyObject *nbytes);
PyObject *finalize(PyObject *storage, PyObject *unused);
PyObject *tensor_of(PyObject *storage, PyObject *meta, PyObject *start);
PyObject *view_of(PyObject *plan, PyObject *const *operands, PyObject *statics);
int record_node(PyObject *plan, PyObject *const *operands, PyObject *const *outs, PyObject *statics);
int run_launcher(PyObject *run, PyObject *const *tensors, Py_ssize_t count, PyObject *const *scalars,
             Py_ssize_t scalar_count, PyObject *stream);
int read_operand(PyObject *tensor, int64_t *start, PyObject **buffer);
int read_signature(Signature *signature, PyObject *buffers, PyObject *integers, PyObject *scalars, char format);
Py_ssize_t pack_numbers(const Signature *signature, PyObject *const *scalars, Py_ssize_t count, char *dynamic,
                        size_t size);
int read_sizes(PyObject *tuple, size_t *target);
PyObject *call_fallback(PyObject *fallback, PyObject *const *tensors, Py_ssize_t count, PyObject *const *scalars,
                      Py_ssize_t scalar_count, PyObject *stream);
void team_run(const Launch *launch, uint32_t helpers, int64_t expected_ns);
void team_limit(uint32_t helpers);
int host_launch(PyObject *launcher, PyObject *const *tensors, Py_ssize_t count, PyObject *const *scalars,
                Py_ssize_t scalar_count);
void set_python_route(int on);
PyObject *call_kernel(PyObject *module, PyObject *args);
PyObject *exchange_messages(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *set_mpi_functions(PyObject *module, PyObject *args);
PyObject *host_launcher_of(PyObject *template, PyObject *geometry, const size_t *size, long long work);
PyObject *sequence_of(PyObject *device, PyObject *owner, PyObject *launchers, PyObject *scratch);
int run_sequence(PyObject *sequence, PyObject *const *tensors, Py_ssize_t count, PyObject *const *scalars,
                 Py_ssize_t scalar_count, PyObject *stream);
int find_slot_offset(PyTypeObject *type, const char *slot, Py_ssize_t *offset);
int run_program(PyObject *program, PyObject *const *layouts, const int64_t *sizes, PyObject **results);
PyObject *layout_of(PyObject *dtype, PyObject *shape, PyObject *strides, PyObject *device);
PyObject *bind_families(PyObject *module, PyObject *args);
PyObject *fill_plan(PyObject *record, List operands, PyObject *statics, PyObject *grad_mask, PyObject *into);
PyObject *fill_plan_from_python(PyObject *module, PyObject *args);
int store_plan(PyObject *plans, PyObject *key, PyObject *plan);

#endif
