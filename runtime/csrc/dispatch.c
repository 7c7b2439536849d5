/* The choke point: a look-up, memory, a launch, and a node where gradients are wanted. */
#include "native.h"

/* What a view of a base that was written to since has to do first is Python's. */
int is_plain(PyObject *tensor) {
    PyObject *extra = AT(tensor, Tensor, extra);
    if (extra == NULL || AT(tensor, Tensor, meta) == NULL || AT(tensor, Tensor, storage) == NULL) return 0;
    if (extra == Py_None || AT(extra, Extra, base) == Py_None) return 1;
    PyObject *rewrites = AT(AT(AT(extra, Extra, base), Tensor, extra), Extra, rewrites);
    return PyObject_RichCompareBool(AT(extra, Extra, seen), rewrites, Py_EQ);
}

/* The calling thread's state, borrowed. Looked up where another thread called last. */
PyObject *state_of(void) {
    static PyObject *last;
    static uint64_t thread;
    uint64_t calling = PyThreadState_GetID(PyThreadState_Get());
    if (last == NULL || calling != thread) {
        PyObject *found = PyObject_GetAttr(states, s_state), *before = last;
        if (found == NULL) return NULL;
        last = found, thread = calling;
        Py_XDECREF(before);  /* which may run Python, and other threads: the thread's own dictionary has `found` too */
        return found;
    }
    return last;
}

/* The plan of a call, a new reference; NULL without an exception where Python has to make it. into: a tuple of the
 * layouts that are written to, or NULL. */
PyObject *plan_of(PyObject *state, PyObject *record, PyObject *statics, List operands, PyObject *into) {
    PyObject *plan = NULL, *key = PyTuple_New(operands.count + 3 + (into != NULL));
    if (key == NULL) return NULL;
    int grad = AT(state, State, grad) == Py_True;
    unsigned long needs = 0;
    PyTuple_SET_ITEM(key, 0, Py_NewRef(record));
    PyTuple_SET_ITEM(key, 1, Py_NewRef(statics));
    for (Py_ssize_t i = 0; i < operands.count; i++) {
        PyObject *operand = operands.items[i], *part = operand == Py_None ? Py_None : (PyObject *)Py_TYPE(operand);
        if (is_a(operand, Tensor.type)) {
            if (is_plain(operand) != 1) goto done;
            if (grad && AT(operand, Tensor, needs) == Py_True) needs |= 1ul << i;
            part = AT(operand, Tensor, meta);
        }
        PyTuple_SET_ITEM(key, i + 2, Py_NewRef(part));
    }
    if (needs && into != NULL) goto done;
    PyObject *wanted = PyLong_FromUnsignedLong(needs);
    if (wanted == NULL) goto done;
    PyTuple_SET_ITEM(key, operands.count + 2, wanted);
    if (into != NULL) PyTuple_SET_ITEM(key, operands.count + 3, Py_NewRef(into));
    plan = Py_XNewRef(PyDict_GetItemWithError(AT(state, State, plans), key));
done:
    Py_DECREF(key);
    return plan;
}

int run(PyObject *plan, PyObject *const *operands, List outs, PyObject *stream) {
    PyObject *launcher = AT(plan, Plan, run), *numbers = AT(plan, Plan, numbers), *tensors = AT(plan, Plan, tensors);
    PyObject *given[2 * MOST_BUFFERS], *scalars[MOST_BUFFERS];
    Py_ssize_t count = PyTuple_GET_SIZE(tensors), scalar_count = PyTuple_GET_SIZE(numbers);
    if (launcher == Py_None) return 0;
    for (Py_ssize_t i = 0; i < count; i++) given[i] = operands[number_at(tensors, i)];
    for (Py_ssize_t i = 0; i < outs.count; i++) given[count + i] = outs.items[i];
    for (Py_ssize_t i = 0; i < scalar_count; i++) scalars[i] = operands[number_at(numbers, i)];
    return launched(launcher, given, count + outs.count, scalars, scalar_count, stream);
}

/* A tensor over new memory of the stream's pool. */
static PyObject *new_tensor(PyObject *layout, PyObject *device, PyObject *owner, PyObject *stream, PyObject *nbytes) {
    PyObject *storage = storage_of(device, owner, stream, nbytes);
    return tensor_of(storage, layout, storage == NULL ? NULL : Py_NewRef(AT(storage, Storage, start)));
}

static PyObject *computed(PyObject *plan, PyObject *const *operands, PyObject *statics) {
    PyObject *outputs = AT(plan, Plan, outputs), *owner = AT(plan, Plan, driver), *outs[MOST_BUFFERS], *found = NULL;
    Py_ssize_t wanted = PyTuple_GET_SIZE(outputs), have = 0;
    PyObject *stream = PyObject_GetAttr(owner, s_default_stream);
    if (stream == NULL) return NULL;
    for (; have < wanted; have++) {
        PyObject *output = PyTuple_GET_ITEM(outputs, have);
        PyObject *layout = PyTuple_GET_ITEM(output, 0), *nbytes = PyTuple_GET_ITEM(output, 1);
        if ((outs[have] = new_tensor(layout, AT(plan, Plan, device), owner, stream, nbytes)) == NULL) goto done;
    }
    if (run(plan, operands, (List){outs, have}, stream) || recorded(plan, operands, outs, statics)) goto done;
    Py_ssize_t visible = PyLong_AsSsize_t(AT(plan, Plan, visible));
    if (visible == 1) found = Py_NewRef(outs[0]);
    else if ((found = PyTuple_New(visible)) != NULL)
        for (Py_ssize_t i = 0; i < visible; i++) PyTuple_SET_ITEM(found, i, Py_NewRef(outs[i]));
done:
    for (Py_ssize_t i = 0; i < have; i++) Py_DECREF(outs[i]);
    Py_DECREF(stream);
    return found;
}

/* Whether results can be made here: not too many, and none of them without elements. */
static int is_simple(PyObject *plan) {
    PyObject *outputs = AT(plan, Plan, outputs);
    if (PyTuple_GET_SIZE(outputs) > MOST_BUFFERS) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(outputs); i++)
        if (number_at(PyTuple_GET_ITEM(outputs, i), 1) == 0) return 0;
    return 1;
}

/* What a call gives, or NULL without an exception where it is Python's. */
PyObject *called(PyObject *record, List operands, PyObject *statics) {
    PyObject *plan = NULL, *found = NULL, *state = state_of();
    if (state == NULL || operands.count > MOST_BUFFERS) return NULL;
    if (AT(state, State, mode) != Py_None || AT(state, State, streams) != Py_None) return NULL;
    if ((plan = plan_of(state, record, statics, operands, NULL)) == NULL) return NULL;
    if (AT(plan, Plan, view) != Py_None) found = view_of(plan, operands.items, statics);
    else if (is_simple(plan)) found = computed(plan, operands.items, statics);
    Py_DECREF(plan);
    return found;
}

PyObject *call(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PyObject *found = NULL;
    if (names == NULL && (count == 2 || count == 3) && is_list(args[1]))
        found = called(args[0], list_of(args[1]), count == 3 ? args[2] : nothing);
    return found != NULL || PyErr_Occurred() ? found : PyObject_Vectorcall(slow_call, args, (size_t)count, names);
}

PyObject *empty(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names) {
    if (names != NULL || count != 1 || !Py_IS_TYPE(args[0], Meta.type) || AT(args[0], Meta, contiguous) != Py_True)
        return PyObject_Vectorcall(slow_empty, args, (size_t)count, names);
    PyObject *layout = args[0], *device = AT(layout, Meta, device), *owner = AT(device, Device, _driver);
    PyObject *state = state_of(), *nbytes = AT(layout, Meta, nbytes);
    if (state == NULL) return NULL;
    if (owner == Py_None || AT(state, State, streams) != Py_None || PyObject_IsTrue(nbytes) != 1)
        return PyObject_Vectorcall(slow_empty, args, (size_t)count, NULL);
    PyObject *stream = PyObject_GetAttr(owner, s_default_stream);
    PyObject *found = stream == NULL ? NULL : new_tensor(layout, device, owner, stream, nbytes);
    Py_XDECREF(stream);
    return found;
}
