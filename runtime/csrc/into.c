/* Results written to tensors that are there: in place, and `out=`. */
#include "native.h"

/* Whether an operand and a result share no memory, or are the same elements; else it is Python's to judge. */
static int is_apart(PyObject *operand, PyObject *out) {
    if (operand == out || AT(operand, Tensor, storage) != AT(out, Tensor, storage)) return 1;
    if (AT(operand, Tensor, meta) != AT(out, Tensor, meta)) return 0;
    return PyObject_RichCompareBool(AT(operand, Tensor, start), AT(out, Tensor, start), Py_EQ);
}

/* The layouts of results that may be written to without a record of it, NULL without an exception if they may not. */
static PyObject *layouts_of(List outs, List operands, int grad) {
    PyObject *found = PyTuple_New(outs.count);
    for (Py_ssize_t i = 0; found != NULL && i < outs.count; i++) {
        PyObject *out = outs.items[i];
        int plain = is_a(out, Tensor.type) && is_plain(out) == 1 && !(grad && AT(out, Tensor, needs) == Py_True);
        for (Py_ssize_t k = 0; plain && k < operands.count; k++)
            if (is_a(operands.items[k], Tensor.type)) plain = is_apart(operands.items[k], out) == 1;
        if (!plain) Py_CLEAR(found);
        else PyTuple_SET_ITEM(found, i, Py_NewRef(AT(out, Tensor, meta)));
    }
    return found;
}

/* The plan of a call with these results, a new reference; NULL without an exception where Python has to see to it. */
static PyObject *plan_into(PyObject *const *args, PyObject *state) {
    List operands = list_of(args[1]), outs = list_of(args[3]);
    if (operands.count > MOST_BUFFERS || outs.count == 0 || outs.count > MOST_BUFFERS) return NULL;
    if (AT(state, State, mode) != Py_None || AT(state, State, streams) != Py_None) return NULL;
    PyObject *into = layouts_of(outs, operands, AT(state, State, grad) == Py_True);
    PyObject *plan = into == NULL ? NULL : plan_of(state, args[0], args[2], operands, into);
    Py_XDECREF(into);
    return plan;
}

PyObject *call_into(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PyObject *plan = NULL, *state = state_of();
    if (state == NULL) return NULL;
    int named = names != NULL && PyTuple_GET_SIZE(names) == 1 &&
                PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "in_place") == 0;
    if (count == 4 && named && is_list(args[1]) && is_list(args[3]))
        plan = plan_into(args, state);
    if (plan == NULL) return PyErr_Occurred() ? NULL : PyObject_Vectorcall(slow_call_into, args, (size_t)count, names);
    List operands = list_of(args[1]), outs = list_of(args[3]);
    PyObject *stream = PyObject_GetAttr(AT(plan, Plan, driver), s_default_stream);
    int failed = stream == NULL || run(plan, operands.items, outs, stream);
    Py_XDECREF(stream);
    Py_DECREF(plan);
    if (failed) return NULL;
    for (Py_ssize_t i = 0; i < outs.count; i++) {
        PyObject *storage = AT(outs.items[i], Tensor, storage);
        change(&AT(storage, Storage, version), PyNumber_Add(AT(storage, Storage, version), one));
    }
    return outs.count == 1 ? Py_NewRef(outs.items[0]) : PySequence_Tuple(args[3]);
}
