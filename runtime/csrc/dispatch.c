/* Dispatch of a call: look up its plan, allocate outputs, launch, and record a node if gradients are needed. */
#include "native.h"

static int is_extra(PyObject *o) { return o != NULL && Py_IS_TYPE(o, Extra.type); }

/* Return 1 if C can read a tensor, 0 if Python has to handle it, -1 with an exception. Python refreshes a view whose
 * base was rewritten since. It also raises the error if a program has assigned an object of another type to a slot, as
 * in `x.extra = {}`: C would read that object's memory as an Extra. */
int is_readable(PyObject *tensor) {
    PyObject *extra = SLOT(tensor, Tensor, extra), *storage = SLOT(tensor, Tensor, storage);
    if (SLOT(tensor, Tensor, meta) == NULL || storage == NULL || !Py_IS_TYPE(storage, Storage.type)) return 0;
    if (extra == Py_None) return 1;
    if (!is_extra(extra)) return 0;
    PyObject *base = SLOT(extra, Extra, base);
    if (base == Py_None) return 1;
    if (base == NULL || !is_a(base, Tensor.type) || !is_extra(SLOT(base, Tensor, extra))) return 0;
    PyObject *rewrites = SLOT(SLOT(base, Tensor, extra), Extra, rewrites);
    return PyObject_RichCompareBool(SLOT(extra, Extra, seen_rewrites), rewrites, Py_EQ);
}

/* Return the calling thread's state, borrowed. Cached for the thread that called last. */
PyObject *state_of(void) {
    static PyObject *cached_state;
    static uint64_t cached_thread;
    uint64_t current_thread = PyThreadState_GetID(PyThreadState_Get());
    if (cached_state == NULL || current_thread != cached_thread) {
        PyObject *state = PyObject_GetAttr(states, s_state), *old_state = cached_state;
        if (state == NULL) return NULL;
        cached_state = state, cached_thread = current_thread;
        Py_XDECREF(old_state);  /* may run Python code and other threads; the thread's dictionary keeps `state` alive */
        return state;
    }
    return cached_state;
}

/* Return the plan of a call as a new reference: a cached one, or a new one from a plan family. NULL without an exception
 * if Python has to make it. output_layouts: a tuple of the layouts that are written to (in place or out=), or NULL. */
PyObject *plan_of(PyObject *state, PyObject *record, PyObject *statics, List operands, PyObject *output_layouts) {
    PyObject *plan = NULL, *key = PyTuple_New(operands.count + 3 + (output_layouts != NULL));
    if (key == NULL) return NULL;
    int grad = SLOT(state, State, grad) == Py_True;
    unsigned long long grad_mask = 0;
    PyTuple_SET_ITEM(key, 0, Py_NewRef(record));
    PyTuple_SET_ITEM(key, 1, Py_NewRef(statics));
    for (Py_ssize_t i = 0; i < operands.count; i++) {
        PyObject *operand = operands.items[i], *key_part = operand == Py_None ? Py_None : (PyObject *)Py_TYPE(operand);
        if (is_a(operand, Tensor.type)) {
            if (is_readable(operand) != 1 || takes_over(operand, state)) goto done;
            if (grad && SLOT(operand, Tensor, needs_grad) == Py_True) grad_mask |= 1ull << i;
            key_part = SLOT(operand, Tensor, meta);
        }
        PyTuple_SET_ITEM(key, i + 2, Py_NewRef(key_part));
    }
    if (grad_mask && output_layouts != NULL) goto done;
    PyObject *grad_key = PyLong_FromUnsignedLongLong(grad_mask);
    if (grad_key == NULL) goto done;
    PyTuple_SET_ITEM(key, operands.count + 2, grad_key);
    if (output_layouts != NULL) PyTuple_SET_ITEM(key, operands.count + 3, Py_NewRef(output_layouts));
    PyObject *plans = Py_NewRef(SLOT(state, State, plans));  /* `forget_plans` replaces it, maybe in a key's `__eq__` */
    plan = Py_XNewRef(PyDict_GetItemWithError(plans, key));
    if (plan == NULL && !PyErr_Occurred()) {
        List parts = {PySequence_Fast_ITEMS(key) + 2, operands.count};
        plan = fill_plan(record, parts, statics, grad_key, output_layouts);
        if (plan != NULL && store_plan(plans, key, plan)) Py_CLEAR(plan);
    }
    Py_DECREF(plans);
done:
    Py_DECREF(key);
    return plan;
}

int run(PyObject *plan, PyObject *const *operands, List outs, PyObject *stream) {
    PyObject *launcher = SLOT(plan, Plan, run), *numbers = SLOT(plan, Plan, numbers);
    PyObject *tensors = SLOT(plan, Plan, tensors);
    PyObject *arguments[2 * MAX_BUFFERS], *scalars[MAX_BUFFERS];
    Py_ssize_t count = PyTuple_GET_SIZE(tensors), scalar_count = PyTuple_GET_SIZE(numbers);
    if (launcher == Py_None) return 0;
    for (Py_ssize_t i = 0; i < count; i++) arguments[i] = operands[index_at(tensors, i)];
    for (Py_ssize_t i = 0; i < outs.count; i++) arguments[count + i] = outs.items[i];
    for (Py_ssize_t i = 0; i < scalar_count; i++) scalars[i] = operands[index_at(numbers, i)];
    return run_launcher(launcher, arguments, count + outs.count, scalars, scalar_count, stream);
}

/* Return a tensor over new memory from the stream's pool. */
static PyObject *new_tensor(PyObject *layout, PyObject *device, PyObject *owner, PyObject *stream, PyObject *nbytes) {
    PyObject *storage = storage_of(device, owner, stream, nbytes);
    return tensor_of(storage, layout, storage == NULL ? NULL : Py_NewRef(SLOT(storage, Storage, start)));
}

static PyObject *compute(PyObject *plan, PyObject *const *operands, PyObject *statics) {
    PyObject *outputs = SLOT(plan, Plan, outputs), *owner = SLOT(plan, Plan, driver);
    PyObject *outs[MAX_BUFFERS], *result = NULL;
    Py_ssize_t output_count = PyTuple_GET_SIZE(outputs), created = 0;
    PyObject *stream = PyObject_GetAttr(owner, s_default_stream);
    if (stream == NULL) return NULL;
    for (; created < output_count; created++) {
        PyObject *output = PyTuple_GET_ITEM(outputs, created);
        PyObject *layout = PyTuple_GET_ITEM(output, 0), *nbytes = PyTuple_GET_ITEM(output, 1);
        if ((outs[created] = new_tensor(layout, SLOT(plan, Plan, device), owner, stream, nbytes)) == NULL) goto done;
    }
    if (run(plan, operands, (List){outs, created}, stream) || record_node(plan, operands, outs, statics)) goto done;
    Py_ssize_t visible = PyLong_AsSsize_t(SLOT(plan, Plan, visible));
    if (visible == 1) result = Py_NewRef(outs[0]);
    else if ((result = PyTuple_New(visible)) != NULL)
        for (Py_ssize_t i = 0; i < visible; i++) PyTuple_SET_ITEM(result, i, Py_NewRef(outs[i]));
done:
    for (Py_ssize_t i = 0; i < created; i++) Py_DECREF(outs[i]);
    Py_DECREF(stream);
    return result;
}

/* Return whether C can allocate a plan's outputs: not too many, and none of them empty. */
static int is_simple(PyObject *plan) {
    PyObject *outputs = SLOT(plan, Plan, outputs);
    if (PyTuple_GET_SIZE(outputs) > MAX_BUFFERS) return 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(outputs); i++)
        if (index_at(PyTuple_GET_ITEM(outputs, i), 1) == 0) return 0;
    return 1;
}

/* Call an op. Return its result, or NULL without an exception if the Python version has to do it. */
PyObject *try_call(PyObject *record, List operands, PyObject *statics) {
    PyObject *plan = NULL, *result = NULL, *state = state_of();
    if (state == NULL || operands.count > MAX_BUFFERS) return NULL;
    if (SLOT(state, State, mode) != Py_None || SLOT(state, State, streams) != Py_None) return NULL;
    if ((plan = plan_of(state, record, statics, operands, NULL)) == NULL) return NULL;
    if (SLOT(plan, Plan, view) != Py_None) result = view_of(plan, operands.items, statics);
    else if (is_simple(plan)) result = compute(plan, operands.items, statics);
    Py_DECREF(plan);
    return result;
}

PyObject *call(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PyObject *result = NULL;
    if (names == NULL && (count == 2 || count == 3) && is_list(args[1]))
        result = try_call(args[0], list_of(args[1]), count == 3 ? args[2] : empty_tuple);
    return result != NULL || PyErr_Occurred() ? result : PyObject_Vectorcall(python_call, args, (size_t)count, names);
}

PyObject *empty(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count, PyObject *names) {
    if (names != NULL || count != 1 || !Py_IS_TYPE(args[0], Meta.type) || SLOT(args[0], Meta, contiguous) != Py_True)
        return PyObject_Vectorcall(python_empty, args, (size_t)count, names);
    PyObject *layout = args[0], *device = SLOT(layout, Meta, device), *owner = SLOT(device, Device, _driver);
    PyObject *state = state_of(), *nbytes = SLOT(layout, Meta, nbytes);
    if (state == NULL) return NULL;
    if (owner == Py_None || SLOT(state, State, streams) != Py_None || PyObject_IsTrue(nbytes) != 1)
        return PyObject_Vectorcall(python_empty, args, (size_t)count, NULL);
    PyObject *stream = PyObject_GetAttr(owner, s_default_stream);
    PyObject *tensor = stream == NULL ? NULL : new_tensor(layout, device, owner, stream, nbytes);
    Py_XDECREF(stream);
    return tensor;
}
