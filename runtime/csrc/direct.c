/* Kernels called as functions, on CPUs whose driver compiled them to some.
 *
 * PoCL makes of every kernel a shared object with a function that runs one work-group in the thread that calls it:
 *
 *     void _pocl_kernel_NAME_workgroup(void **arguments, struct pocl_context *context, ulong x, ulong y, ulong z)
 *
 * where each argument is the place of a value (of a buffer: of its address), and the context is that of pocl_context.h.
 * Its own launch calls it after a microsecond of bookkeeping, under locks that let a second thread wait. Here it is
 * called at once. The driver loads the object when it first launches the kernel; it is found by the kernel's name,
 * which no other kernel has, and kept loaded. `backends.workgroups` holds back for versions of PoCL with which this was
 * not tried, and tries it anew in each process before it is relied upon.
 */
#define _GNU_SOURCE
#include "native.h"

#ifdef __linux__
#include <dlfcn.h>
#include <link.h>

typedef struct { const char *file; size_t length; void *library; } Search;

static int keep_if_it(struct dl_phdr_info *info, size_t Py_UNUSED(size), void *argument) {
    Search *search = argument;
    const char *end = info->dlpi_name == NULL ? NULL : strrchr(info->dlpi_name, '/');
    if (end == NULL || strcmp(end + 1, search->file)) return 0;
    search->library = dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD);  /* counts one user more: it stays */
    return search->library != NULL;
}

static Workgroup *loaded(const char *kernel) {
    char file[256], symbol[256];
    if (snprintf(file, sizeof file, "%s.so", kernel) >= (int)sizeof file) return NULL;
    if (snprintf(symbol, sizeof symbol, "_pocl_kernel_%s_workgroup", kernel) >= (int)sizeof symbol) return NULL;
    Search search = {file, strlen(file), NULL};
    dl_iterate_phdr(keep_if_it, &search);
    return search.library == NULL ? NULL : (Workgroup *)(uintptr_t)dlsym(search.library, symbol);
}
#else
static Workgroup *loaded(const char *kernel) { return (void)kernel, NULL; }
#endif

typedef struct {
    PyObject_HEAD
    char *kernel;
    Workgroup *code;
    int sought, placed;  /* placed: its address was given */
} Function;

/* The function of a kernel, NULL before it was looked for and where there is none. */
Workgroup *code_of(PyObject *function) { return ((Function *)function)->code; }

/* Look for it, once: the kernel has just been launched. */
void seek(PyObject *function) {
    Function *self = (Function *)function;
    if (!self->sought) self->code = loaded(self->kernel), self->sought = 1;
}

int is_extended(PyObject *function) { return ((Function *)function)->placed; }

int is_sought(PyObject *function) { return ((Function *)function)->sought; }

static PyObject *function_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    const char *kernel;
    unsigned long long address = 0;
    if (!PyArg_ParseTuple(args, "s|K", &kernel, &address)) return NULL;
    Function *self = (Function *)made(type);
    if (self == NULL) return NULL;
    self->code = (Workgroup *)(uintptr_t)address, self->sought = self->placed = address != 0;
    self->kernel = strdup(kernel);
    return self->kernel == NULL ? Py_DECREF(self), PyErr_NoMemory() : (PyObject *)self;
}

static void dealloc(Function *self) {
    free(self->kernel);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static inline void run_group(Workgroup *code, int extended, void **arguments, const Context *context,
                             unsigned long x, unsigned long y, unsigned long z) {
    if (extended) ((Extended *)(void (*)(void))code)(arguments, context, x, y, z, NOTHING_MORE);
    else code(arguments, context, x, y, z);
}

/* A work-group of a launch by its number. */
void perform(const Launch *launch, uint32_t item) {
    size_t wide = launch->context.num_groups[0], high = launch->context.num_groups[1];
    run_group(launch->code, launch->extended, (void **)launch->arguments, &launch->context, item % wide,
              item / wide % high, item / wide / high);
}

PyDoc_STRVAR(find_doc,
"find()\n--\n\nWhether the kernel, which was launched, is a function that can be called. It is looked for once.");

static PyObject *find(Function *self, PyObject *Py_UNUSED(nothing)) {
    seek((PyObject *)self);
    return PyBool_FromLong(self->code != NULL);
}

PyDoc_STRVAR(try_doc,
"try_call(addresses, groups, group)\n--\n\n"
"Call it, if `find()` says that it can be, for one work-group of one work-item. addresses: of the arguments' values.\n"
"groups, group: three integers each. RuntimeError: it cannot be called.");

static PyObject *try_call(Function *self, PyObject *args) {
    void *arguments[MOST_BUFFERS];
    PyObject *addresses;
    unsigned long x, y, z;
    Context context = {.local_size = {1, 1, 1}, .work_dim = 3};
    if (!PyArg_ParseTuple(args, "O!(kkk)(kkk)", &PyTuple_Type, &addresses, &context.num_groups[0],
                          &context.num_groups[1], &context.num_groups[2], &x, &y, &z))
        return NULL;
    if (self->code == NULL || PyTuple_GET_SIZE(addresses) > MOST_BUFFERS)
        return PyErr_SetString(PyExc_RuntimeError, "a kernel that cannot be called"), NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(addresses); i++)
        arguments[i] = PyLong_AsVoidPtr(PyTuple_GET_ITEM(addresses, i));
    if (PyErr_Occurred()) return NULL;
    run_group(self->code, self->placed, arguments, &context, x, y, z);
    Py_RETURN_NONE;
}

PyDoc_STRVAR(doc,
"Function(kernel, address=0)\n--\n\n"
"A kernel, by its name in the program, as a function that runs one of its work-groups in the calling thread.\n"
"address: where the function is, if that is known.");

static PyMethodDef methods[] = {
    {"find", (PyCFunction)find, METH_NOARGS, find_doc},
    {"try_call", (PyCFunction)try_call, METH_VARARGS, try_doc},
    {NULL, NULL, 0, NULL},
};

PyTypeObject function_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "weftgrad.runtime._native.Function",
    .tp_basicsize = sizeof(Function),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = doc,
    .tp_new = function_new,
    .tp_methods = methods,
    .tp_dealloc = (destructor)dealloc,
};
