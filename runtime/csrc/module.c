/* The module `_native`. Python passes its classes once (`bind`), and OpenCL's functions when it loads pyopencl
 * (`set_opencl_functions`).
 */
#include "native.h"

#define DEFINE(class) struct class##Slots class;
CLASSES(DEFINE)
struct Driver driver;
PyObject *states, *python_call, *python_call_into, *python_empty, *node_numbers, *zero, *one, *empty_tuple;
PyObject *overriding_classes;
PyObject *s_acquire, *s_add_to_part, *s_allocate, *s_appendleft, *s_default_stream, *s_driver, *s_fit_to, *s_int_ptr,
    *s_launcher, *s_lineages, *s_popleft, *s_release, *s_reshape, *s_reshape_unshared, *s_retire, *s_state, *s_step,
    *in_place_name;

static PyTypeObject *class_of(PyObject *classes, const char *name) {
    PyObject *class_object = PyDict_GetItemString(classes, name);
    if (class_object != NULL && PyType_Check(class_object)) return (PyTypeObject *)Py_NewRef(class_object);
    PyErr_Format(PyExc_TypeError, "no class %s", name);
    return NULL;
}

int find_slot_offset(PyTypeObject *class, const char *slot, Py_ssize_t *offset) {
    PyObject *member = PyObject_GetAttrString((PyObject *)class, slot);
    if (member == NULL) return -1;
    int is_slot = Py_IS_TYPE(member, &PyMemberDescr_Type);
    if (is_slot) *offset = ((PyMemberDescrObject *)member)->d_member->offset;
    else PyErr_Format(PyExc_TypeError, "%s of %R is not a slot", slot, class);
    Py_DECREF(member);
    return is_slot ? 0 : -1;
}

PyDoc_STRVAR(bind_doc,
"bind(classes, states, numbering, call, call_into, empty, overriding)\n--\n\n"
"Set the classes by name, the threads' states, the iterator of node numbers, the Python functions of dispatch, and the\n"
"set of the tensors' classes that take over calls.\n\n"
"Raises TypeError or AttributeError if a class or slot is missing: the Python files are of another version.");

static PyObject *bind(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *classes, *thread_states, *numbers, *python_functions[3], *overriding;
    if (!PyArg_ParseTuple(args, "O!OOOOOO!", &PyDict_Type, &classes, &thread_states, &numbers, python_functions,
                          python_functions + 1, python_functions + 2, &PySet_Type, &overriding))
        return NULL;
#define FIND_SLOT(slot) || find_slot_offset(self->type, #slot, &self->slot)
#define BIND_CLASS(class)                                                                                              \
    {                                                                                                                  \
        struct class##Slots *self = &class;                                                                            \
        if ((self->type = class_of(classes, #class)) == NULL SLOTS_##class(FIND_SLOT)) return NULL;                    \
    }
    CLASSES(BIND_CLASS)
    states = Py_NewRef(thread_states), node_numbers = Py_NewRef(numbers);
    python_call = Py_NewRef(python_functions[0]), python_call_into = Py_NewRef(python_functions[1]);
    python_empty = Py_NewRef(python_functions[2]), overriding_classes = Py_NewRef(overriding);
    static PyMethodDef finalizer = {"__del__", finalize, METH_NOARGS, "Return the block to its pool."};
    PyObject *method = PyDescr_NewMethod(Storage.type, &finalizer);
    int failed = method == NULL || PyObject_SetAttrString((PyObject *)Storage.type, "__del__", method);
    Py_XDECREF(method);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(set_opencl_functions_doc,
"set_opencl_functions(clSetKernelArg, clEnqueueNDRangeKernel)\n--\n\n"
"Set the addresses of the OpenCL functions that launch kernels.");

static PyObject *set_opencl_functions(PyObject *Py_UNUSED(module), PyObject *args) {
    unsigned long long set_argument, enqueue;
    if (!PyArg_ParseTuple(args, "KK", &set_argument, &enqueue)) return NULL;
    driver.clSetKernelArg = (void *)(uintptr_t)set_argument;
    driver.clEnqueueNDRangeKernel = (void *)(uintptr_t)enqueue;
    Py_RETURN_NONE;
}

PyDoc_STRVAR(stacks_doc, "record_stacks(function)\n--\n\nCall `function` for the `trace` of each node; None: stop.");

static PyObject *record_stacks(PyObject *Py_UNUSED(module), PyObject *function) {
    PyObject *previous = forward_stack;
    forward_stack = function == Py_None ? NULL : Py_NewRef(function);
    Py_XDECREF(previous);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(route_doc, "route_through_python(on)\n--\n\nRoute all launches on `cpu` through Python, or not.");

static PyObject *route_through_python(PyObject *Py_UNUSED(module), PyObject *args) {
    int on;
    if (!PyArg_ParseTuple(args, "p", &on)) return NULL;
    set_python_route(on);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(call_kernel_doc,
"call_kernel(kernel, buffers, geometry, dynamic, size, helpers, work, releases)\n--\n\n"
"Call a compiled Kernel. buffers: a tuple of addresses. geometry, dynamic: bytes of the two argument structs (dynamic\n"
"has offsets and numbers). size: a tuple of work-items in three dimensions. The others: see HostLauncher.");

PyDoc_STRVAR(limit_doc, "limit_helpers(helpers)\n--\n\nSet the maximum number of helper threads of a kernel.");

static PyObject *limit_helpers(PyObject *Py_UNUSED(module), PyObject *args) {
    unsigned helpers;
    if (!PyArg_ParseTuple(args, "I", &helpers)) return NULL;
    team_limit(helpers);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(features_doc,
"processor_features()\n--\n\n"
"Return the features of an x86 processor by their names in /proc/cpuinfo; an empty list on other processors.");

static PyObject *processor_features(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    PyObject *names = PyList_New(0);
    if (names == NULL) return NULL;
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
    __builtin_cpu_init();
#define FEATURE(name, alias)                                                                                           \
    if (__builtin_cpu_supports(name)) {                                                                                \
        PyObject *text = PyUnicode_FromString(alias);                                                                  \
        int failed = text == NULL || PyList_Append(names, text);                                                       \
        Py_XDECREF(text);                                                                                              \
        if (failed) return Py_DECREF(names), NULL;                                                                     \
    }
    FEATURE("avx", "avx") FEATURE("avx2", "avx2") FEATURE("bmi", "bmi1") FEATURE("bmi2", "bmi2") FEATURE("fma", "fma")
    FEATURE("avx512f", "avx512f") FEATURE("avx512bw", "avx512bw") FEATURE("avx512cd", "avx512cd")
    FEATURE("avx512dq", "avx512dq") FEATURE("avx512vl", "avx512vl")
    FEATURE("avx2", "f16c") FEATURE("avx2", "movbe")  /* every processor with AVX2 has both */
#endif
    return names;
}

PyDoc_STRVAR(call_doc,
"call(record, operands, statics=())\n--\n\nThe common case of `dispatch.call`, which handles all other calls.");

PyDoc_STRVAR(into_doc,
"call_into(record, operands, statics, outs, *, in_place)\n--\n\n"
"The common case of `dispatch.call_into`, which handles all other calls, such as those that need gradients.");

PyDoc_STRVAR(empty_doc,
"empty(layout, stream=None)\n--\n\n"
"The common case of `dispatch.empty`, which handles layouts that are not contiguous or have no elements.");

PyDoc_STRVAR(families_doc,
"bind_families(context, signature_of, above_one, below_zero, has_settled, drop_oldest, meta, recent, interval)\n--\n\n"
"Set what C needs to plan calls by plan families: a module, functions, marks in keys, the recent layouts,\n"
"and after how many new plans `drop_oldest` is called.");

PyDoc_STRVAR(fill_doc,
"fill_plan(record, operands, statics, grad_mask, into)\n--\n\n"
"Return the plan of a call from a plan family, or None. The arguments are those of `plan_families.Search`; operands is\n"
"a list.");

PyDoc_STRVAR(advance_doc,
"advance(state)\n--\n\n"
"Take the next node of a run of backward from its heap, and do what its method `step` does, which handles nodes with\n"
"hooks or functions of their own.");

PyDoc_STRVAR(reaching_doc,
"set_reaching_nodes(state, nodes)\n--\n\n"
"Set `reaching_nodes` to the nodes from which one of `inputs` can be reached, among those that `nodes`, a list, lead\n"
"to.");

PyDoc_STRVAR(exchange_doc,
"exchange_messages(plan, number, values, request, send_polls, receive_polls)\n--\n\n"
"Exchange messages with each other rank of a process group; see csrc/messages.c. number: of the call, or -1 if its\n"
"messages have been sent. values: their address. request: the address of a request to wait for, too, or 0.\n"
"receive_polls: 0 to send only.\n\n"
"Returns 0 if all messages have arrived with equal headers, 1 if some have not after so many tests, 2 if headers\n"
"differ, 3 if nothing was sent because an earlier message is still being sent, or an error code of MPI, negated.");

PyDoc_STRVAR(mpi_doc,
"set_mpi_functions(MPI_Start, MPI_Test)\n--\n\nSet the addresses of the MPI functions that exchange messages.");

static PyMethodDef methods[] = {
    {"set_reaching_nodes", set_reaching_nodes, METH_VARARGS, reaching_doc},
    {"advance", advance, METH_O, advance_doc},
    {"bind", bind, METH_VARARGS, bind_doc},
    {"bind_families", bind_families, METH_VARARGS, families_doc},
    {"fill_plan", fill_plan_from_python, METH_VARARGS, fill_doc},
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL | METH_KEYWORDS, call_doc},
    {"call_into", (PyCFunction)(void (*)(void))call_into, METH_FASTCALL | METH_KEYWORDS, into_doc},
    {"empty", (PyCFunction)(void (*)(void))empty, METH_FASTCALL | METH_KEYWORDS, empty_doc},
    {"call_kernel", call_kernel, METH_VARARGS, call_kernel_doc},
    {"record_stacks", record_stacks, METH_O, stacks_doc},
    {"route_through_python", route_through_python, METH_VARARGS, route_doc},
    {"limit_helpers", limit_helpers, METH_VARARGS, limit_doc},
    {"exchange_messages", (PyCFunction)(void (*)(void))exchange_messages, METH_FASTCALL, exchange_doc},
    {"set_mpi_functions", set_mpi_functions, METH_VARARGS, mpi_doc},
    {"processor_features", processor_features, METH_NOARGS, features_doc},
    {"set_opencl_functions", set_opencl_functions, METH_VARARGS, set_opencl_functions_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_native", .m_doc = "The hot path of every op in C (see runtime/csrc/native.h).",
    .m_size = -1, .m_methods = methods,
};

PyMODINIT_FUNC PyInit__native(void) {
    struct { PyObject **variable; const char *name; } names[] = {
        {&s_acquire, "acquire"}, {&s_add_to_part, "add_to_part"}, {&s_allocate, "allocate"},
        {&s_appendleft, "appendleft"}, {&s_default_stream, "default_stream"}, {&s_driver, "driver"},
        {&s_fit_to, "fit_to"}, {&s_int_ptr, "int_ptr"}, {&s_launcher, "launcher"}, {&s_lineages, "lineages"},
        {&s_popleft, "popleft"}, {&s_release, "release"}, {&s_reshape, "reshape"},
        {&s_reshape_unshared, "reshape_unshared"}, {&s_retire, "retire"}, {&s_state, "state"}, {&s_step, "step"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if ((*names[i].variable = PyUnicode_InternFromString(names[i].name)) == NULL) return NULL;
    if ((zero = PyLong_FromLong(0)) == NULL || (one = PyLong_FromLong(1)) == NULL ||
        (empty_tuple = PyTuple_New(0)) == NULL || (in_place_name = Py_BuildValue("(s)", "in_place")) == NULL)
        return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyType_Ready(&launcher_type) || PyType_Ready(&host_launcher_type) ||
        PyType_Ready(&operator_type) || PyType_Ready(&kernel_type) || PyType_Ready(&host_template_type) ||
        PyType_Ready(&program_type) || PyType_Ready(&sequence_type) ||
        PyModule_AddObjectRef(module, "Sequence", (PyObject *)&sequence_type) ||
        PyModule_AddObjectRef(module, "HostTemplate", (PyObject *)&host_template_type) ||
        PyModule_AddObjectRef(module, "Program", (PyObject *)&program_type) ||
        PyModule_AddObjectRef(module, "Kernel", (PyObject *)&kernel_type) ||
        PyModule_AddObjectRef(module, "Operator", (PyObject *)&operator_type) ||
        PyModule_AddObjectRef(module, "Launcher", (PyObject *)&launcher_type) ||
        PyModule_AddObjectRef(module, "HostLauncher", (PyObject *)&host_launcher_type)) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
