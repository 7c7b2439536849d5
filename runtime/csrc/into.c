/* Calls that write to existing tensors: in-place ops, and `out=`. */
#include "native.h"

/* Return 1 if an operand and an output are in different storages or have the same elements; otherwise Python checks for
 * overlap. */
static int has_no_partial_overlap(PyObject *operand, PyObject *out) {
    if (operand == out || SLOT(operand, Tensor, storage) != SLOT(out, Tensor, storage)) return 1;
    if (SLOT(operand, Tensor, meta) != SLOT(out, Tensor, meta)) return 0;
    return PyObject_RichCompareBool(SLOT(operand, Tensor, start), SLOT(out, Tensor, start), Py_EQ);
}

/* Return the outputs' layouts if they can be written without recording a gradient; else NULL without an exception. */
static PyObject *layouts_of(List outs, List operands, PyObject *state) {
    int grad = SLOT(state, State, grad) == Py_True;
    PyObject *layouts = PyTuple_New(outs.count);
    for (Py_ssize_t i = 0; layouts != NULL && i < outs.count; i++) {
        PyObject *out = outs.items[i];
        int is_writable = is_a(out, Tensor.type) && is_readable(out) == 1 && !takes_over(out, state) &&
                          !(grad && SLOT(out, Tensor, needs_grad) == Py_True);
        for (Py_ssize_t k = 0; is_writable && k < operands.count; k++)
            if (is_a(operands.items[k], Tensor.type)) is_writable = has_no_partial_overlap(operands.items[k], out) == 1;
        if (!is_writable) Py_CLEAR(layouts);
        else PyTuple_SET_ITEM(layouts, i, Py_NewRef(SLOT(out, Tensor, meta)));
    }
    return layouts;
}

/* Return the plan of a call with these outputs as a new reference; NULL without an exception if Python has to do it. */
static PyObject *plan_into(PyObject *const *args, PyObject *state) {
    List operands = list_of(args[1]), outs = list_of(args[3]);
    if (operands.count > MAX_BUFFERS || outs.count == 0 || outs.count > MAX_BUFFERS) return NULL;
    if (SLOT(state, State, mode) != Py_None || SLOT(state, State, streams) != Py_None) return NULL;
    PyObject *layouts = layouts_of(outs, operands, state);
    PyObject *plan = layouts == NULL ? NULL : plan_of(state, args[0], args[2], operands, layouts);
    Py_XDECREF(layouts);
    return plan;
}

PyObject *call_into(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PyObject *plan = NULL, *state = state_of();
    if (state == NULL) return NULL;
    int has_in_place = names != NULL && PyTuple_GET_SIZE(names) == 1 &&
                PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "in_place") == 0;
    if (count == 4 && has_in_place && is_list(args[1]) && is_list(args[3]))
        plan = plan_into(args, state);
    if (plan == NULL)
        return PyErr_Occurred() ? NULL : PyObject_Vectorcall(python_call_into, args, (size_t)count, names);
    List operands = list_of(args[1]), outs = list_of(args[3]);
    PyObject *stream = PyObject_GetAttr(SLOT(plan, Plan, driver), s_default_stream);
    int failed = stream == NULL || run(plan, operands.items, outs, stream);
    Py_XDECREF(stream);
    Py_DECREF(plan);
    if (failed) return NULL;
    for (Py_ssize_t i = 0; i < outs.count; i++) {
        PyObject *storage = SLOT(outs.items[i], Tensor, storage);
        set_slot(&SLOT(storage, Storage, version), PyNumber_Add(SLOT(storage, Storage, version), one));
    }
    return outs.count == 1 ? Py_NewRef(outs.items[0]) : PySequence_Tuple(args[3]);
}
