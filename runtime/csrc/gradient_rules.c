/* Calls of ops by the engine, and the rules of autograd/rules.py that need no Python function. */
#include "backward.h"

/* Call an op as `dispatch.call` does. Return its result, or NULL with an exception. */
PyObject *call_op(PyObject *record, PyObject *const *operands, Py_ssize_t count, PyObject *statics) {
    PyObject *result = try_call(record, (List){operands, count}, statics);
    if (result != NULL || PyErr_Occurred()) return result;
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) PyTuple_SET_ITEM(tuple, i, Py_NewRef(operands[i]));
    if (tuple != NULL) result = PyObject_CallFunctionObjArgs(python_call, record, tuple, statics, NULL);
    Py_XDECREF(tuple);
    return result;
}

/* The same for an op with one operand and one static argument. */
PyObject *call_with_static(PyObject *record, PyObject *tensor, PyObject *value) {
    PyObject *statics = PyTuple_Pack(1, value);
    PyObject *result = statics == NULL ? NULL : call_op(record, &tensor, 1, statics);
    Py_XDECREF(statics);
    return result;
}

/* Call an op as `dispatch.call_into` does, and write its result to `target`. Steals `operands` and `statics`, which may
 * be NULL. Return 0, or -1 with an exception. */
int write_into(PyObject *record, PyObject *operands, PyObject *statics, PyObject *target, PyObject *in_place) {
    PyObject *outs = PyTuple_Pack(1, target), *result = NULL;
    PyObject *arguments[] = {record, operands, statics, outs, in_place};
    if (operands != NULL && statics != NULL && outs != NULL) result = call_into(NULL, arguments, 4, in_place_name);
    Py_XDECREF(operands);
    Py_XDECREF(statics);
    Py_XDECREF(outs);
    Py_XDECREF(result);
    return result == NULL ? -1 : 0;
}

int add_in_place(PyObject *record, PyObject *total, PyObject *grad) {
    return write_into(record, PyTuple_Pack(2, total, grad), Py_NewRef(empty_tuple), total, Py_True);
}

/* Cache the layout of `tensor`, which has the operand's shape, if it is contiguous and no view. Never replace a layout:
 * callers borrow it. */
void set_dense_layout(PyObject *application, PyObject *tensor) {
    if (!is_gradient(tensor)) return;
    PyObject **slot = &SLOT(application, Application, dense_layout), *meta = SLOT(tensor, Tensor, meta);
    if (*slot == Py_None && SLOT(tensor, Tensor, extra) == Py_None && SLOT(meta, Meta, contiguous) == Py_True)
        set_slot(slot, Py_NewRef(meta));
}

/* Return `tensor` in another shape: a view. */
static PyObject *reshape(PyObject *state, PyObject *tensor, PyObject *shape) {
    if (is_contiguous(tensor)) return call_with_static(SLOT(state, BackwardState, view_record), tensor, shape);
    return PyObject_CallMethodObjArgs(state, s_reshape, tensor, shape, NULL);
}

/* `reshape_unshared` to the shape of the operand. Steals `total`, which may be NULL. */
static PyObject *reshape_total(PyObject *state, PyObject *total, PyObject *application) {
    if (total == NULL) return NULL;
    PyObject *shape = SLOT(SLOT(application, Application, layout), Meta, shape);
    PyObject *dense = SLOT(application, Application, dense_layout), *result;
    PyObject *meta = is_gradient(total) ? SLOT(total, Tensor, meta) : NULL;  /* a Mode may return any object */
    if (meta != NULL && are_equal(SLOT(meta, Meta, shape), shape)) return total;
    if (meta != NULL && dense != Py_None && SLOT(total, Tensor, needs_grad) == Py_False && is_contiguous(total) &&
        SLOT(meta, Meta, dtype) == SLOT(dense, Meta, dtype))
        result = tensor_of(Py_NewRef(SLOT(total, Tensor, storage)), dense, Py_NewRef(SLOT(total, Tensor, start)));
    else {
        result = PyObject_CallMethodObjArgs(state, s_reshape_unshared, total, shape, NULL);
        if (result != NULL) set_dense_layout(application, result);
    }
    Py_DECREF(total);
    return result;
}

/* Return the dimensions of a gradient of shape `sizes` to sum over, so that it gets `shape` after dropping the first
 * ones. Return NULL without an exception if summing is not enough, or if there are none. */
static PyObject *dims_to_sum(PyObject *sizes, PyObject *shape) {
    Py_ssize_t new_dims = PyTuple_GET_SIZE(sizes) - PyTuple_GET_SIZE(shape), count = 0, dims[MAX_VALUES];
    if (new_dims < 0 || PyTuple_GET_SIZE(sizes) > MAX_VALUES) return NULL;
    for (Py_ssize_t d = 0; d < PyTuple_GET_SIZE(sizes); d++) {
        if (d >= new_dims) {
            Py_ssize_t n = index_at(shape, d - new_dims);
            if (index_at(sizes, d) == n) continue;
            if (n != 1) return NULL;
        }
        dims[count++] = d;
    }
    if (count == 0) return NULL;
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
        PyObject *number = PyLong_FromSsize_t(dims[i]);
        if (number == NULL) Py_CLEAR(tuple);
        else PyTuple_SET_ITEM(tuple, i, number);
    }
    return tuple;
}

/* Return a gradient in the operand's shape, summed over broadcast dimensions, and dtype. Steals `grad`, which may be
 * NULL. */
static PyObject *fit_to(PyObject *state, PyObject *grad, PyObject *application) {
    PyObject *layout = SLOT(application, Application, layout);
    if (grad == NULL || grad == Py_None || (is_tensor(grad) && SLOT(grad, Tensor, meta) == layout)) return grad;
    PyObject *meta = is_gradient(grad) ? SLOT(grad, Tensor, meta) : NULL, *dims = NULL, *result = NULL;
    if (meta != NULL && SLOT(meta, Meta, dtype) == SLOT(layout, Meta, dtype)) {
        PyObject *sizes = SLOT(meta, Meta, shape), *shape = SLOT(layout, Meta, shape);
        if (are_equal(sizes, shape)) return grad;
        dims = dims_to_sum(sizes, shape);
    }
    if (dims != NULL) {
        PyObject *statics = PyTuple_Pack(3, dims, Py_True, Py_None);
        if (statics != NULL) result = call_op(SLOT(state, BackwardState, sum_record), &grad, 1, statics);
        Py_XDECREF(statics);
        Py_DECREF(dims);
        result = reshape_total(state, result, application);
    } else if (!PyErr_Occurred()) result = PyObject_CallMethodObjArgs(state, s_fit_to, grad, layout, NULL);
    Py_DECREF(grad);
    return result;
}

/* Return an operand of a rule's op, a new reference. Rules of reductions read results and their gradients with size 1
 * in the reduced dimensions. */
static PyObject *operand_of(Step *step, PyObject *application, Py_ssize_t source) {
    PyObject *keepdim_shape = SLOT(application, Application, keepdim_shape);
    if (source == step->value_count) {
        double count = PyLong_AsDouble(SLOT(application, Application, count));
        return count == -1.0 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(count);
    }
    PyObject *value = step->values[source];
    if (source < step->operand_count || PyTuple_GET_SIZE(keepdim_shape) == 0 || !is_gradient(value) ||
        are_equal(SLOT(SLOT(value, Tensor, meta), Meta, shape), keepdim_shape))
        return Py_NewRef(value);
    return reshape(step->state, value, keepdim_shape);
}

/* Call the op of a rule whose result is used as it is, or is the gradient of several operands (`result`). */
static PyObject *call_rule(Step *step, PyObject *application, PyObject *const *operands, Py_ssize_t count) {
    PyObject *record = SLOT(application, Application, record), *sum_record = SLOT(application, Application, sum_record);
    PyObject *index = SLOT(application, Application, result);
    if (index != Py_None) {
        if (step->shared_record != record) {
            PyObject *result = call_op(record, operands, count, SLOT(application, Application, statics));
            if (result == NULL) return NULL;
            step->shared_record = record;
            Py_XSETREF(step->shared_result, result);
        }
        if (!PyTuple_Check(step->shared_result)) return Py_NewRef(step->shared_result);
        return PySequence_GetItem(step->shared_result, PyLong_AsSsize_t(index));
    }
    if (sum_record == Py_None) return call_op(record, operands, count, SLOT(application, Application, statics));
    PyObject *statics = PyTuple_Pack(2, SLOT(application, Application, sum_dims), Py_True);
    PyObject *total = statics == NULL ? NULL : call_op(sum_record, operands, count, statics);
    Py_XDECREF(statics);
    return reshape_total(step->state, total, application);
}

/* Return the gradient that a rule gives, as a new reference: None for zeros. */
PyObject *apply_rule(Step *step, PyObject *application) {
    PyObject *sources = SLOT(application, Application, sources), *layout = SLOT(application, Application, layout);
    PyObject *operands[MAX_SOURCES], *gradient = NULL, *state = step->state;
    Py_ssize_t count = PyTuple_GET_SIZE(sources), read = 0;
    if (count == 0) return Py_NewRef(Py_None);
    for (; read < count; read++)
        if ((operands[read] = operand_of(step, application, index_at(sources, read))) == NULL) goto done;
    if (SLOT(step->recipe, Recipe, is_reshape) == Py_True)
        gradient = reshape(state, operands[0], SLOT(layout, Meta, shape));
    else if (SLOT(application, Application, record) == Py_None) gradient = Py_NewRef(operands[0]);
    else gradient = call_rule(step, application, operands, count);
    PyObject *shape = SLOT(application, Application, broadcast_shape);
    if (gradient != NULL && PyTuple_GET_SIZE(SLOT(application, Application, keepdim_shape)) && is_gradient(gradient) &&
        !are_equal(SLOT(SLOT(gradient, Tensor, meta), Meta, shape), shape))
        Py_SETREF(gradient, call_with_static(SLOT(state, BackwardState, expand_record), gradient, shape));
    gradient = fit_to(state, gradient, application);
done:
    for (Py_ssize_t i = 0; i < read; i++) Py_DECREF(operands[i]);
    return gradient;
}
